// Where a block's elements are, and what is done to each: the momentum, u, X, the write.
#ifndef HEADWISE_KERNELS_MUON_STEP_CUDA_ELEMENTS_CUH_
#define HEADWISE_KERNELS_MUON_STEP_CUDA_ELEMENTS_CUH_

#include <cstdint>

#include "core/dtype/bf16.h"
#include "kernels/emulation/cuda_kernel.h"
#include "kernels/muon_step/cuda/arguments.cuh"

namespace headwise::HW_CUDA_NAMESPACE {

__device__ __forceinline__ bool Skips(const StepArguments& a) {
  return LoadCached(&a.scalars->skip) != 0;
}

__device__ __forceinline__ Unit ThisUnit(const StepArguments& a) {
  return LoadCached(a.units + blockIdx.x);
}

__device__ __forceinline__ BlockEntry LoadBlock(const StepArguments& a, int block) {
  const BlockEntry* const e = a.blocks + block;
  BlockEntry b;
  b.gradient = LoadCached(&e->gradient);
  b.momentum = LoadCached(&e->momentum);
  b.weight = LoadCached(&e->weight);
  b.gradient_stride = LoadCached(&e->gradient_stride);
  b.momentum_stride = LoadCached(&e->momentum_stride);
  b.weight_stride = LoadCached(&e->weight_stride);
  b.scale = LoadCached(&e->scale);
  b.partials = LoadCached(&e->partials);
  b.matrices = LoadCached(&e->matrices);
  b.x[0] = LoadCached(&e->x[0]);
  b.x[1] = LoadCached(&e->x[1]);
  b.x_stride = LoadCached(&e->x_stride);
  b.first_begin = LoadCached(&e->first_begin);
  b.d = LoadCached(&e->d);
  b.n = LoadCached(&e->n);
  b.matrix_stride = LoadCached(&e->matrix_stride);
  b.first_range = LoadCached(&e->first_range);
  b.ranges = LoadCached(&e->ranges);
  b.by_columns = LoadCached(&e->by_columns);
  b.transposed = LoadCached(&e->transposed);
  b.vectors = LoadCached(&e->vectors);
  return b;
}

// --- Places ---------------------------------------------------------------------------------------

// Up to four elements of X that follow each other in a row of the weight: X[i][c + e], or X[i + e][c]
// if the block is transposed.
struct Quad {
  int i, c, count;
};

// Calls f(quad), each quad by one of kThreads threads, for the elements of rows [i0, i0 + kRows) and
// columns [c0, c_end) of X, at most kStage. A warp takes four quads of eight rows (or columns) at a
// time: whole sectors of memory, and few conflicts in shared memory either way.
template <int kRows, int kThreads, typename F>
__device__ __forceinline__ void ForEachQuad(const BlockEntry& b, int i0, int c0, int c_end,
                                            const F& f) {
  for (int q = static_cast<int>(threadIdx.x); q < kRows * kStage / 4; q += kThreads) {
    const int along = q % 4, across = q / 4 % 8, rest = q / 32;
    if (b.transposed != 0) {
      const int i = i0 + rest % (kRows / 16) * 16 + 4 * along;
      const int c = c0 + rest / (kRows / 16) * 8 + across;
      if (i < b.d && c < c_end) f(Quad{i, c, min(4, b.d - i)});
    } else {
      const int i = i0 + rest / (kStage / 16) * 8 + across;
      const int c = c0 + rest % (kStage / 16) * 16 + 4 * along;
      if (i < b.d && c < c_end) f(Quad{i, c, min(4, c_end - c)});
    }
  }
}

// Row and column of the weight, or of the X in the scratch.
struct Place {
  std::int64_t row, column;
};

// The weight's row (or column) of the block's.
__device__ __forceinline__ std::int64_t InWeight(const StepArguments& a, const BlockEntry& b,
                                                 std::int64_t i) {
  if (b.ranges == 1) return b.first_begin + i;
  const RangeEntry* const ranges = a.ranges + b.first_range;
  int k = b.ranges - 1;
  while (k > 0 && LoadCached(&ranges[k].start) > i) --k;
  return LoadCached(&ranges[k].begin) + (i - LoadCached(&ranges[k].start));
}

// Element e of a quad in the weight's matrices.
__device__ __forceinline__ Place PlaceInWeight(const StepArguments& a, const BlockEntry& b,
                                               const Quad& quad, int e) {
  const std::int64_t row = b.transposed != 0 ? quad.c : quad.i;
  const std::int64_t column = (b.transposed != 0 ? quad.i : quad.c) + e;
  if (b.by_columns != 0) return {row, InWeight(a, b, column)};
  return {InWeight(a, b, row), column};
}

__device__ __forceinline__ float* QuadInScratch(const StepArguments& a, const BlockEntry& b,
                                                int which, const Quad& quad) {
  const std::int64_t row = b.transposed != 0 ? quad.c : quad.i;
  const std::int64_t column = b.transposed != 0 ? quad.i : quad.c;
  // Not b.x[which]: an index that is not constant puts all of b into local memory.
  return a.scratch + (which == 0 ? b.x[0] : b.x[1]) + row * b.x_stride + column;
}

// --- Values ---------------------------------------------------------------------------------------

__device__ __forceinline__ void Spread(float4 v, float (&x)[4]) {
  x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
}
__device__ __forceinline__ void LoadFour(const float* p, float (&x)[4]) {
  Spread(LoadStreaming(reinterpret_cast<const float4*>(p)), x);
}
__device__ __forceinline__ void LoadFour(const BFloat16* p, float (&x)[4]) {
  const uint2 bits = LoadStreaming(reinterpret_cast<const uint2*>(p));
  x[0] = __uint_as_float(bits.x << 16), x[1] = __uint_as_float(bits.x & 0xffff0000u);
  x[2] = __uint_as_float(bits.y << 16), x[3] = __uint_as_float(bits.y & 0xffff0000u);
}
__device__ __forceinline__ void StoreFour(float* p, const float (&x)[4]) {
  StoreGlobal(reinterpret_cast<float4*>(p), make_float4(x[0], x[1], x[2], x[3]));
}
__device__ __forceinline__ float LoadOne(const float* p) { return LoadStreaming(p); }
__device__ __forceinline__ float LoadOne(const BFloat16* p) {
  const unsigned bits = LoadStreaming(reinterpret_cast<const unsigned short*>(p));
  return __uint_as_float(bits << 16);
}

// m <- m + (1 - beta) (g - m), and u.
__device__ __forceinline__ void UpdateMomentum(const MuonStepPlan::Constants& k,
                                               float gradient_scale, float& m, float g, float& u) {
  g = __fmul_rn(g, gradient_scale);
  m = __fmaf_rn(k.one_minus_beta, __fsub_rn(g, m), m);
  u = k.nesterov ? __fmaf_rn(k.beta, __fsub_rn(m, g), g) : m;
}

// u of a quad. The momentum is stored only if `stores`.
template <typename G>
__device__ __forceinline__ void LoadUpdate(const StepArguments& a, const BlockEntry& b,
                                           float gradient_scale, const Quad& quad, bool stores,
                                           float (&u)[4]) {
  const G* const gradient = reinterpret_cast<const G*>(b.gradient);
  float* const momenta = reinterpret_cast<float*>(b.momentum);
  if (b.vectors != 0 && quad.count == 4) {
    const Place place = PlaceInWeight(a, b, quad, 0);
    float* const momentum = momenta + place.row * b.momentum_stride + place.column;
    float g[4], m[4];
    LoadFour(gradient + place.row * b.gradient_stride + place.column, g);
    LoadFour(momentum, m);
#pragma unroll
    for (int e = 0; e < 4; ++e) UpdateMomentum(a.constants, gradient_scale, m[e], g[e], u[e]);
    if (stores) StoreFour(momentum, m);
    return;
  }
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    u[e] = 0.0f;
    if (e >= quad.count) continue;
    const Place place = PlaceInWeight(a, b, quad, e);
    float* const momentum = momenta + place.row * b.momentum_stride + place.column;
    float m = LoadOne(momentum);
    UpdateMomentum(a.constants, gradient_scale, m,
                   LoadOne(gradient + place.row * b.gradient_stride + place.column), u[e]);
    if (stores) StoreGlobal(momentum, m);
  }
}

