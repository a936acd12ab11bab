#include "kernels/newton_schulz/apply.h"

#include <algorithm>

#include "kernels/newton_schulz/fma_chains.h"

namespace headwise::newton_schulz {
namespace {

// d is cut into slices of so many panels; the chains rest in `out` between slices, and the slice's
// part of Q s and of the strip stay in the first-level cache.
constexpr std::int64_t kSlicePanels = 8;

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
    for (std::int64_t k = k_begin; k < k_end; ++k) {
      FmaChains<kLanes, 1, kRows, kVectors>(x.panel(k) + (begin + row) * kLanes,
                                            qs.panel(first) + k * kTileFloats, qs.stride,
                                            std::min<std::int64_t>(kLanes, d - k * kLanes), chain);
    }
    StoreChains<kRows, kVectors>(chain, kLanes, out.stride, at);
  }
}

}  // namespace

void ApplyStrip(const Panels& qs, const Panels& x, std::int64_t d, std::int64_t begin,
                const Panels& out) {
  for (std::int64_t k = 0; k < x.count; k += kSlicePanels) {
    const std::int64_t k_end = std::min(k + kSlicePanels, x.count);
    ForEachGroup(out.count, [&](std::int64_t first, std::int64_t last) {
      switch (last - first) {
        case 1:
          StripSlice<1>(qs, x, d, begin, k, k_end, first, out);
          break;
#if defined(__AVX512F__)
        case 2:
          StripSlice<2>(qs, x, d, begin, k, k_end, first, out);
          break;
        default:
          StripSlice<3>(qs, x, d, begin, k, k_end, first, out);
#endif
      }
    });
  }
}

}  // namespace headwise::newton_schulz
