// A row by one warp: the sums of 64 chains that kernels/common/row_loops.h defines (ReduceRow).
// Lane l has elements 2l + 64m and 2l + 1 + 64m, so that chains 2l and 2l + 1 are its own, serial
// and ascending, and a warp moves 64 consecutive elements at a time.
//
//   PairChains squares;
//   ForEachPair(n, lane, [&](int i, bool both) {
//     const Pair x = LoadPair(row + i, both, paired);
//     squares.Add(x, x, both);
//   });
//   const Fp32 sum = squares.Sum();
#ifndef HEADWISE_KERNELS_COMMON_CUDA_ROW_CHAINS_CUH_
#define HEADWISE_KERNELS_COMMON_CUDA_ROW_CHAINS_CUH_

#include "kernels/common/cuda/fp32.cuh"
#include "kernels/common/cuda/storage.cuh"
#include "kernels/emulation/cuda_kernel.h"

namespace headwise::HW_CUDA_NAMESPACE {

// f(i, both) for the lane's elements i and, if `both`, i + 1 of a row of n.
template <typename F>
__device__ __forceinline__ void ForEachPair(int n, int lane, const F& f) {
#pragma unroll 4
  for (int i = 2 * lane; i < n; i += 64) f(i, i + 1 < n);
}

// Two neighbouring elements; the second is 0 where it lies beyond the row.
struct Pair {
  Fp32 first, second;
};

// `paired`: rows start on a multiple of two elements, so that both move at once.
template <typename T>
__device__ __forceinline__ Pair LoadPair(const T* p, bool both, bool paired) {
  Fp32 x[2];
  if (both && paired) {
    LoadElements(p, x);
  } else {
    x[0] = LoadElement(p);
    x[1] = both ? LoadElement(p + 1) : Fp32(0.0f);
  }
  return {x[0], x[1]};
}
template <typename T>
__device__ __forceinline__ void StorePair(T* p, Pair y, bool both, bool paired) {
  if (both && paired) {
    const Fp32 x[2] = {y.first, y.second};
    StoreElements(p, x);
  } else {
    StoreElement(p, y.first);
    if (both) StoreElement(p + 1, y.second);
  }
}

// Chains 2l and 2l + 1 of lane l.
struct PairChains {
  Fp32 first = 0.0f, second = 0.0f;

  // first = fma(a, b, first) and, if `both`, second likewise.
  __device__ __forceinline__ void Add(Pair a, Pair b, bool both) {
    first = Fma(a.first, b.first, first);
    if (both) second = Fma(a.second, b.second, second);
  }
  // p[c] + p[c + h], h = 32, 16, 8, 4, 2, 1, in every lane: addition commutes. Every lane of the
  // warp must call it.
  __device__ __forceinline__ Fp32 Sum() const {
    Fp32 a = first, b = second;
#pragma unroll
    for (int h = 16; h > 0; h /= 2) {
      a = a + FromLaneAcross(a, h);
      b = b + FromLaneAcross(b, h);
    }
    return a + b;
  }
};

}  // namespace headwise::HW_CUDA_NAMESPACE

#endif  // HEADWISE_KERNELS_COMMON_CUDA_ROW_CHAINS_CUH_
