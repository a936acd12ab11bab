// X and matrices in shared memory, and sums of products over them.
#ifndef HEADWISE_KERNELS_MUON_STEP_CUDA_STAGE_CUH_
#define HEADWISE_KERNELS_MUON_STEP_CUDA_STAGE_CUH_

#include "kernels/emulation/cuda_kernel.h"
#include "kernels/muon_step/cuda/elements.cuh"

namespace headwise::HW_CUDA_NAMESPACE {

// Floats from one row to the next of X staged by rows.
inline constexpr int kRowStride = kStage + 4;

template <int kThreads>
__device__ __forceinline__ void ClearShared(const SharedArray<float>& values, int count) {
  for (int i = 4 * static_cast<int>(threadIdx.x); i < count; i += 4 * kThreads) {
    values.template Store<float4>(i, make_float4(0.0f, 0.0f, 0.0f, 0.0f));
  }
}

// kCount elements, a multiple of 4, from `at`, one too.
template <int kCount>
__device__ __forceinline__ void LoadRow(const SharedArray<float>& values, int at,
                                        float (&x)[kCount]) {
#pragma unroll
  for (int q = 0; q < kCount; q += 4) {
    const float4 v = values.template Load<float4>(at + q);
    x[q] = v.x, x[q + 1] = v.y, x[q + 2] = v.z, x[q + 3] = v.w;
  }
}

// sums[r][s] <- fma(x[r], y[s], sums[r][s])
template <int kRows, int kColumns>
__device__ __forceinline__ void Accumulate(const float (&x)[kRows], const float (&y)[kColumns],
                                           float (&sums)[kRows][kColumns]) {
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int s = 0; s < kColumns; ++s) sums[r][s] = __fmaf_rn(x[r], y[s], sums[r][s]);
  }
}
template <int kRows, int kColumns>
__device__ __forceinline__ void SetZero(float (&sums)[kRows][kColumns]) {
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int s = 0; s < kColumns; ++s) sums[r][s] = 0.0f;
  }
}

// Puts a quad of X at its place in a stage by rows, of which c0 is the first column, i0 the first
// row.
__device__ __forceinline__ void StageByRows(const BlockEntry& b, const Quad& quad, int i0, int c0,
                                            const float (&x)[4], const SharedArray<float>& stage) {
  const int at = (quad.i - i0) * kRowStride + quad.c - c0;
  if (b.transposed == 0) {
    stage.template Store<float4>(at, make_float4(x[0], x[1], x[2], x[3]));
    return;
  }
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    if (e < quad.count) stage[at + e * kRowStride] = x[e];
  }
}
// And takes it from there.
__device__ __forceinline__ void TakeByRows(const BlockEntry& b, const Quad& quad, int i0, int c0,
                                           const SharedArray<float>& stage, float (&x)[4]) {
  const int at = (quad.i - i0) * kRowStride + quad.c - c0;
  if (b.transposed == 0) {
    LoadRow(stage, at, x);
    return;
  }
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    x[e] = 0.0f;
    if (e < quad.count) x[e] = stage[at + e * kRowStride];
  }
}

// The thread's rows of a stage by rows become `sums`.
template <int kRows>
__device__ __forceinline__ void StoreSums(const SharedArray<float>& stage, int i, int c,
                                          const float (&sums)[kRows][4]) {
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    stage.template Store<float4>((i + r) * kRowStride + c,
                                 make_float4(sums[r][0], sums[r][1], sums[r][2], sums[r][3]));
  }
}

}  // namespace headwise::HW_CUDA_NAMESPACE

#endif  // HEADWISE_KERNELS_MUON_STEP_CUDA_STAGE_CUH_
