#include "kernels/newton_schulz/apply.h"

#include <algorithm>

#include "kernels/newton_schulz/fma_chains.h"

namespace headwise::newton_schulz {
namespace {

// d is cut into slices of so many panels; the chains rest in `out` between slices, and the slice's
// part of Q s and of the strip stay in the first-level cache.
constexpr std::int64_t kSlicePanels = 8;

// The widest register tile, in vectors, and the rows of a tile of so many, which divide a strip.
#if defined(__AVX512F__)
constexpr int kMaxVectors = 4;
constexpr int TileRows(int vectors) {
  return vectors == 4 ? 6 : vectors == 3 ? 8 : vectors == 2 ? 12 : 16;
}
#else
constexpr int kMaxVectors = 1;  // two registers each, of half as many
constexpr int TileRows(int) { return 6; }
#endif

// Panels [k_begin, k_end) of the sum, for kVectors panels of the output.
template <int kVectors>
void StripSlice(const Panels& qs, const Panels& x, std::int64_t d, std::int64_t begin,
                std::int64_t k_begin, std::int64_t k_end, std::int64_t first, const Panels& out) {
  constexpr int kRows = TileRows(kVectors);
  for (std::int64_t row = 0; row < kStripColumns; row += kRows) {
    Chains<kRows, kVectors> chain;
    float* const at = out.panel(first) + row * kLanes;
    if (k_begin == 0) {
      ZeroChains<kRows, kVectors>(chain);
    } else {
      LoadChains<kRows, kVectors>(at, kLanes, out.stride, chain);
    }
    std::int64_t k = k_begin;
    do {
      FmaChains<kLanes, 1, kRows, kVectors>(x.panel(k) + (begin + row) * kLanes,
                                            qs.panel(first) + k * kTileFloats, qs.stride,
                                            std::min<std::int64_t>(kLanes, d - k * kLanes), chain);
    } while (++k < k_end);
    StoreChains<kRows, kVectors>(chain, kLanes, out.stride, at);
  }
}

}  // namespace

void ApplyStrip(const Panels& qs, const Panels& x, std::int64_t d, std::int64_t begin,
                const Panels& out) {
  for (std::int64_t k = 0; k < x.count; k += kSlicePanels) {
    const std::int64_t k_end = std::min(k + kSlicePanels, x.count);
    ForEachGroup<kMaxVectors>(out.count, [&]<int kVectors>(std::int64_t first) {
      StripSlice<kVectors>(qs, x, d, begin, k, k_end, first, out);
    });
  }
}

}  // namespace headwise::newton_schulz
