// Blocks of up to 128 rows: the Newton-Schulz chain, a thread block a head, its three matrices in
// shared memory; threads and tiles as in gram.cuh.
//
//   Z = fma(c, R R, b R);  Q = Z + a I, later Q = fma(a, Q, Z Q);  W = fma(a, R, Z R) takes R's
//   place, and R = fma(a, W, W Z) W's
//
// A product is complete in registers before what it read is overwritten. Shared memory, and registers
// on sm_90a (CUDA 13.0): squares of 64 rows 51.3 KiB, 91; of 128 rows 198.5 KiB, 141; packed triangles
// of 128 rows 97.3 KiB, 177.
#ifndef HEADWISE_KERNELS_MUON_STEP_CUDA_CHAIN_CUH_
#define HEADWISE_KERNELS_MUON_STEP_CUDA_CHAIN_CUH_

#include <cstdint>

#include "kernels/emulation/cuda_kernel.h"
#include "kernels/muon_step/cuda/elements.cuh"
#include "kernels/muon_step/cuda/gram.cuh"
#include "kernels/muon_step/cuda/stage.cuh"
#include "kernels/muon_step/cuda/trees.cuh"

namespace headwise::HW_CUDA_NAMESPACE {

// A symmetric matrix of up to kSide rows: all of it, so that a row is read in vectors.
template <int kEdge>
class Squares {
 public:
  static constexpr int kStride = kSide<kEdge> + 4;
  static constexpr int kFloats = kSide<kEdge> * kStride;

  __device__ __forceinline__ Squares(const SharedArray<float>& values, int begin)
      : values_(values), begin_(begin) {}

  __device__ __forceinline__ float Get(int i, int j) const {
    return values_[begin_ + i * kStride + j];
  }
  // Both (i, j) and (j, i).
  __device__ __forceinline__ void Set(int i, int j, float value) const {
    values_[begin_ + i * kStride + j] = value;
    values_[begin_ + j * kStride + i] = value;
  }
  // Elements (k, i) to (k, i + kEdge - 1).
  __device__ __forceinline__ void Load(int k, int i, float (&x)[kEdge]) const {
    LoadRow(values_, begin_ + k * kStride + i, x);
  }

 private:
  SharedArray<float> values_;
  int begin_;
};

// The same in half the memory: rows of the lower triangle, one after another.
template <int kEdge>
class Triangles {
 public:
  static constexpr int kFloats = kSide<kEdge> * (kSide<kEdge> + 1) / 2;

  __device__ __forceinline__ Triangles(const SharedArray<float>& values, int begin)
      : values_(values), begin_(begin) {}

  __device__ __forceinline__ float Get(int i, int j) const { return values_[Index(i, j)]; }
  __device__ __forceinline__ void Set(int i, int j, float value) const {
    values_[Index(i, j)] = value;
  }
  __device__ __forceinline__ void Load(int k, int i, float (&x)[kEdge]) const {
#pragma unroll
    for (int e = 0; e < kEdge; ++e) x[e] = Get(k, i + e);
  }

 private:
  __device__ __forceinline__ int Index(int i, int j) const {
    const int low = min(i, j), high = max(i, j);
    return begin_ + high * (high + 1) / 2 + low;
  }

  SharedArray<float> values_;
  int begin_;
};

// The thread's tile of A B.
template <typename Matrix, int kEdge>
__device__ __forceinline__ void Multiply(const Matrix& a, const Matrix& b, const LowerTile& tile,
                                         int d, float (&sums)[kEdge][kEdge]) {
  if (!tile.active) return;
  SetZero(sums);
  for (int k = 0; k < d; ++k) {
    float x[kEdge], y[kEdge];
    a.Load(k, tile.i, x);
    b.Load(k, tile.j, y);
    Accumulate(x, y, sums);
  }
}

// Calls f(i, j, r, s) for the elements of the thread's tile with j <= i.
template <int kEdge, typename F>
__device__ __forceinline__ void ForEachElement(const LowerTile& tile, const F& f) {
  if (!tile.active) return;
#pragma unroll
  for (int r = 0; r < kEdge; ++r) {
#pragma unroll
    for (int s = 0; s < kEdge; ++s) {
      if (tile.j + s <= tile.i + r) f(tile.i + r, tile.j + s, r, s);
    }
  }
}

// m = fma(a, m, sums)
template <int kEdge, typename Matrix>
__device__ __forceinline__ void AddScaled(const LowerTile& tile, float a,
                                          const float (&sums)[kEdge][kEdge], const Matrix& m) {
  ForEachElement<kEdge>(tile, [&](int i, int j, int r, int s) {
    m.Set(i, j, __fmaf_rn(a, m.Get(i, j), sums[r][s]));
  });
}

// r = the tree over the chunk partials.
template <int kEdge, typename Matrix>
__device__ __forceinline__ void SumPartials(const StepArguments& a, const BlockEntry& b,
                                            const LowerTile& tile, const Matrix& r) {
  if (!tile.active) return;
  const int chunks = (b.n + kChunk - 1) / kChunk, padded = PaddedCount(chunks);
#pragma unroll 1
  for (int el = 0; el < kEdge * kEdge; ++el) {
    const int i = tile.i + el / kEdge, j = tile.j + el % kEdge;
    if (j > i) continue;
    r.Set(i, j,
          SumLeaves(Partial<kEdge>(a, b, tile, 0, el), PartialStride<kEdge>(tile), chunks, padded));
  }
}

// r / trace; returns s. `diagonal` has kSide floats.
template <int kEdge, typename Matrix>
__device__ __forceinline__ float Normalize(const BlockEntry& b, const LowerTile& tile,
                                           const SharedArray<float>& diagonal, const Matrix& r) {
  const int thread = static_cast<int>(threadIdx.x), padded = PaddedCount(b.d);
  if (thread < padded) diagonal[thread] = thread < b.d ? r.Get(thread, thread) : 0.0f;
  const float trace = SumShared(diagonal, padded);
  ForEachElement<kEdge>(
      tile, [&](int i, int j, int, int) { r.Set(i, j, __fdiv_rn(r.Get(i, j), trace)); });
  return __double2float_rn(__ddiv_rn(1.0, __dsqrt_rn(static_cast<double>(trace))));
}

// Q s into the scratch, or zeros.
template <typename Matrix>
__device__ __forceinline__ void StoreScaled(const StepArguments& a, const BlockEntry& b,
                                            const Matrix& q, float s, bool zeros) {
  const int quads = b.matrix_stride / 4;
  for (int at = static_cast<int>(threadIdx.x); at < b.d * quads; at += kLowerThreads) {
    const int i = at / quads, j = 4 * (at % quads);
    float v[4] = {};
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if (!zeros && j + e < b.d) v[e] = __fmul_rn(q.Get(i, j + e), s);
    }
    StoreFour(a.scratch + b.matrices + std::int64_t{i} * b.matrix_stride + j, v);
  }
}

