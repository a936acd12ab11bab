// A pool of device memory: the address of a tensor can be copied to and from, and goes to the next.
#include "model/device_blocks.h"

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "core/cuda/device_memory.h"
#include "gtest/gtest.h"
#include "model/storage_pool.h"

namespace headwise {
namespace {

TEST(DeviceBlocks, ATensorsElementsAreInDeviceMemory) {
  StoragePool pool(Device::kCuda, DeviceBlock);
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  const void* address = nullptr;
  {
    const Tensor x = pool.Empty({2, 3}, DType::kF32, Device::kCuda);
    address = x.raw_data();
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(address) % 256, 0u);
    ASSERT_EQ(CopyToDevice(x.raw_data(), values.data(), x.bytes()), absl::OkStatus());
    std::vector<float> second(3);
    ASSERT_EQ(CopyToHost(second.data(), x.Slice(1, 1).raw_data(), 12), absl::OkStatus());
    EXPECT_EQ(second, (std::vector<float>{4, 5, 6}));
  }
  EXPECT_EQ(pool.Empty({6}, DType::kF32, Device::kCuda).raw_data(), address);
  EXPECT_EQ(pool.allocations(), 1);
}

TEST(DeviceBlocksDeathTest, TooMuchMemoryIsSaid) {
  EXPECT_DEATH(DeviceBlock(std::int64_t{1} << 60), "memory|allocation");
}

}  // namespace
}  // namespace headwise
