// Blocks of up to 128 rows: O = (Q s) X, a thread block a chunk of 256 columns; then decay and the
// write, or, before a restart, O is the next X. The first time, X is made from gradient and
// momentum, and the new momentum is stored.
//
// A thread has kEdge rows and 4 columns of 16 kEdge x 64. Shared memory, and registers on sm_90a (CUDA
// 13.0): 33.0 KiB, 48 for up to 64 rows; 98.0 KiB, 59 for up to 128.
#ifndef HEADWISE_KERNELS_MUON_STEP_CUDA_APPLY_CUH_
#define HEADWISE_KERNELS_MUON_STEP_CUDA_APPLY_CUH_

#include <cstdint>

#include "kernels/emulation/cuda_kernel.h"
#include "kernels/muon_step/cuda/elements.cuh"
#include "kernels/muon_step/cuda/gram.cuh"
#include "kernels/muon_step/cuda/stage.cuh"

namespace headwise::HW_CUDA_NAMESPACE {

inline constexpr int kApplyThreads = 256;
template <int kEdge>
inline constexpr int kApplyBytes = (kSide<kEdge> * kSide<kEdge> + kSide<kEdge> * kRowStride) *
                                   static_cast<int>(sizeof(float));

// Unit: a block and a chunk.
template <typename G, int kEdge>
__global__ void __launch_bounds__(kApplyThreads) MuonApply(const StepArguments a, ApplyWay way) {
  HW_DYNAMIC_SHARED(float, qs, 0);  // [k][i], with i and k beyond d 0
  HW_DYNAMIC_SHARED(float, stage, kSide<kEdge>* kSide<kEdge> * sizeof(float));
  if (Skips(a)) return;
  const Unit unit = ThisUnit(a);
  const BlockEntry b = LoadBlock(a, unit.block);
  const int thread = static_cast<int>(threadIdx.x);
  const int i = thread / 16 * kEdge, c = thread % 16 * 4;
  constexpr int kQuads = kSide<kEdge> / 4;
  for (int at = thread; at < kSide<kEdge> * kQuads; at += kApplyThreads) {
    const int row = at / kQuads, column = at % kQuads * 4;
    float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (row < b.d && column < b.d) {
      v = LoadCached(reinterpret_cast<const float4*>(a.scratch + b.matrices +
                                                     std::int64_t{row} * b.matrix_stride + column));
    }
    qs.template Store<float4>(row * kSide<kEdge> + column, v);
  }
  ClearShared<kApplyThreads>(stage, kSide<kEdge> * kRowStride);

  ScaleFactors scale;
  if (!way.from_scratch) scale = FactorsFor(LoadCached(&a.states[unit.block].largest));
  const float gradient_scale = GradientScale(a);
  const Write write = MakeWrite(a, b);
  const int end = min(b.n, (unit.first + 1) * kChunk);
  for (int c0 = unit.first * kChunk; c0 < end; c0 += kStage) {
    __syncthreads();
    ForEachQuad<kSide<kEdge>, kApplyThreads>(b, 0, c0, end, [&](const Quad& quad) {
      float x[4];
      if (way.from_scratch) {
        LoadX(a, b, 0, quad, x);
      } else {
        LoadUpdate<G>(a, b, gradient_scale, quad, /*stores=*/true, x);
#pragma unroll
        for (int e = 0; e < 4; ++e) x[e] = scale(x[e]);
      }
      StageByRows(b, quad, 0, c0, x, stage);
    });
    __syncthreads();
    float sums[kEdge][4];
    SetZero(sums);
    if (i < b.d) {
      for (int k = 0; k < b.d; ++k) {
        float x[kEdge], y[4];
        LoadRow(qs, k * kSide<kEdge> + i, x);
        LoadRow(stage, k * kRowStride + c, y);
        Accumulate(x, y, sums);
      }
    }
    __syncthreads();
    StoreSums(stage, i, c, sums);
    __syncthreads();
    ForEachQuad<kSide<kEdge>, kApplyThreads>(b, 0, c0, end, [&](const Quad& quad) {
      float o[4];
      TakeByRows(b, quad, 0, c0, stage, o);
      if (way.to_scratch) {
        StoreX(a, b, 0, quad, o);
      } else {
        UpdateWeight(a, b, write, quad, o);
      }
    });
  }
}

}  // namespace headwise::HW_CUDA_NAMESPACE

#endif  // HEADWISE_KERNELS_MUON_STEP_CUDA_APPLY_CUH_
