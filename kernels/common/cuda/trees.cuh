// Adjacent-pair trees, p[2i] + p[2i + 1], padded with +0 to a power of two, additions performed
// (docs/numerics.md, section 5).
#ifndef HEADWISE_KERNELS_COMMON_CUDA_TREES_CUH_
#define HEADWISE_KERNELS_COMMON_CUDA_TREES_CUH_

#include "kernels/emulation/cuda_kernel.h"

namespace headwise::HW_CUDA_NAMESPACE {

// Sums n >= 1 values of shared memory, at begin + i * stride, in place: the sum is at `begin`. One
// thread's work. A level of n values has ceil(n / 2) sums; beyond them there is only padding.
template <typename Values>
__device__ __forceinline__ void SumAdjacentPairs(Values& values, int begin, int stride, int n) {
  for (; n > 1; n = (n + 1) / 2) {
    for (int i = 0; 2 * i < n; ++i) {
      const float first = values[begin + 2 * i * stride];
      float second = 0.0f;
      if (2 * i + 1 < n) second = values[begin + (2 * i + 1) * stride];
      values[begin + i * stride] = __fadd_rn(first, second);
    }
  }
}

// The tree over any number of leaves, given in order: keeps one partial sum a level, in registers.
// Only complete trees may be read: push +0 up to a power of two, at most 2^(kLevels - 1).
template <int kLevels>
class TreeSum {
 public:
  __device__ __forceinline__ void Push(float value) {
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
  }
  // The sum of the 2^k leaves pushed so far.
  __device__ __forceinline__ float Total() const {
    float total = 0.0f;
#pragma unroll
    for (int level = 0; level < kLevels; ++level) {
      if (count_ >> level & 1u) total = levels_[level];
    }
    return total;
  }

 private:
  unsigned count_ = 0;
  float levels_[kLevels] = {};
};

}  // namespace headwise::HW_CUDA_NAMESPACE

#endif  // HEADWISE_KERNELS_COMMON_CUDA_TREES_CUH_
