// The softmax over all experts of one token, by one warp: the order of kernels/moe/softmax_row.h.
//
//   const SoftmaxRow softmax(experts, lane, z);    // z(e): the logit of expert e, in every lane
//   Fp32 p = softmax.Probability(z(e));
#ifndef HEADWISE_KERNELS_MOE_CUDA_SOFTMAX_ROW_CUH_
#define HEADWISE_KERNELS_MOE_CUDA_SOFTMAX_ROW_CUH_

#include <cstdint>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "kernels/common/cuda/fp32.cuh"
#include "kernels/common/cuda/math.cuh"
#include "kernels/common/cuda/row_chains.cuh"
#include "kernels/emulation/cuda_kernel.h"
#include "kernels/moe/cuda.h"

namespace headwise::HW_CUDA_NAMESPACE {

// The largest x of the warp's lanes; NaN takes no part. Every lane must call it.
__device__ __forceinline__ Fp32 WarpMax(Fp32 x) {
#pragma unroll
  for (int h = 16; h > 0; h /= 2) x = Max(FromLaneAcross(x, h), x);
  return x;
}

struct SoftmaxRow {
  Fp32 max, sum;

  // Every lane of the warp must call it.
  template <typename Logit>
  __device__ __forceinline__ SoftmaxRow(int experts, int lane, const Logit& z)
      : max(-std::numeric_limits<float>::infinity()) {
    Fp32 largest = max;
    ForEachPair(experts, lane, [&](int e, bool both) {
      largest = Max(z(e), largest);
      if (both) largest = Max(z(e + 1), largest);
    });
    max = WarpMax(largest);
    PairChains chains;
    ForEachPair(experts, lane, [&](int e, bool both) {
      chains.first = chains.first + Exp(z(e) - max);
      if (both) chains.second = chains.second + Exp(z(e + 1) - max);
    });
    sum = chains.Sum();
  }
  __device__ __forceinline__ Fp32 Probability(Fp32 z) const { return Exp(z - max) / sum; }
};

inline absl::Status CheckExperts(const char* name, std::int64_t experts) {
  if (experts <= kMostCudaExperts) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s: found %d experts, expected at most %d on CUDA", name, experts, kMostCudaExperts));
}

}  // namespace headwise::HW_CUDA_NAMESPACE

#endif  // HEADWISE_KERNELS_MOE_CUDA_SOFTMAX_ROW_CUH_