// X of a quad from the scratch; elements beyond it are 0.
__device__ __forceinline__ void LoadX(const StepArguments& a, const BlockEntry& b, int which,
                                      const Quad& quad, float (&x)[4]) {
  const float* const p = QuadInScratch(a, b, which, quad);
  if (quad.count == 4) {
    LoadFour(p, x);
    return;
  }
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    x[e] = 0.0f;
    if (e < quad.count) x[e] = LoadOne(p + e);
  }
}
__device__ __forceinline__ void StoreX(const StepArguments& a, const BlockEntry& b, int which,
                                       const Quad& quad, const float (&x)[4]) {
  float* const p = QuadInScratch(a, b, which, quad);
  if (quad.count == 4) {
    StoreFour(p, x);
    return;
  }
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    if (e < quad.count) StoreGlobal(p + e, x[e]);
  }
}

// w <- w decay - p o, with minus_p = -p.
struct Write {
  float decay, minus_p;
};
__device__ __forceinline__ Write MakeWrite(const StepArguments& a, const BlockEntry& b) {
  const double rate = LoadCached(&a.scalars->learning_rate);
  const float p = __double2float_rn(__dmul_rn(rate, b.scale));
  return {__double2float_rn(__dsub_rn(1.0, __dmul_rn(rate, a.constants.weight_decay))), -p};
}
__device__ __forceinline__ float Written(const Write& write, float w, float o) {
  return __fmaf_rn(write.minus_p, o, __fmul_rn(w, write.decay));
}

