// The adjacent-pair tree over doubles (core/tensor/adjacent_pair.h), by one thread block: a warp
// takes 128 neighbouring leaves at a time, four a lane, and keeps the partial sum of level l in lane
// l.
//
//   __global__ void __launch_bounds__(kBlockTreeThreads) SumKernel(const double* x, std::int64_t n,
//                                                                  double* sum) {
//     HW_SHARED(double, of_warps, kBlockTreeWarps);
//     const auto leaf = [&](std::int64_t i) { return LoadGlobal(x + i); };
//     const double total = BlockTree(n, of_warps, leaf);
//     if (threadIdx.x == 0) StoreGlobal(sum, total);
//   }
#ifndef HEADWISE_KERNELS_COMMON_CUDA_BLOCK_TREE_CUH_
#define HEADWISE_KERNELS_COMMON_CUDA_BLOCK_TREE_CUH_

#include <cstdint>

#include "kernels/common/cuda/fp32.cuh"
#include "kernels/emulation/cuda_kernel.h"

namespace headwise::HW_CUDA_NAMESPACE {

inline constexpr int kBlockTreeWarps = 16;
inline constexpr int kBlockTreeThreads = 32 * kBlockTreeWarps;

// The tree over the warp's 32 values, in lane order; in every lane, as addition commutes.
__device__ __forceinline__ double WarpTree(double x) {
#pragma unroll
  for (int h = 1; h < 32; h *= 2) x = __dadd_rn(x, __shfl_xor_sync(kAllLanes, x, h));
  return x;
}

// leaf(i) for 0 <= i < n is leaf i; it is called once for each i. `of_warps`: kBlockTreeWarps
// doubles of shared memory that nobody else uses during the launch. Every thread of a block of
// kBlockTreeThreads must call this; warp 0 has the result.
template <typename Values, typename Leaf>
__device__ __forceinline__ double BlockTree(std::int64_t n, Values& of_warps, const Leaf& leaf) {
  constexpr int kLeaves = 4;  // of a lane
  constexpr std::int64_t kStep = 32 * kLeaves;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  std::int64_t padded = 1;
  while (padded < n) padded *= 2;
  // Complete subtrees. What lies beyond `padded` is no part of the tree: adding -0 changes no bit.
  const std::int64_t share =
      max(static_cast<long long>(padded / kBlockTreeWarps), static_cast<long long>(kStep));
  double kept = -0.0;
  unsigned count = 0;
  for (std::int64_t i = warp * share; i < (warp + 1) * share; i += kStep) {
    double v[kLeaves];
#pragma unroll
    for (int k = 0; k < kLeaves; ++k) {
      const std::int64_t at = i + kLeaves * lane + k;
      v[k] = at < n ? leaf(at) : at < padded ? 0.0 : -0.0;
    }
    double sum = WarpTree(__dadd_rn(__dadd_rn(v[0], v[1]), __dadd_rn(v[2], v[3])));
    int level = 0;
    for (; (count >> level & 1u) != 0; ++level) {
      sum = __dadd_rn(__shfl_sync(kAllLanes, kept, level), sum);
    }
    if (lane == level) kept = sum;
    ++count;
  }
  // A power of two: one level has all of it.
  const double of_warp = __shfl_sync(kAllLanes, kept, 31 - __clz(static_cast<int>(count)));
  if (lane == 0) of_warps[warp] = of_warp;
  __syncthreads();
  if (warp != 0) return 0.0;
  double of_lane = -0.0;
  if (lane < kBlockTreeWarps) of_lane = of_warps[lane];
  return WarpTree(of_lane);
}

}  // namespace headwise::HW_CUDA_NAMESPACE

#endif  // HEADWISE_KERNELS_COMMON_CUDA_BLOCK_TREE_CUH_
