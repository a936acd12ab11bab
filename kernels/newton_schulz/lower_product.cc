#include "kernels/newton_schulz/lower_product.h"

#include <algorithm>

#include "kernels/newton_schulz/fma_chains.h"

namespace headwise::newton_schulz {
namespace {

// k is cut into slices of so many, between which the chains rest in `sums`: the operands of a slice
// (64 bytes per panel and k) then stay in the first-level cache.
constexpr std::int64_t kSliceDepth = 128;

// The widest register tile, in vectors, and the rows of a tile of so many, which divide 16: 16 to
// 24 chains, which hide the latency of an fma and leave registers for the operands.
#if defined(__AVX512F__)
constexpr int kMaxVectors = 3;
constexpr int TileRows(int vectors) { return vectors == 1 ? 16 : 8; }
#else
constexpr int kMaxVectors = 1;  // two registers each, of half as many
constexpr int TileRows(int) { return 4; }
#endif

// One row of tiles times kVectors panels.
template <int kVectors>
void TileRow(const float* a, const float* b, std::int64_t b_stride, std::int64_t depth, bool first,
             float* sums) {
  constexpr int kRows = TileRows(kVectors);
  for (int r = 0; r < kLanes; r += kRows) {
    Chains<kRows, kVectors> chain;
    float* const at = sums + r * kLanes;
    if (first) {
      ZeroChains<kRows, kVectors>(chain);
    } else {
      LoadChains<kRows, kVectors>(at, kLanes, kTileFloats, chain);
    }
    FmaChains<1, kLanes, kRows, kVectors>(a + r, b, b_stride, depth, chain);
    StoreChains<kRows, kVectors>(chain, kLanes, kTileFloats, at);
  }
}

}  // namespace

void LowerProduct(const Panels& a, const Panels& b, std::int64_t begin, std::int64_t end,
                  const Piece& piece, float* sums) {
  for (std::int64_t k = begin; k < end; k += kSliceDepth) {
    const std::int64_t depth = std::min(kSliceDepth, end - k);
    for (std::int64_t col = piece.col_begin; col < piece.col_end; col += kMaxVectors) {
      const float* const right = b.panel(col) + k * kLanes;
      for (std::int64_t row = piece.row_begin; row < piece.row_end; ++row) {
        const std::int64_t panels = std::min<std::int64_t>(kMaxVectors, piece.ColEnd(row) - col);
        if (panels <= 0) continue;  // above the diagonal
        const float* const left = a.panel(row) + k * kLanes;
        float* const to = sums + piece.TileIndex(row, col) * kTileFloats;
        ForEachGroup<kMaxVectors>(panels, [&]<int kVectors>(std::int64_t) {
          TileRow<kVectors>(left, right, b.stride, depth, k == begin, to);
        });
      }
    }
  }
}

}  // namespace headwise::newton_schulz
