#include "kernels/emulation/block_memory.h"

#include <sys/mman.h>

#include <cstdint>

#include "core/base/check.h"

namespace headwise::emulation {
namespace {

// Address space only: pages come as they are used, and read as zero.
char* Map(std::int64_t bytes) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  HW_CHECK(data != MAP_FAILED) << bytes << " bytes";
  return static_cast<char*>(data);
}

}  // namespace

BlockMemory::BlockMemory() : stacks_(Map(kMostThreads * kStride)), shared_(Map(kMostShared)) {}

BlockMemory::~BlockMemory() {
  AsanUnpoison(stacks_, kMostThreads * kStride);
  munmap(stacks_, kMostThreads * kStride);
  munmap(shared_, kMostShared);
}

void BlockMemory::Reserve(int threads) {
  for (; guarded_ < threads; ++guarded_) {
    HW_CHECK_EQ(mprotect(stacks_ + guarded_ * kStride, kGuard, PROT_NONE), 0);
  }
}

void BlockMemory::Clean(int threads) {
  AsanUnpoison(stacks_, threads * kStride);
  for (int i = 0; i < threads; ++i) {
    HW_CHECK_EQ(madvise(stack(i), kRedZone, MADV_DONTNEED), 0);
  }
}

// Red zones hold zeros until somebody writes to them.
bool BlockMemory::RedZoneIntact(int thread) const {
  constexpr int kProbes = 16, kStep = 64;
  const char* const end = stack(thread) + kRedZone;
  std::uint64_t seen = 0;
  for (int i = 1; i <= kProbes; ++i) {
    seen |= *reinterpret_cast<const std::uint64_t*>(end - i * kStep);
  }
  return seen == 0;
}

}  // namespace headwise::emulation
