// FmaChains: the inner loop of every product, kRows x kVectors independent chains in registers.
//
//   chain[r][v] = fma(a(r, k), b(k, v), chain[r][v])   for k = 0, 1, ..., depth - 1
//
// a(r, k) is a[r * kRowStep + k * kDepthStep], broadcast; b(k, v) is the vector at
// b[v * b_stride + 16 k]. A chain is one output element's, in ascending k, whatever the tile's shape.
//
// For .cc files of the CPU path.
#ifndef HEADWISE_KERNELS_NEWTON_SCHULZ_FMA_CHAINS_H_
#define HEADWISE_KERNELS_NEWTON_SCHULZ_FMA_CHAINS_H_

#include <cstdint>

#include "kernels/common/simd.h"

namespace headwise::newton_schulz {

// The widest tile, in vectors, and the rows of a tile of so many: 16 to 24 chains, which hide the
// latency of an fma twice over and leave registers for the operands. Rows divide 16.
#if defined(__AVX512F__)
inline constexpr int kMaxVectors = 3;
constexpr int TileRows(int vectors) { return vectors == 1 ? 16 : 8; }
#else
inline constexpr int kMaxVectors = 1;  // two registers each, and half as many registers
constexpr int TileRows(int) { return 4; }
#endif

template <int kRows, int kVectors>
using Chains = F16[kRows][kVectors];

template <int kRows, int kVectors>
[[gnu::always_inline]] inline void ZeroChains(Chains<kRows, kVectors>& chain) {
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) chain[r][v] = F16(0.0f);
  }
}

// Row r's vector v is at p + r * row_step + v * vector_step.
template <int kRows, int kVectors>
[[gnu::always_inline]] inline void LoadChains(const float* p, std::int64_t row_step,
                                              std::int64_t vector_step,
                                              Chains<kRows, kVectors>& chain) {
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) chain[r][v] = Load(p + r * row_step + v * vector_step);
  }
}

template <int kRows, int kVectors>
[[gnu::always_inline]] inline void StoreChains(const Chains<kRows, kVectors>& chain,
                                               std::int64_t row_step, std::int64_t vector_step,
                                               float* p) {
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) Store(p + r * row_step + v * vector_step, chain[r][v]);
  }
}

template <int kRowStep, int kDepthStep, int kRows, int kVectors>
[[gnu::always_inline]] inline void FmaChains(const float* a, const float* b, std::int64_t b_stride,
                                             std::int64_t depth, Chains<kRows, kVectors>& chain) {
#pragma GCC unroll 2
  for (std::int64_t k = 0; k < depth; ++k) {
    F16 right[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) right[v] = Load(b + v * b_stride + k * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const F16 left(a[r * kRowStep + k * kDepthStep]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) chain[r][v] = Fma(left, right[v], chain[r][v]);
    }
  }
}

// Cuts `panels` into as few groups of at most kMaxVectors as possible, as equal as possible, and
// calls f(begin, end) for each.
template <typename F>
void ForEachGroup(std::int64_t panels, const F& f) {
  const std::int64_t groups = (panels + kMaxVectors - 1) / kMaxVectors;
  for (std::int64_t g = 0; g < groups; ++g) f(panels * g / groups, panels * (g + 1) / groups);
}

}  // namespace headwise::newton_schulz

#endif  // HEADWISE_KERNELS_NEWTON_SCHULZ_FMA_CHAINS_H_
