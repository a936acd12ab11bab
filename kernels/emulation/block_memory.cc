#include "kernels/emulation/block_memory.h"

#include <sys/mman.h>

#include <algorithm>

#include "core/base/check.h"

namespace headwise::emulation {
namespace {

// A new mapping reads as zero, so that an untouched red zone costs no memory.
constexpr std::int64_t kProbed = 1024;
constexpr std::int64_t kProbeStep = 64;

char* Map(void* where, std::int64_t bytes) {
  const int fixed = where == nullptr ? 0 : MAP_FIXED;
  void* data = mmap(where, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | fixed, -1, 0);
  HW_CHECK(data != MAP_FAILED) << bytes << " bytes";
  return static_cast<char*>(data);
}

}  // namespace

BlockMemory::BlockMemory()
    : stacks_(Map(nullptr, kMostThreads * kStride)), shared_(Map(nullptr, kMostShared)) {}

BlockMemory::~BlockMemory() {
  AsanUnpoison(stacks_, kMostThreads * kStride);
  munmap(stacks_, kMostThreads * kStride);
  munmap(shared_, kMostShared);
}

void BlockMemory::Prepare(int threads, bool abandoned) {
  if (kTsan) {
    // The threads of this block are not ordered after those of the last one; on fresh memory TSan
    // does not take that for a race.
    Map(stacks_, threads * kStride);
    Map(shared_, kMostShared);
    return;
  }
  if (abandoned) {
    AsanUnpoison(stacks_, kMostThreads * kStride);
    for (int i = 0; i < guarded_; ++i) {
      if (!RedZoneIntact(i)) std::fill_n(stack(i), kRedZone, char{0});
    }
  }
  for (; guarded_ < threads; ++guarded_) {
    HW_CHECK_EQ(mprotect(stacks_ + guarded_ * kStride, kGuard, PROT_NONE), 0);
  }
}

bool BlockMemory::RedZoneIntact(int thread) const {
  const char* end = stack(thread) + kRedZone;
  std::uint64_t seen = 0;
  for (std::int64_t at = kProbed; at > 0; at -= kProbeStep) {
    seen |= *reinterpret_cast<const std::uint64_t*>(end - at);
  }
  return seen == 0;
}

}  // namespace headwise::emulation
