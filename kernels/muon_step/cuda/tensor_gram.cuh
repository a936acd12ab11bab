// Blocks of up to 128 rows on tensor cores: chunk partials of the Gram matrix of X, a thread block a
// chunk of 256 columns, 64 at a time.
//
// X is scaled by the power of two of the largest magnitude so far in the chunk; where that grows, so
// do the sums before it shrink. The partial is left scaled, with that magnitude beside it: no
// magnitude of a float overflows on the way. Shared memory, and registers on sm_90a (CUDA 13.0): 18.0
// KiB, 96 for up to 64 rows; 36.0 KiB, 168 for up to 128.
#ifndef HEADWISE_KERNELS_MUON_STEP_CUDA_TENSOR_GRAM_CUH_
#define HEADWISE_KERNELS_MUON_STEP_CUDA_TENSOR_GRAM_CUH_

#include <cstdint>

#include "kernels/emulation/cuda_kernel.h"
#include "kernels/muon_step/cuda/elements.cuh"
#include "kernels/muon_step/cuda/tensor.cuh"

namespace headwise::HW_CUDA_NAMESPACE {

// Unit: a block and a chunk. From gradient and momentum, or from X in the scratch.
template <typename G, int kRows>
__global__ void __launch_bounds__(kTensorThreads<kRows>, kRows == 64 ? 4 : 1)
    MuonTensorGram(const StepArguments a, bool from_scratch) {
  using Stage = Planes<kRows, kStage>;
  constexpr int kThreads = kTensorThreads<kRows>, kTiles = kTensorTiles<kRows>;
  constexpr int kQuads = kRows * kStage / 4, kQuadsEach = (kQuads + kThreads - 1) / kThreads;
  HW_SHARED(unsigned short, halves, Stage::kHalves);
  HW_SHARED(unsigned, chunk_largest, 1);
  if (Skips(a)) return;
  const Unit unit = ThisUnit(a);
  const BlockEntry b = LoadBlock(a, unit.block);
  const Stage stage(halves, 0);
  const int thread = static_cast<int>(threadIdx.x), rows = kTensorTile * Strips(b.d);
  if (thread == 0) chunk_largest[0] = 0u;
  __syncthreads();

  const float gradient_scale = GradientScale(a);
  const int end = min(b.n, (unit.first + 1) * kChunk);
  unsigned scaled_for = 0;
  SplitSums sums[kTiles][2];
#pragma unroll
  for (int t = 0; t < kTiles; ++t) sums[t][0].SetZero(), sums[t][1].SetZero();
  for (int c0 = unit.first * kChunk; c0 < end; c0 += kStage) {
    float x[kQuadsEach][4];
    unsigned magnitude = 0;
#pragma unroll
    for (int i = 0; i < kQuadsEach; ++i) {
      LoadQuad<G>(a, b, from_scratch, gradient_scale,
                  QuadAt<kRows>(b, c0, end, thread + i * kThreads), /*stores=*/false, x[i]);
      magnitude = max(magnitude, Magnitude(x[i]));
    }
    JoinLargest(magnitude, &chunk_largest[0]);
    __syncthreads();  // and everybody has multiplied what was staged before
    const unsigned largest = chunk_largest[0];
    const int exponent = HalfExponent(largest);
    if (scaled_for != 0 && scaled_for != largest) {
      const ScaleFactors factors = PowerFactors(2 * (exponent - HalfExponent(scaled_for)));
#pragma unroll
      for (int t = 0; t < kTiles; ++t) sums[t][0].Scale(factors), sums[t][1].Scale(factors);
    }
    scaled_for = largest;
    const ScaleFactors scale = PowerFactors(exponent);
#pragma unroll
    for (int i = 0; i < kQuadsEach; ++i) {
      const Quad quad = QuadAt<kRows>(b, c0, end, thread + i * kThreads);
      if (quad.i >= rows) continue;
      Halves v[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) v[e] = Split(scale(x[i][e]));
      if (b.transposed == 0) {
        stage.SetFour(quad.i, quad.c - c0, v);
      } else {
#pragma unroll
        for (int e = 0; e < 4; ++e) stage.Set(quad.i + e, quad.c - c0, v[e]);
      }
    }
    __syncthreads();
    const int depth = (min(kStage, end - c0) + kTensorTile - 1) / kTensorTile * kTensorTile;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      const SymmetricTile tile = MakeTile<kRows>(b.d, t);
      if (tile.active) AddProduct(stage, stage, tile, depth, sums[t]);
    }
  }
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
    if (!MakeTile<kRows>(b.d, t).active) continue;
    float* const partial = TensorPartial(a, b, unit.first, TileNumber<kRows>(t));
#pragma unroll
    for (int el = 0; el < kTileElements; ++el) {
      StoreGlobal(partial + 32 * el, sums[t][el / 4].Get(el % 4));
    }
  }
  if (thread == 0) StoreGlobal(ChunkLargest(a, b, unit.first), scaled_for);
}

}  // namespace headwise::HW_CUDA_NAMESPACE

#endif  // HEADWISE_KERNELS_MUON_STEP_CUDA_TENSOR_GRAM_CUH_
