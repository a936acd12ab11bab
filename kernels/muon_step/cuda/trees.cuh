// Adjacent-pair trees, p[2i] + p[2i + 1], padded with +0 to a power of two, additions performed
// (docs/numerics.md, 7).
#ifndef HEADWISE_KERNELS_MUON_STEP_CUDA_TREES_CUH_
#define HEADWISE_KERNELS_MUON_STEP_CUDA_TREES_CUH_

#include <cstdint>

#include "kernels/emulation/cuda_kernel.h"

namespace headwise::HW_CUDA_NAMESPACE {

// The tree over leaves given in order, whose number is a power of two below 2^kLevels: one partial
// sum a level, in registers.
template <int kLevels>
class TreeSum {
 public:
  // Returns the tree's sum if this was the last leaf.
  __device__ __forceinline__ float Push(float value) {
    bool carried = true;
#pragma unroll
    for (int level = 0; level < kLevels; ++level) {
      if (!carried) break;
      if (count_ >> level & 1u) {
        value = __fadd_rn(levels_[level], value);
      } else {
        levels_[level] = value;
        carried = false;
      }
    }
    ++count_;
    return value;
  }

 private:
  unsigned count_ = 0;
  float levels_[kLevels] = {};
};

// The tree over `count` > 0 leaves of global memory, `stride` apart, as if there were `padded` of
// them, a power of two.
__device__ __forceinline__ float SumLeaves(const float* leaves, std::int64_t stride, int count,
                                           int padded) {
  TreeSum<21> tree;  // of groups of up to eight
  float sum = 0.0f;
  for (int i = 0; i < padded; i += 8) {
    float v[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      v[j] = j < padded && i + j < count ? LoadStreaming(leaves + (i + j) * stride) : 0.0f;
    }
    if (padded >= 2) {
#pragma unroll
      for (int j = 0; j < 4; ++j) v[j] = __fadd_rn(v[2 * j], v[2 * j + 1]);
    }
    if (padded >= 4) {
#pragma unroll
      for (int j = 0; j < 2; ++j) v[j] = __fadd_rn(v[2 * j], v[2 * j + 1]);
    }
    if (padded >= 8) v[0] = __fadd_rn(v[0], v[1]);
    sum = tree.Push(v[0]);
  }
  return sum;
}

__device__ __forceinline__ int PaddedCount(int count) {
  return count <= 1 ? 1 : 1 << (32 - __clz(count - 1));
}

// The tree over `count` values of shared memory, a power of two; in place, by all threads of the
// block, at least half as many. Begins and ends with a barrier.
__device__ __forceinline__ float SumShared(const SharedArray<float>& values, int count) {
  const int i = static_cast<int>(threadIdx.x);
  for (int half = count / 2; half > 0; half /= 2) {
    __syncthreads();
    float first = 0.0f, second = 0.0f;
    if (i < half) first = values[2 * i], second = values[2 * i + 1];
    __syncthreads();
    if (i < half) values[i] = __fadd_rn(first, second);
  }
  __syncthreads();
  return values[0];
}

}  // namespace headwise::HW_CUDA_NAMESPACE

#endif  // HEADWISE_KERNELS_MUON_STEP_CUDA_TREES_CUH_
