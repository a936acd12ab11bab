// Blocks of more than 128 rows: X and the d x d matrices lie in the scratch, and each product is a
// launch of its own, a thread block a tile of 64 x 64, of symmetric products those on or below the
// diagonal. A thread has 4 x 4 elements. Shared memory: 34.0 KiB, the momentum's kernel none. Registers
// on sm_90a (CUDA 13.0): up to 104.
//
// The matrices are [side, side], side = d rounded up to 64; what lies beyond d is never used.
#ifndef HEADWISE_KERNELS_MUON_STEP_CUDA_TILED_CUH_
#define HEADWISE_KERNELS_MUON_STEP_CUDA_TILED_CUH_

#include <cstdint>

#include "kernels/emulation/cuda_kernel.h"
#include "kernels/muon_step/cuda/elements.cuh"
#include "kernels/muon_step/cuda/stage.cuh"
#include "kernels/muon_step/cuda/trees.cuh"

namespace headwise::HW_CUDA_NAMESPACE {

inline constexpr int kTiledThreads = 256;
// Floats from one row to the next of a staged tile.
inline constexpr int kTileStride = kTileSide + 4;
inline constexpr int kTileFloats = kTileSide * kTileStride;
static_assert(kTileSide == kStage && kTileStride == kRowStride);

__device__ __forceinline__ float* Matrix(const StepArguments& a, const BlockEntry& b, int which) {
  const std::int64_t side = b.matrix_stride;
  return a.scratch + b.matrices + which * side * side;
}

// Rows [k0, k0 + 64) and columns [i0, i0 + 64) of a matrix, times s.
__device__ __forceinline__ void StageMatrix(const float* matrix, int side, int k0, int i0, float s,
                                            const SharedArray<float>& stage) {
  for (int at = static_cast<int>(threadIdx.x); at < kTileSide * kTileSide / 4;
       at += kTiledThreads) {
    const int row = at / (kTileSide / 4), column = at % (kTileSide / 4) * 4;
    float v[4];
    LoadFour(matrix + std::int64_t{k0 + row} * side + i0 + column, v);
    stage.template Store<float4>(row * kTileStride + column,
                                 make_float4(__fmul_rn(v[0], s), __fmul_rn(v[1], s),
                                             __fmul_rn(v[2], s), __fmul_rn(v[3], s)));
  }
}

// sums += left[k][i + r] right[k][j + s] for k < depth.
__device__ __forceinline__ void AccumulateTile(const SharedArray<float>& left,
                                               const SharedArray<float>& right, int i, int j,
                                               int depth, float (&sums)[4][4]) {
  for (int k = 0; k < depth; ++k) {
    float x[4], y[4];
    LoadRow(left, k * kTileStride + i, x);
    LoadRow(right, k * kTileStride + j, y);
    Accumulate(x, y, sums);
  }
}

// Element (i, j) and its mirror image.
__device__ __forceinline__ void SetBoth(float* matrix, int side, int i, int j, float value) {
  StoreGlobal(matrix + std::int64_t{i} * side + j, value);
  StoreGlobal(matrix + std::int64_t{j} * side + i, value);
}

// Unit: a block, 64 rows of X, a chunk. The momentum, and u as X[0].
template <typename G>
__global__ void __launch_bounds__(kTiledThreads, 2) MuonTiledMomentum(const StepArguments a) {
  if (Skips(a)) return;
  const Unit unit = ThisUnit(a);
  const BlockEntry b = LoadBlock(a, unit.block);
  const float gradient_scale = GradientScale(a);
  const int end = min(b.n, (unit.second + 1) * kChunk);
  unsigned largest = 0;
  for (int c0 = unit.second * kChunk; c0 < end; c0 += kStage) {
    ForEachQuad<kTileSide, kTiledThreads>(
        b, unit.first * kTileSide, c0, end, [&](const Quad& quad) {
          float u[4];
          LoadUpdate<G>(a, b, gradient_scale, quad, /*stores=*/true, u);
          StoreX(a, b, 0, quad, u);
          largest = max(largest, Magnitude(u));
        });
  }
  KeepLargest(largest, a.states + unit.block);
}

// Columns [c0, end) of rows [i0, i0 + 64) of X, by columns.
__device__ __forceinline__ void StageByColumns(const StepArguments& a, const BlockEntry& b,
                                               int which, int i0, int c0, int end,
                                               const ScaleFactors& scale,
                                               const SharedArray<float>& stage) {
  ForEachQuad<kTileSide, kTiledThreads>(b, i0, c0, end, [&](const Quad& quad) {
    float x[4];
    LoadX(a, b, which, quad, x);
    const int at = (quad.c - c0) * kTileStride + quad.i - i0;
    const int step = b.transposed != 0 ? 1 : kTileStride;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if (e < quad.count) stage[at + e * step] = scale(x[e]);
    }
  });
}

