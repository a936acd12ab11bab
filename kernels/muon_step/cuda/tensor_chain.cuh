// Blocks of up to 128 rows on tensor cores: the Newton-Schulz chain, a thread block a block.
//
//   Z = c R R + b R;  Q = Z + a I, later Q = a Q + Z Q;  W = a R + Z R, and R = a W + W Z
//
// R, Q and W are in fp32 registers, each thread's elements of its tiles; shared memory has the two
// matrices of the next product as pairs of halves, each scaled by the power of two of its largest
// element. Q leaves as such pairs, in words of a high and a low half. Shared memory, and registers on
// sm_90a (CUDA 13.0): 36.3 KiB, 127 for up to 64 rows; 136.5 KiB, 167 for up to 128.
#ifndef HEADWISE_KERNELS_MUON_STEP_CUDA_TENSOR_CHAIN_CUH_
#define HEADWISE_KERNELS_MUON_STEP_CUDA_TENSOR_CHAIN_CUH_

#include <cstdint>

#include "kernels/emulation/cuda_kernel.h"
#include "kernels/muon_step/cuda/elements.cuh"
#include "kernels/muon_step/cuda/tensor.cuh"
#include "kernels/muon_step/cuda/trees.cuh"

namespace headwise::HW_CUDA_NAMESPACE {

// The thread's elements of a symmetric matrix; those above the diagonal are not used.
template <int kRows>
using TileValues = float[kTensorTiles<kRows>][kTileElements];

// Calls f(value, row, column) for the elements of the thread's tiles on or below the diagonal.
template <int kRows, typename F>
__device__ __forceinline__ void ForEachLower(int d, TileValues<kRows>& values, const F& f) {
#pragma unroll
  for (int t = 0; t < kTensorTiles<kRows>; ++t) {
    const SymmetricTile tile = MakeTile<kRows>(d, t);
    if (!tile.active) continue;
#pragma unroll
    for (int el = 0; el < kTileElements; ++el) {
      const TileElement e = ElementOf(el);
      const int row = tile.row + e.row, column = tile.column + e.column;
      if (column <= row) f(values[t][el], row, column);
    }
  }
}

// A matrix in shared memory, and what it was multiplied by.
template <int kRows>
class ScaledMatrix {
 public:
  using Halves2 = Planes<kRows, kRows>;

  __device__ __forceinline__ ScaledMatrix(const SharedArray<unsigned short>& halves, int begin)
      : planes_(halves, begin) {}

  // All threads, before anybody reads it and after everybody has read what was there: begins and
  // ends with a barrier. `largest` has two numbers, of which *turn is 0, and is then the other.
  __device__ __forceinline__ void Set(int d, TileValues<kRows>& values,
                                      const SharedArray<unsigned>& largest, int* turn) {
    unsigned magnitude = 0;
    ForEachLower<kRows>(d, values, [&](float v, int, int) {
      magnitude = max(magnitude, __float_as_uint(v) & 0x7fffffffu);
    });
    JoinLargest(magnitude, &largest[*turn]);
    __syncthreads();
    exponent_ = HalfExponent(largest[*turn]);
    *turn = 1 - *turn;
    if (threadIdx.x == 0) largest[*turn] = 0u;
    const ScaleFactors scale = PowerFactors(exponent_);
#pragma unroll
    for (int t = 0; t < kTensorTiles<kRows>; ++t) {
      const SymmetricTile tile = MakeTile<kRows>(d, t);
      if (!tile.active) continue;
      const bool below = tile.column < tile.row;
#pragma unroll
      for (int el = 0; el < kTileElements; el += 2) {
        const TileElement e = ElementOf(el);
        const int row = tile.row + e.row, column = tile.column + e.column;
        const Halves v = Split(scale(values[t][el])), w = Split(scale(values[t][el + 1]));
        if (below) {
          planes_.SetTwo(row, column, v, w);
        } else {
          if (column <= row) planes_.Set(row, column, v);
          if (column + 1 <= row) planes_.Set(row, column + 1, w);
        }
        if (below || column < row) planes_.Set(column, row, v);
        if (below || column + 1 < row) planes_.Set(column + 1, row, w);
      }
    }
    __syncthreads();
  }

