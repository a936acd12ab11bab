// Blocks of up to 128 rows on tensor cores: O = (Q s) X, a thread block a chunk of 256 columns, 64 at a
// time; then decay and the write, or, before a restart, O is the next X. The first time, X is made
// from gradient and momentum, and the new momentum is stored.
//
// A warp has 16 rows and all columns of O, or, of up to 64 rows, half of them. X lies in shared memory
// by columns, and O, by rows, takes its place. Shared memory, and registers on sm_90a (CUDA 13.0): 36.0
// KiB, 64 for up to 64 rows; 102.0 KiB, 126 for up to 128.
#ifndef HEADWISE_KERNELS_MUON_STEP_CUDA_TENSOR_APPLY_CUH_
#define HEADWISE_KERNELS_MUON_STEP_CUDA_TENSOR_APPLY_CUH_

#include <cstdint>

#include "kernels/emulation/cuda_kernel.h"
#include "kernels/muon_step/cuda/elements.cuh"
#include "kernels/muon_step/cuda/stage.cuh"
#include "kernels/muon_step/cuda/tensor.cuh"

namespace headwise::HW_CUDA_NAMESPACE {

inline constexpr int kTensorApplyThreads = 256;
template <int kRows>
inline constexpr int kTensorApplyBytes = (Planes<kRows, kRows>::kHalves +
                                          Planes<kStage, kRows>::kHalves) *
                                         static_cast<int>(sizeof(unsigned short));

// Unit: a block and a chunk.
template <typename G, int kRows>
__global__ void __launch_bounds__(kTensorApplyThreads, kRows == 64 ? 4 : 2)
    MuonTensorApply(const StepArguments a, ApplyWay way) {
  using Matrix = Planes<kRows, kRows>;
  using Columns = Planes<kStage, kRows>;
  static_assert(kRows * kRowStride * sizeof(float) <= Columns::kHalves * sizeof(unsigned short));
  constexpr int kWarps = kTensorApplyThreads / 32, kStrips = kRows / kTensorTile;
  constexpr int kColumnsEach = kStage * kStrips / kWarps;  // of a warp
  HW_DYNAMIC_SHARED(unsigned short, halves, 0);
  HW_DYNAMIC_SHARED(float, out, Matrix::kHalves * sizeof(unsigned short));
  if (Skips(a)) return;
  const Unit unit = ThisUnit(a);
  const BlockEntry b = LoadBlock(a, unit.block);
  const Matrix q(halves, 0);
  const Columns x(halves, Matrix::kHalves);
  const int thread = static_cast<int>(threadIdx.x), depth = kTensorTile * Strips(b.d);
  const int row = thread / 32 % kStrips * kTensorTile;
  const int column = thread / 32 / kStrips * kColumnsEach;

  for (int at = thread; at < depth * depth / 4; at += kTensorApplyThreads) {
    const int i = at / (depth / 4), j = at % (depth / 4) * 4;
    uint4 words = {0u, 0u, 0u, 0u};
    if (i < b.d && j < b.d) {
      words = LoadCached(reinterpret_cast<const uint4*>(a.scratch + b.matrices +
                                                        std::int64_t{i} * b.matrix_stride + j));
    }
    q.SetWords(i, j, words);
  }
  const ScaleFactors scale = PowerFactors(HalfExponent(LoadCached(&a.states[unit.block].largest)));
  const float root = LoadCached(&a.states[unit.block].root);
  const float gradient_scale = GradientScale(a);
  const Write write = MakeWrite(a, b);
  const int end = min(b.n, (unit.first + 1) * kChunk);
  for (int c0 = unit.first * kChunk; c0 < end; c0 += kStage) {
    __syncthreads();
    for (int at = thread; at < kRows * kStage / 4; at += kTensorApplyThreads) {
      const Quad quad = QuadAt<kRows>(b, c0, end, at);
      if (quad.i >= depth) continue;
      float v[4];
      LoadQuad<G>(a, b, way.from_scratch, gradient_scale, quad, /*stores=*/true, v);
      Halves h[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) h[e] = Split(scale(v[e]));
      if (b.transposed != 0) {
        x.SetFour(quad.c - c0, quad.i, h);
      } else {
#pragma unroll
        for (int e = 0; e < 4; ++e) x.Set(quad.c - c0 + e, quad.i, h[e]);
      }
    }
    __syncthreads();
    SplitSums sums[kColumnsEach / 8];
#pragma unroll
    for (int t = 0; t < kColumnsEach / 8; ++t) sums[t].SetZero();
    if (row < depth) {
      for (int k = 0; k < depth; k += kTensorTile) {
        unsigned q_high[4], q_low[4];
        q.LoadA(row, k, q_high, q_low);
#pragma unroll
        for (int t = 0; t < kColumnsEach / 8; ++t) {
          unsigned x_high[2], x_low[2];
          x.LoadB(column + 8 * t, k, x_high, x_low);
          sums[t].Add(q_high, q_low, x_high, x_low);
        }
      }
    }
    __syncthreads();
#pragma unroll
    for (int t = 0; t < kColumnsEach / 8; ++t) {
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        const TileElement e = ElementOf(i);
        out.template Store<float2>(
            (row + e.row) * kRowStride + column + 8 * t + e.column,
            make_float2(__fmul_rn(sums[t].Get(i), root), __fmul_rn(sums[t].Get(i + 1), root)));
      }
    }
    __syncthreads();
    ForEachQuad<kRows, kTensorApplyThreads>(b, 0, c0, end, [&](const Quad& quad) {
      float o[4];
      TakeByRows(b, quad, 0, c0, out, o);
      if (way.to_scratch) {
        StoreX(a, b, 0, quad, o);
      } else {
        UpdateWeight(a, b, write, quad, o);
      }
    });
  }
}

}  // namespace headwise::HW_CUDA_NAMESPACE

#endif  // HEADWISE_KERNELS_MUON_STEP_CUDA_TENSOR_APPLY_CUH_
