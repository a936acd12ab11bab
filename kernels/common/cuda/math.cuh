// Exp, Log, Tanh and Sigmoid in device code, with the bits of kernels/common/math.h: the same text
// over Fp32.
#ifndef HEADWISE_KERNELS_COMMON_CUDA_MATH_CUH_
#define HEADWISE_KERNELS_COMMON_CUDA_MATH_CUH_

#include <limits>

#include "kernels/common/cuda/fp32.cuh"
#include "kernels/emulation/cuda_kernel.h"

namespace headwise::HW_CUDA_NAMESPACE {

namespace math_internal {

#define HW_MATH_STEP __device__ __forceinline__
#include "kernels/common/math_steps.inc"
#undef HW_MATH_STEP

}  // namespace math_internal

__device__ __forceinline__ Fp32 Exp(Fp32 x) { return math_internal::ExpImpl(x); }
__device__ __forceinline__ Fp32 Log(Fp32 x) { return math_internal::LogImpl(x); }
__device__ __forceinline__ Fp32 Sigmoid(Fp32 x) { return math_internal::SigmoidImpl(x); }
__device__ __forceinline__ Fp32 Tanh(Fp32 x) { return math_internal::TanhImpl(x); }

// {Sigmoid(x), Sigmoid(-x)}, the bits of both, from one exponential.
struct Sigmoids {
  Fp32 value, complement;

  __device__ __forceinline__ explicit Sigmoids(Fp32 x) {
    math_internal::SigmoidsFrom<Fp32>(Exp(-Abs(x)), x, 0.0f, 1.0f, value, complement);
  }
};

}  // namespace headwise::HW_CUDA_NAMESPACE

#endif  // HEADWISE_KERNELS_COMMON_CUDA_MATH_CUH_