  // this times `other`, both symmetric.
  __device__ __forceinline__ void Multiply(const ScaledMatrix& other, int d,
                                           TileValues<kRows>& product) const {
    const ScaleFactors unscale = PowerFactors(-(exponent_ + other.exponent_));
#pragma unroll
    for (int t = 0; t < kTensorTiles<kRows>; ++t) {
      const SymmetricTile tile = MakeTile<kRows>(d, t);
      SplitSums sums[2];
      sums[0].SetZero(), sums[1].SetZero();
      if (tile.active) {
        AddProduct(planes_, other.planes_, tile, kTensorTile * Strips(d), sums);
      }
#pragma unroll
      for (int el = 0; el < kTileElements; ++el) {
        product[t][el] = unscale(sums[el / 4].Get(el % 4));
      }
    }
  }

  // Elements (i, j) to (i, j + 3), each a word.
  __device__ __forceinline__ uint4 Words(int i, int j) const { return planes_.Words(i, j); }
  __device__ __forceinline__ int exponent() const { return exponent_; }

 private:
  Halves2 planes_;
  int exponent_ = 0;
};

template <int kRows>
inline constexpr int kTensorChainBytes =
    2 * Planes<kRows, kRows>::kHalves* static_cast<int>(sizeof(unsigned short));

// m = a m + sums
template <int kRows>
__device__ __forceinline__ void AddScaledTiles(float a, const TileValues<kRows>& sums,
                                               TileValues<kRows>& m) {
#pragma unroll
  for (int t = 0; t < kTensorTiles<kRows>; ++t) {
#pragma unroll
    for (int el = 0; el < kTileElements; ++el) m[t][el] = __fmaf_rn(a, m[t][el], sums[t][el]);
  }
}

// The Gram matrix, of X times 2^HalfExponent(largest): the chunks' partials in order.
template <int kRows>
__device__ __forceinline__ void SumTensorPartials(const StepArguments& a, const BlockEntry& b,
                                                  int exponent, TileValues<kRows>& r) {
#pragma unroll
  for (int t = 0; t < kTensorTiles<kRows>; ++t) {
#pragma unroll
    for (int el = 0; el < kTileElements; ++el) r[t][el] = 0.0f;
  }
  const int chunks = (b.n + kChunk - 1) / kChunk;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const unsigned largest = LoadGlobal(ChunkLargest(a, b, chunk));
    // Far below the others, a chunk is nothing beside them.
    const int power = largest == 0 ? -127 : 2 * (exponent - HalfExponent(largest));
    if (power < -126) continue;
    const float factor = PowerOfTwo(power);
#pragma unroll
    for (int t = 0; t < kTensorTiles<kRows>; ++t) {
      if (!MakeTile<kRows>(b.d, t).active) continue;
      const float* const partial = TensorPartial(a, b, chunk, TileNumber<kRows>(t));
#pragma unroll
      for (int el = 0; el < kTileElements; ++el) {
        r[t][el] = __fmaf_rn(LoadStreaming(partial + 32 * el), factor, r[t][el]);
      }
    }
  }
}

