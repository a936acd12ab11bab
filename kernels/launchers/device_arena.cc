#include "kernels/launchers/device_arena.h"

#include <sys/mman.h>

#include <cstring>

#include "core/base/check.h"

namespace headwise {
namespace {

constexpr std::int64_t kAlignment = 256, kPage = 4096;

std::int64_t RoundUp(std::int64_t bytes, std::int64_t multiple) {
  return (bytes + multiple - 1) / multiple * multiple;
}

}  // namespace

DeviceArena::DeviceArena() {
  void* const data = mmap(nullptr, static_cast<std::size_t>(kCapacity), PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  HW_CHECK(data != MAP_FAILED) << "no addresses for the memory of a GPU";
  data_ = static_cast<std::byte*>(data);
}

DeviceArena::~DeviceArena() { munmap(data_, static_cast<std::size_t>(kCapacity)); }

void DeviceArena::Protect(bool lock) {
  if (size_ == 0) return;
  const int failed = mprotect(data_, static_cast<std::size_t>(RoundUp(size_, kPage)),
                              lock ? PROT_NONE : PROT_READ | PROT_WRITE);
  HW_CHECK_EQ(failed, 0) << "mprotect of " << size_ << " bytes";
}

void* DeviceArena::Allocate(std::int64_t bytes) {
  HW_CHECK_EQ(unlocks_, 0) << "an allocation inside of a launch";
  const std::int64_t rounded = RoundUp(bytes, kAlignment);
  void* block = nullptr;
  if (const auto it = free_.find(rounded); it != free_.end()) {
    block = it->second;
    free_.erase(it);
  } else {
    if (rounded > kCapacity - size_) return nullptr;
    block = data_ + size_;
    size_ += rounded;
  }
  sizes_[static_cast<std::byte*>(block)] = bytes;
  const Unlock unlock(*this);
  std::memset(block, 0xff, static_cast<std::size_t>(rounded));
  return block;
}

void DeviceArena::Free(void* data, std::int64_t bytes) {
  HW_CHECK_EQ(sizes_.erase(static_cast<std::byte*>(data)), 1u) << "freed twice";
  const std::int64_t rounded = RoundUp(bytes, kAlignment);
  const Unlock unlock(*this);
  std::memset(data, 0xff, static_cast<std::size_t>(rounded));
  free_.emplace(rounded, data);
}

bool DeviceArena::Holds(const void* data, std::int64_t bytes) const {
  if (bytes == 0) return true;
  const auto* const first = static_cast<const std::byte*>(data);
  auto it = sizes_.upper_bound(first);
  if (it == sizes_.begin()) return false;
  --it;
  return first - it->first <= it->second - bytes;
}

bool DeviceArena::Within(const void* data) const {
  const std::int64_t offset = static_cast<const std::byte*>(data) - data_;
  return offset >= 0 && offset < kCapacity;
}

}  // namespace headwise
