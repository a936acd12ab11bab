// FmaChains: the inner loop of every product, kRows x kVectors independent chains in registers.
//
//   chain[r][v] = fma(a(r, k), b(k, v), chain[r][v])   for k = 0, 1, ..., depth - 1, depth >= 1
//
// a(r, k) is a[r * kRowStep + k * kDepthStep], broadcast; b(k, v) is the vector at b[v * b_stride +
// 16 k]. A chain is one output element's, in ascending k, whatever the tile's shape.
//
// For .cc files of the CPU path.
#ifndef HEADWISE_KERNELS_NEWTON_SCHULZ_FMA_CHAINS_H_
#define HEADWISE_KERNELS_NEWTON_SCHULZ_FMA_CHAINS_H_

#include <cstdint>

#include "kernels/common/simd.h"

namespace headwise::newton_schulz {

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
  // A loop that may run no time would make the compiler keep two copies of the chains.
  const float* const a_end = a + depth * kDepthStep;
  do {
    F16 right[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) right[v] = Load(b + v * b_stride);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const F16 left(a[r * kRowStep]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) chain[r][v] = Fma(left, right[v], chain[r][v]);
    }
    a += kDepthStep;
    b += kLanes;
  } while (a != a_end);
}

// Calls f.template operator()<vectors>(first) for groups of kMax panels, and a last one of what is
// left, of `panels` panels in all.
template <int kMax, typename F>
void ForEachGroup(std::int64_t panels, const F& f) {
  std::int64_t first = 0;
  for (; first + kMax <= panels; first += kMax) f.template operator()<kMax>(first);
  if constexpr (kMax > 1) {
    if (first < panels) {
      ForEachGroup<kMax - 1>(panels - first, [&]<int kVectors>(std::int64_t more) {
        f.template operator()<kVectors>(first + more);
      });
    }
  }
}

}  // namespace headwise::newton_schulz

#endif  // HEADWISE_KERNELS_NEWTON_SCHULZ_FMA_CHAINS_H_