// Unit: a block, a tile's row and column. The Gram matrix of X[which] into the matrix `out`. The
// tree over chunks keeps one partial sum a level in the scratch, each thread its own.
__global__ void __launch_bounds__(kTiledThreads, 2)
    MuonTiledGram(const StepArguments a, int which, int out, bool scales) {
  HW_SHARED(float, left, kTileFloats);
  HW_SHARED(float, right, kTileFloats);
  if (Skips(a)) return;
  const Unit unit = ThisUnit(a);
  const BlockEntry b = LoadBlock(a, unit.block);
  const int thread = static_cast<int>(threadIdx.x), side = b.matrix_stride;
  const int i = thread / 16 * 4, j = thread % 16 * 4;
  ScaleFactors scale;
  if (scales) scale = FactorsFor(LoadCached(&a.states[unit.block].largest));
  ClearShared<kTiledThreads>(left, kTileFloats);
  ClearShared<kTiledThreads>(right, kTileFloats);

  const std::int64_t tiles_per_side = side / kTileSide;
  const std::int64_t level_floats =
      tiles_per_side * (tiles_per_side + 1) / 2 * (kTileSide * kTileSide);
  const std::int64_t tile = std::int64_t{unit.first} * (unit.first + 1) / 2 + unit.second;
  float* const levels = a.scratch + b.partials + tile * (kTileSide * kTileSide) + thread;
  const int chunks = (b.n + kChunk - 1) / kChunk, padded = PaddedCount(chunks);
  float sums[4][4];
  for (int chunk = 0; chunk < padded; ++chunk) {
    SetZero(sums);
    const int end = min(b.n, (chunk + 1) * kChunk);
    for (int c0 = chunk * kChunk; c0 < end; c0 += kStage) {
      __syncthreads();
      StageByColumns(a, b, which, unit.first * kTileSide, c0, end, scale, left);
      StageByColumns(a, b, which, unit.second * kTileSide, c0, end, scale, right);
      __syncthreads();
      AccumulateTile(left, right, i, j, min(kStage, end - c0), sums);
    }
    // Carries of a binary counter: what has been summed before comes first.
    float* level = levels;
    for (int bits = chunk; (bits & 1) != 0; bits >>= 1, level += level_floats) {
#pragma unroll
      for (int el = 0; el < 16; ++el) {
        float& sum = sums[el / 4][el % 4];
        sum = __fadd_rn(LoadGlobal(level + el * kTiledThreads), sum);
      }
    }
    if (chunk + 1 == padded) break;  // the sums are those of all
#pragma unroll
    for (int el = 0; el < 16; ++el) {
      StoreGlobal(level + el * kTiledThreads, sums[el / 4][el % 4]);
    }
  }
  float* const gram = Matrix(a, b, out);
#pragma unroll
  for (int el = 0; el < 16; ++el) {
    const int row = unit.first * kTileSide + i + el / 4;
    const int column = unit.second * kTileSide + j + el % 4;
    if (row < b.d && column <= row) SetBoth(gram, side, row, column, sums[el / 4][el % 4]);
  }
}

// Unit: a block and 64 rows. R = G / t, G in Z's place; and s.
__global__ void __launch_bounds__(kTiledThreads, 2) MuonTiledNormalize(const StepArguments a) {
  HW_SHARED(float, subtrees, kTiledThreads);
  if (Skips(a)) return;
  const Unit unit = ThisUnit(a);
  const BlockEntry b = LoadBlock(a, unit.block);
  const int thread = static_cast<int>(threadIdx.x), side = b.matrix_stride;
  const float* const gram = Matrix(a, b, muon_step::kZ);
  float* const r = Matrix(a, b, muon_step::kR);
  const bool zero = LoadCached(&a.states[unit.block].largest) == 0;

  // Each thread sums a complete subtree of the diagonal.
  const int padded = PaddedCount(b.d), roots = min(padded, kTiledThreads), leaves = padded / roots;
  if (thread < roots) {
    const int begin = thread * leaves;
    const std::int64_t stride = std::int64_t{side} + 1;
    subtrees[thread] =
        SumLeaves(gram + begin * stride, stride, max(0, min(leaves, b.d - begin)), leaves);
  }
  const float trace = SumShared(subtrees, roots);
  const int first = unit.first * kTileSide;
  for (int row = first; row < min(first + kTileSide, b.d); ++row) {
    for (int column = thread; column < b.d; column += kTiledThreads) {
      const std::int64_t at = std::int64_t{row} * side + column;
      float value = 0.0f;
      if (!zero) value = __fdiv_rn(LoadGlobal(gram + at), trace);
      StoreGlobal(r + at, value);
    }
  }
  if (first == 0 && thread == 0) {
    float root = 0.0f;
    if (!zero) root = __double2float_rn(__ddiv_rn(1.0, __dsqrt_rn(static_cast<double>(trace))));
    StoreGlobal(&a.states[unit.block].root, root);
  }
}

