// Blocks of up to 128 rows: chunk partials of the Gram matrix of X, a thread block a chunk.
//
// A thread has one tile of kEdge x kEdge elements on or below the diagonal: 136 tiles for
// kEdge = 4, up to 64 rows, and for kEdge = 8, up to 128. Shared memory: 17.0 KiB and 33.0 KiB.
// Registers on sm_90a (CUDA 13.0): 48 and up to 118.
#ifndef HEADWISE_KERNELS_MUON_STEP_CUDA_GRAM_CUH_
#define HEADWISE_KERNELS_MUON_STEP_CUDA_GRAM_CUH_

#include <cstdint>

#include "kernels/emulation/cuda_kernel.h"
#include "kernels/muon_step/cuda/elements.cuh"
#include "kernels/muon_step/cuda/stage.cuh"

namespace headwise::HW_CUDA_NAMESPACE {

inline constexpr int kLowerThreads = 160;  // the 136 tiles, in whole warps
template <int kEdge>
inline constexpr int kSide = 16 * kEdge;
// Floats from one column to the next of X staged by columns.
template <int kEdge>
inline constexpr int kColumnStride = kSide<kEdge> + 4;
template <int kEdge>
inline constexpr int kGramStageFloats = kStage* kColumnStride<kEdge>;

// A thread's tile: elements (i, j) to (i + kEdge - 1, j + kEdge - 1).
struct LowerTile {
  int i, j;
  bool active;  // it has rows of the block
  int count;    // of active tiles
};

template <int kEdge>
__device__ __forceinline__ LowerTile MakeLowerTile(int d) {
  const int side = (d + kEdge - 1) / kEdge, thread = static_cast<int>(threadIdx.x);
  int row = 0;
  while ((row + 1) * (row + 2) / 2 <= thread) ++row;
  return {kEdge * row, kEdge * (thread - row * (row + 1) / 2), row < side, side * (side + 1) / 2};
}

// Element `el` = kEdge r + s of the thread's tile, in the partial of a chunk.
template <int kEdge>
__device__ __forceinline__ float* Partial(const StepArguments& a, const BlockEntry& b,
                                          const LowerTile& tile, int chunk, int el) {
  const std::int64_t pitch = (tile.count + 7) / 8 * 8;
  return a.scratch + b.partials + (std::int64_t{chunk} * (kEdge * kEdge) + el) * pitch +
         threadIdx.x;
}
template <int kEdge>
__device__ __forceinline__ std::int64_t PartialStride(const LowerTile& tile) {
  return std::int64_t{kEdge * kEdge} * ((tile.count + 7) / 8 * 8);
}

// Stores the partial of a chunk; returns the largest |u| that this thread loaded, as bits. `stage`
// has kGramStageFloats, 0 where a column is beyond d. Every thread of the block must call it.
template <typename G, int kEdge>
__device__ __forceinline__ unsigned GramOfChunk(const StepArguments& a, const BlockEntry& b,
                                                const LowerTile& tile, int chunk, bool from_scratch,
                                                const ScaleFactors& scale,
                                                const SharedArray<float>& stage) {
  const float gradient_scale = GradientScale(a);
  const int end = min(b.n, (chunk + 1) * kChunk);
  unsigned largest = 0;
  float sums[kEdge][kEdge];
  SetZero(sums);
  for (int c0 = chunk * kChunk; c0 < end; c0 += kStage) {
    __syncthreads();
    ForEachQuad<kSide<kEdge>, kLowerThreads>(b, 0, c0, end, [&](const Quad& quad) {
      float x[4];
      if (from_scratch) {
        LoadX(a, b, 0, quad, x);
      } else {
        LoadUpdate<G>(a, b, gradient_scale, quad, /*stores=*/false, x);
        largest = max(largest, Magnitude(x));
#pragma unroll
        for (int e = 0; e < 4; ++e) x[e] = scale(x[e]);
      }
      const int at = (quad.c - c0) * kColumnStride<kEdge> + quad.i;
      if (b.transposed != 0) {
        stage.template Store<float4>(at, make_float4(x[0], x[1], x[2], x[3]));
      } else {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          if (e < quad.count) stage[at + e * kColumnStride<kEdge>] = x[e];
        }
      }
    });
    __syncthreads();
    if (!tile.active) continue;
    const int columns = min(kStage, end - c0);
    for (int c = 0; c < columns; ++c) {
      float x[kEdge], y[kEdge];
      LoadRow(stage, c * kColumnStride<kEdge> + tile.i, x);
      LoadRow(stage, c * kColumnStride<kEdge> + tile.j, y);
      Accumulate(x, y, sums);
    }
  }
  if (tile.active) {
#pragma unroll
    for (int el = 0; el < kEdge * kEdge; ++el) {
      StoreGlobal(Partial<kEdge>(a, b, tile, chunk, el), sums[el / kEdge][el % kEdge]);
    }
  }
  return largest;
}

// Unit: a block and a chunk. From gradient and momentum, or from X in the scratch.
template <typename G, int kEdge>
__global__ void __launch_bounds__(kLowerThreads)
    MuonGram(const StepArguments a, bool from_scratch) {
  HW_SHARED(float, stage, kGramStageFloats<kEdge>);
  if (Skips(a)) return;
  const Unit unit = ThisUnit(a);
  const BlockEntry b = LoadBlock(a, unit.block);
  ClearShared<kLowerThreads>(stage, kGramStageFloats<kEdge>);
  const unsigned largest = GramOfChunk<G, kEdge>(a, b, MakeLowerTile<kEdge>(b.d), unit.first,
                                                 from_scratch, ScaleFactors(), stage);
  if (!from_scratch) KeepLargest(largest, a.states + unit.block);
}

}  // namespace headwise::HW_CUDA_NAMESPACE

#endif  // HEADWISE_KERNELS_MUON_STEP_CUDA_GRAM_CUH_
