// Which entry of a table in device memory a unit of work belongs to. Entries have the number of
// their first unit, ascending from 0; one without units has that of the next and is not found.
//
//   struct Entry { std::int64_t first_block; ... };
//   const Entry* const entry = FindEntry<&Entry::first_block>(entries, count, blockIdx.x);
#ifndef HEADWISE_KERNELS_COMMON_CUDA_FIND_ENTRY_CUH_
#define HEADWISE_KERNELS_COMMON_CUDA_FIND_ENTRY_CUH_

#include <cstdint>

#include "kernels/emulation/cuda_kernel.h"

namespace headwise::HW_CUDA_NAMESPACE {

// The last of `count` > 0 entries whose first unit is not beyond `unit`, by bisection. Nobody writes
// the table during the launch.
template <auto kFirstUnit, typename Entry>
__device__ __forceinline__ const Entry* FindEntry(const Entry* entries, std::int64_t count,
                                                  std::int64_t unit) {
  std::int64_t begin = 0, end = count;
  while (end - begin > 1) {
    const std::int64_t middle = begin + (end - begin) / 2;
    if (LoadCached(&(entries[middle].*kFirstUnit)) <= unit) {
      begin = middle;
    } else {
      end = middle;
    }
  }
  return entries + begin;
}

}  // namespace headwise::HW_CUDA_NAMESPACE

#endif  // HEADWISE_KERNELS_COMMON_CUDA_FIND_ENTRY_CUH_
