#include "model/device_blocks.h"

#include <utility>

#include "absl/status/statusor.h"
#include "core/base/check.h"
#include "core/cuda/device_memory.h"

namespace headwise {

std::shared_ptr<void> DeviceBlock(std::int64_t bytes) {
  absl::StatusOr<DeviceMemory> memory = DeviceMemory::Allocate(bytes);
  HW_CHECK(memory.ok()) << memory.status();
  const auto owner = std::make_shared<DeviceMemory>(*std::move(memory));
  return std::shared_ptr<void>(owner, owner->data());
}

}  // namespace headwise
