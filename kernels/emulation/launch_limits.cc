#include "kernels/emulation/launch_limits.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "absl/strings/str_format.h"
#include "kernels/emulation/block_memory.h"
#include "kernels/emulation/shared_state.h"

namespace headwise::emulation {
namespace {

// What cudaFuncSetAttribute said, for the life of the process, as on a GPU.
class DynamicSharedLimits {
 public:
  static DynamicSharedLimits& Get() {
    static DynamicSharedLimits* const limits = new DynamicSharedLimits;
    return *limits;
  }
  void Set(const void* kernel, std::int64_t bytes) {
    const std::lock_guard lock(mutex_);
    limits_[kernel] = bytes;
  }
  std::int64_t For(const void* kernel) {
    const std::lock_guard lock(mutex_);
    const auto limit = limits_.find(kernel);
    return std::max(kMostSharedUnasked, limit == limits_.end() ? 0 : limit->second);
  }

 private:
  std::mutex mutex_;
  std::map<const void*, std::int64_t> limits_;
};

std::string ToString(const Dim3& d) { return absl::StrFormat("(%u, %u, %u)", d.x, d.y, d.z); }

}  // namespace

std::string CheckLimits(const LaunchRequest& r) {
  if (std::max(r.block.x, r.block.y) > kMostThreads || r.block.z > 64 || r.block.Count() < 1 ||
      r.block.Count() > kMostThreads) {
    return absl::StrFormat("block %s: a block has 1 to %d threads, at most 64 in z",
                           ToString(r.block), kMostThreads);
  }
  if (r.grid.x > 0x7fffffffu || r.grid.y > 65535 || r.grid.z > 65535 || r.grid.Count() < 1) {
    return absl::StrFormat(
        "grid %s: a grid has at least 1 block, at most 2147483647 in x, 65535 in y and in z",
        ToString(r.grid));
  }
  if (r.dynamic_shared_bytes < 0 || r.dynamic_shared_bytes > kMostShared) {
    return absl::StrFormat("block has %d bytes of dynamic shared memory; a GPU has %d",
                           r.dynamic_shared_bytes, kMostShared);
  }
  const std::int64_t limit = DynamicSharedLimits::Get().For(r.kernel);
  if (r.dynamic_shared_bytes > limit) {
    return absl::StrFormat(
        "block has %d bytes of dynamic shared memory; cudaFuncSetAttribute allowed the kernel %d",
        r.dynamic_shared_bytes, limit);
  }
  return "";
}

bool AllowDynamicShared(const void* kernel, int bytes) {
  if (bytes < 0 || bytes > kMostShared) return false;
  DynamicSharedLimits::Get().Set(kernel, bytes);
  return true;
}

}  // namespace headwise::emulation