// Unit: a block, a tile's row and column; blockIdx.y chooses the product. Neither writes what one of
// them reads.
__global__ void __launch_bounds__(kTiledThreads, 2)
    MuonTiledProduct(const StepArguments a, const TiledProduct first, const TiledProduct second) {
  HW_SHARED(float, left, kTileFloats);
  HW_SHARED(float, right, kTileFloats);
  if (Skips(a)) return;
  const Unit unit = ThisUnit(a);
  const BlockEntry b = LoadBlock(a, unit.block);
  const TiledProduct p = blockIdx.y == 0 ? first : second;
  const int thread = static_cast<int>(threadIdx.x), side = b.matrix_stride;
  const int i = thread / 16 * 4, j = thread % 16 * 4;
  float sums[4][4];
  SetZero(sums);
  for (int k0 = 0; k0 < b.d; k0 += kTileSide) {
    __syncthreads();
    StageMatrix(Matrix(a, b, p.left), side, k0, unit.first * kTileSide, 1.0f, left);
    StageMatrix(Matrix(a, b, p.right), side, k0, unit.second * kTileSide, 1.0f, right);
    __syncthreads();
    AccumulateTile(left, right, i, j, min(kTileSide, b.d - k0), sums);
  }
  const float* const addend = Matrix(a, b, p.addend);
#pragma unroll
  for (int el = 0; el < 16; ++el) {
    const int row = unit.first * kTileSide + i + el / 4;
    const int column = unit.second * kTileSide + j + el % 4;
    if (row >= b.d || column > row) continue;
    const float other = LoadGlobal(addend + std::int64_t{row} * side + column);
    const float sum = sums[el / 4][el % 4];
    const float value = p.of_square ? __fmaf_rn(p.factor, sum, __fmul_rn(p.shift, other))
                                    : __fmaf_rn(p.factor, other, sum);
    SetBoth(Matrix(a, b, p.out), side, row, column, value);
    if (p.copy >= 0) {
      SetBoth(Matrix(a, b, p.copy), side, row, column,
              row == column ? __fadd_rn(value, p.a) : value);
    }
  }
}

// Unit: a block, 64 rows and 64 columns of X.
__global__ void __launch_bounds__(kTiledThreads, 2)
    MuonTiledApply(const StepArguments a, const TiledApplyWay way) {
  HW_SHARED(float, qs, kTileFloats);
  HW_SHARED(float, stage, kTileFloats);
  if (Skips(a)) return;
  const Unit unit = ThisUnit(a);
  const BlockEntry b = LoadBlock(a, unit.block);
  const int thread = static_cast<int>(threadIdx.x);
  const int i = thread / 16 * 4, c = thread % 16 * 4;
  const int i0 = unit.first * kTileSide, c0 = unit.second * kStage;
  const int end = min(b.n, c0 + kStage);
  ScaleFactors scale;
  float s = 1.0f;
  if (way.first) {
    scale = FactorsFor(LoadCached(&a.states[unit.block].largest));
    s = LoadCached(&a.states[unit.block].root);
  }
  ClearShared<kTiledThreads>(stage, kTileFloats);
  float sums[4][4];
  SetZero(sums);
  for (int k0 = 0; k0 < b.d; k0 += kTileSide) {
    __syncthreads();
    StageMatrix(Matrix(a, b, way.q), b.matrix_stride, k0, i0, s, qs);
    ForEachQuad<kTileSide, kTiledThreads>(b, k0, c0, end, [&](const Quad& quad) {
      float x[4];
      LoadX(a, b, way.from, quad, x);
#pragma unroll
      for (int e = 0; e < 4; ++e) x[e] = scale(x[e]);
      StageByRows(b, quad, k0, c0, x, stage);
    });
    __syncthreads();
    AccumulateTile(qs, stage, i, c, min(kTileSide, b.d - k0), sums);
  }
  __syncthreads();
  StoreSums(stage, i, c, sums);
  __syncthreads();
  const Write write = MakeWrite(a, b);
  ForEachQuad<kTileSide, kTiledThreads>(b, i0, c0, end, [&](const Quad& quad) {
    float o[4];
    TakeByRows(b, quad, i0, c0, stage, o);
    if (way.to_scratch) {
      StoreX(a, b, 1 - way.from, quad, o);
    } else {
      UpdateWeight(a, b, write, quad, o);
    }
  });
}

}  // namespace headwise::HW_CUDA_NAMESPACE

#endif  // HEADWISE_KERNELS_MUON_STEP_CUDA_TILED_CUH_