// Unit: a block. The steps [begin, end) from one restart to the next.
template <typename G, int kEdge, template <int> class Storage>
__global__ void __launch_bounds__(kLowerThreads, kEdge == muon_step::kSmallEdge ? 3 : 1)
    MuonChain(const StepArguments a, MuonStepPlan::Segment steps) {
  HW_DYNAMIC_SHARED(float, shared, 0);
  HW_SHARED(float, diagonal, kSide<kEdge>);
  if (Skips(a)) return;
  const Unit unit = ThisUnit(a);
  const BlockEntry b = LoadBlock(a, unit.block);
  const LowerTile tile = MakeLowerTile<kEdge>(b.d);
  using Matrix = Storage<kEdge>;
  const Matrix r(shared, 0), z(shared, Matrix::kFloats), q(shared, 2 * Matrix::kFloats);
  float s = 1.0f;
  if (steps.begin == 0) {
    const unsigned largest = LoadGlobal(&a.states[unit.block].largest);
    if (largest == 0) {
      StoreScaled(a, b, q, s, /*zeros=*/true);
      return;
    }
    if (IsScaled(largest)) {  // rare: the Gram matrix again, of the scaled block
      ClearShared<kLowerThreads>(shared, kGramStageFloats<kEdge>);
      for (int chunk = 0; chunk * kChunk < b.n; ++chunk) {
        GramOfChunk<G, kEdge>(a, b, tile, chunk, /*from_scratch=*/false, FactorsFor(largest),
                              shared);
      }
      __syncthreads();
    }
  }
  SumPartials<kEdge>(a, b, tile, r);
  __syncthreads();
  if (steps.begin == 0) s = Normalize<kEdge>(b, tile, diagonal, r);
  __syncthreads();

  float sums[kEdge][kEdge];
  for (int n = steps.begin; n < steps.end; ++n) {
    const float step_a = LoadCached(&a.steps[n].a), step_b = LoadCached(&a.steps[n].b),
                step_c = LoadCached(&a.steps[n].c);
    Multiply(r, r, tile, b.d, sums);
    ForEachElement<kEdge>(tile, [&](int i, int j, int row, int column) {
      const float value = __fmaf_rn(step_c, sums[row][column], __fmul_rn(step_b, r.Get(i, j)));
      z.Set(i, j, value);
      if (n == steps.begin) q.Set(i, j, i == j ? __fadd_rn(value, step_a) : value);
    });
    __syncthreads();
    if (n > steps.begin) {
      Multiply(z, q, tile, b.d, sums);
      __syncthreads();
      AddScaled<kEdge>(tile, step_a, sums, q);
    }
    if (n + 1 == steps.end) break;
    Multiply(z, r, tile, b.d, sums);
    __syncthreads();
    AddScaled<kEdge>(tile, step_a, sums, r);
    __syncthreads();
    Multiply(r, z, tile, b.d, sums);
    __syncthreads();
    AddScaled<kEdge>(tile, step_a, sums, r);
    __syncthreads();
  }
  __syncthreads();
  StoreScaled(a, b, q, s, /*zeros=*/false);
}

template <int kEdge, template <int> class Storage>
inline constexpr int kChainBytes = 3 * Storage<kEdge>::kFloats* static_cast<int>(sizeof(float));

}  // namespace headwise::HW_CUDA_NAMESPACE

#endif  // HEADWISE_KERNELS_MUON_STEP_CUDA_CHAIN_CUH_
