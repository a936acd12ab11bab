#include "kernels/newton_schulz/lower_product.h"

#include <algorithm>
#include <cstring>

#include "kernels/common/transpose.h"
#include "kernels/newton_schulz/fma_chains.h"

namespace headwise::newton_schulz {
namespace {

// k is cut into slices of so many, between which the chains rest in `sums`: the operands of a slice
// (64 bytes per panel and k) then stay in the first-level cache.
constexpr std::int64_t kSliceDepth = 128;

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
    ForEachGroup(piece.col_end - piece.col_begin, [&](std::int64_t first, std::int64_t last) {
      const std::int64_t col = piece.col_begin + first;
      const float* const right = b.panel(col) + k * kLanes;
      for (std::int64_t row = piece.row_begin; row < piece.row_end; ++row) {
        const std::int64_t vectors = std::min(piece.col_begin + last, piece.ColEnd(row)) - col;
        if (vectors <= 0) continue;
        const float* const left = a.panel(row) + k * kLanes;
        float* const to = sums + piece.TileIndex(row, col) * kTileFloats;
        switch (vectors) {
          case 1:
            TileRow<1>(left, right, b.stride, depth, k == begin, to);
            break;
#if defined(__AVX512F__)
          case 2:
            TileRow<2>(left, right, b.stride, depth, k == begin, to);
            break;
          default:
            TileRow<3>(left, right, b.stride, depth, k == begin, to);
#endif
        }
      }
    });
  }
}

void StoreMirrored(float* tile, std::int64_t row, std::int64_t col, const Panels& out) {
  if (row == col) {
    for (int i = 0; i < kLanes; ++i) {
      for (int j = i + 1; j < kLanes; ++j) tile[i * kLanes + j] = tile[j * kLanes + i];
    }
  } else {
    F16 rows[kLanes];
    for (int i = 0; i < kLanes; ++i) rows[i] = Load(tile + i * kLanes);
    Transpose16x16(rows);
    float* const mirror = out.panel(row) + col * kTileFloats;
    for (int i = 0; i < kLanes; ++i) Store(mirror + i * kLanes, rows[i]);
  }
  std::memcpy(out.panel(col) + row * kTileFloats, tile, kTileFloats * sizeof(float));
}

}  // namespace headwise::newton_schulz