// Unit: a block. The steps [begin, end) from one restart to the next.
template <typename G, int kRows>
__global__ void __launch_bounds__(kTensorThreads<kRows>, kRows == 64 ? 2 : 1)
    MuonTensorChain(const StepArguments a, MuonStepPlan::Segment steps) {
  HW_DYNAMIC_SHARED(unsigned short, halves, 0);
  HW_SHARED(float, diagonal, kRows);
  HW_SHARED(unsigned, largest, 2);
  if (Skips(a)) return;
  const Unit unit = ThisUnit(a);
  const BlockEntry b = LoadBlock(a, unit.block);
  const int thread = static_cast<int>(threadIdx.x), d = b.d;
  if (thread < 2) largest[thread] = 0u;
  if (thread < kRows) diagonal[thread] = 0.0f;
  __syncthreads();

  unsigned block_largest = 0;
  for (int chunk = 0; chunk * kChunk < b.n; ++chunk) {
    block_largest = max(block_largest, LoadGlobal(ChunkLargest(a, b, chunk)));
  }
  const int exponent = HalfExponent(block_largest);
  TileValues<kRows> r, q, product;
  SumTensorPartials<kRows>(a, b, exponent, r);
  float root = 0.0f;  // what Q times the scaled X is multiplied by
  if (steps.begin > 0) {
    const ScaleFactors unscale = PowerFactors(-2 * exponent);
    ForEachLower<kRows>(d, r, [&](float& v, int, int) { v = unscale(v); });
    root = PowerFactors(-exponent)(1.0f);
  } else if (block_largest != 0) {
    ForEachLower<kRows>(d, r, [&](float v, int row, int column) {
      if (row == column) diagonal[row] = v;
    });
    const float trace = SumShared(diagonal, kRows);
    ForEachLower<kRows>(d, r, [&](float& v, int, int) { v = __fdiv_rn(v, trace); });
    root = __double2float_rn(__ddiv_rn(1.0, __dsqrt_rn(static_cast<double>(trace))));
  }

  ScaledMatrix<kRows> left(halves, 0), right(halves, Planes<kRows, kRows>::kHalves);
  int turn = 0;
  left.Set(d, r, largest, &turn);
  for (int n = steps.begin; n < steps.end; ++n) {
    const float step_a = LoadCached(&a.steps[n].a), step_b = LoadCached(&a.steps[n].b),
                step_c = LoadCached(&a.steps[n].c);
    left.Multiply(left, d, product);  // R R
#pragma unroll
    for (int t = 0; t < kTensorTiles<kRows>; ++t) {
#pragma unroll
      for (int el = 0; el < kTileElements; ++el) {
        product[t][el] = __fmaf_rn(step_c, product[t][el], __fmul_rn(step_b, r[t][el]));
        if (n == steps.begin) q[t][el] = product[t][el];
      }
    }
    if (n == steps.begin) {
      ForEachLower<kRows>(d, q, [&](float& v, int row, int column) {
        if (row == column && row < d) v = __fadd_rn(v, step_a);
      });
    }
    const bool last = n + 1 == steps.end;
    if (last && n == steps.begin) break;
    right.Set(d, product, largest, &turn);  // Z
    if (!last) {
      right.Multiply(left, d, product);  // Z R
      AddScaledTiles<kRows>(step_a, product, r);
      left.Set(d, r, largest, &turn);    // W
      left.Multiply(right, d, product);  // W Z
      AddScaledTiles<kRows>(step_a, product, r);
    }
    if (n > steps.begin) {
      left.Set(d, q, largest, &turn);
      right.Multiply(left, d, product);  // Z Q
      AddScaledTiles<kRows>(step_a, product, q);
    }
    if (!last) left.Set(d, r, largest, &turn);
  }
  left.Set(d, q, largest, &turn);
  const int quads = b.matrix_stride / 4;
  for (int at = thread; at < d * quads; at += kTensorThreads<kRows>) {
    const int i = at / quads, j = 4 * (at % quads);
    StoreGlobal(
        reinterpret_cast<uint4*>(a.scratch + b.matrices + std::int64_t{i} * b.matrix_stride + j),
        left.Words(i, j));
  }
  if (thread == 0) {
    StoreGlobal(&a.states[unit.block].largest, block_largest);
    StoreGlobal(&a.states[unit.block].root, PowerFactors(-left.exponent())(root));
  }
}

}  // namespace headwise::HW_CUDA_NAMESPACE

#endif  // HEADWISE_KERNELS_MUON_STEP_CUDA_TENSOR_CHAIN_CUH_