__device__ __forceinline__ void UpdateWeight(const StepArguments& a, const BlockEntry& b,
                                             const Write& write, const Quad& quad,
                                             const float (&o)[4]) {
  float* const weights = reinterpret_cast<float*>(b.weight);
  if (b.vectors != 0 && quad.count == 4) {
    const Place place = PlaceInWeight(a, b, quad, 0);
    float* const p = weights + place.row * b.weight_stride + place.column;
    float w[4];
    LoadFour(p, w);
#pragma unroll
    for (int e = 0; e < 4; ++e) w[e] = Written(write, w[e], o[e]);
    StoreFour(p, w);
    return;
  }
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    if (e >= quad.count) continue;
    const Place place = PlaceInWeight(a, b, quad, e);
    float* const p = weights + place.row * b.weight_stride + place.column;
    StoreGlobal(p, Written(write, LoadOne(p), o[e]));
  }
}

__device__ __forceinline__ float GradientScale(const StepArguments& a) {
  return __double2float_rn(LoadCached(&a.scalars->gradient_scale));
}

// --- The largest magnitude, and the power of two that brings it into [1, 2) -----------------------

__device__ __forceinline__ unsigned Magnitude(const float (&x)[4]) {
  unsigned largest = 0;
#pragma unroll
  for (int e = 0; e < 4; ++e) largest = max(largest, __float_as_uint(x[e]) & 0x7fffffffu);
  return largest;
}

// All lanes of a warp.
__device__ __forceinline__ void KeepLargest(unsigned largest, BlockState* state) {
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) {
    largest = max(largest, __shfl_xor_sync(kAllLanes, largest, lane));
  }
  if (threadIdx.x % 32 == 0) atomicMax(&state->largest, largest);
}

// Two factors, because one float does not reach from a subnormal to 1.
struct ScaleFactors {
  float first = 1.0f, second = 1.0f;
  __device__ __forceinline__ float operator()(float u) const {
    return __fmul_rn(__fmul_rn(u, first), second);
  }
};

// 2^exponent, -127 <= exponent <= 127.
__device__ __forceinline__ float PowerOfTwo(int exponent) {
  return __uint_as_float(exponent == -127 ? 0x00400000u
                                          : static_cast<unsigned>(exponent + 127) << 23);
}

// Whether a block whose largest magnitude has these bits is scaled: neither 0 nor in [2^-40, 2^40).
__device__ __forceinline__ bool IsScaled(unsigned largest) {
  return largest != 0 && (largest < (87u << 23) || largest >= (167u << 23));
}
__device__ __forceinline__ ScaleFactors FactorsFor(unsigned largest) {
  if (!IsScaled(largest)) return {};
  const int biased = static_cast<int>(largest >> 23);
  const int exponent = biased != 0 ? 127 - biased : 118 + __clz(static_cast<int>(largest));
  const int first = min(exponent, 127);
  return {PowerOfTwo(first), PowerOfTwo(exponent - first)};
}

}  // namespace headwise::HW_CUDA_NAMESPACE

#endif  // HEADWISE_KERNELS_MUON_STEP_CUDA_ELEMENTS_CUH_
