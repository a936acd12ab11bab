// The arithmetic of a head, element by element, as docs/numerics.md orders it. Shared by both
// mappings of lanes to elements.
#ifndef HEADWISE_KERNELS_PREPARE_QKV_CUDA_MATHS_CUH_
#define HEADWISE_KERNELS_PREPARE_QKV_CUDA_MATHS_CUH_

#include "core/dtype/bf16.h"
#include "kernels/common/cuda/fp32.cuh"
#include "kernels/common/cuda/storage.cuh"
#include "kernels/emulation/cuda_kernel.h"
#include "kernels/prepare_qkv/cuda/arguments.cuh"

namespace headwise::HW_CUDA_NAMESPACE {

// To storage and back. N is even: bf16 is rounded two at a time.
template <typename T, int N>
__device__ __forceinline__ void RoundToStorage(float (&y)[N]) {
  if constexpr (sizeof(T) == 2) {
#pragma unroll
    for (int i = 0; i < N; i += 2) {
      const unsigned bits = PackBFloat16(y[i], y[i + 1]);
      y[i] = LowBFloat16(bits);
      y[i + 1] = HighBFloat16(bits);
    }
  }
}

template <int N>
__device__ __forceinline__ void Multiply(float (&y)[N], float factor) {
#pragma unroll
  for (int i = 0; i < N; ++i) y[i] = __fmul_rn(y[i], factor);
}
template <int N>
__device__ __forceinline__ void Multiply(float (&y)[N], const float (&factors)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) y[i] = __fmul_rn(y[i], factors[i]);
}

// a*b - c*d and a*b + c*d with three roundings each.
__device__ __forceinline__ float DifferenceOfProducts(float a, float b, float c, float d) {
  return __fsub_rn(__fmul_rn(a, b), __fmul_rn(c, d));
}
__device__ __forceinline__ float SumOfProducts(float a, float b, float c, float d) {
  return __fadd_rn(__fmul_rn(a, b), __fmul_rn(c, d));
}

// Turns (y1, y2) by the table's angle, and back.
__device__ __forceinline__ void Rotate(float& y1, float& y2, float cos, float sin) {
  const float first = DifferenceOfProducts(y1, cos, y2, sin);
  y2 = SumOfProducts(y2, cos, y1, sin);
  y1 = first;
}
__device__ __forceinline__ void RotateBack(float& d1, float& d2, float cos, float sin) {
  const float first = SumOfProducts(d1, cos, d2, sin);
  d2 = DifferenceOfProducts(d2, cos, d1, sin);
  d1 = first;
}

__device__ __forceinline__ float Mean(float sum, int head_dim) {
  return __fdiv_rn(sum, static_cast<float>(head_dim));
}

// w' of an element; 1 where the norm has no weight.
__device__ __forceinline__ float EffectiveWeight(const HeadMaths& maths, float w) {
  return maths.gain_centered ? __fadd_rn(1.0f, w) : w;
}

// The query scale: a multiplication and a rounding, unless it is 1.
template <typename T, int N>
__device__ __forceinline__ void ApplyScale(const HeadMaths& maths, float scale, float (&y)[N]) {
  if (scale == 1.0f) return;
  Multiply(y, scale);
  if (maths.round_between) RoundToStorage<T>(y);
}

// Forward, from x to what RoPE takes: x r, w', the query scale.
template <typename T, int N>
__device__ __forceinline__ void Normalize(const HeadMaths& maths, float r, const float (&w)[N],
                                          float scale, float (&y)[N]) {
  Multiply(y, r);
  if (maths.round_before) RoundToStorage<T>(y);
  Multiply(y, w);
  if (maths.round_between) RoundToStorage<T>(y);
  ApplyScale<T>(maths, scale, y);
}

// Backward, from what RoPE's transpose gives to g.
template <typename T, int N>
__device__ __forceinline__ void ScaleGradient(const HeadMaths& maths, float scale, float (&g)[N]) {
  if (maths.round_between) RoundToStorage<T>(g);
  ApplyScale<T>(maths, scale, g);
}

// dx of an element from xh, h, c1 and r.
__device__ __forceinline__ float InputGradient(float r, float xh, float c1, float h) {
  return __fmul_rn(r, __fmaf_rn(-xh, c1, h));
}

}  // namespace headwise::HW_CUDA_NAMESPACE

#endif  // HEADWISE_KERNELS_PREPARE_QKV_CUDA_MATHS_CUH_
