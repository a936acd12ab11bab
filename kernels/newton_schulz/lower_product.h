// The products of which only the lower triangle is computed: the Gram matrix and the d x d chain.
#ifndef HEADWISE_KERNELS_NEWTON_SCHULZ_LOWER_PRODUCT_H_
#define HEADWISE_KERNELS_NEWTON_SCHULZ_LOWER_PRODUCT_H_

#include <cstdint>

#include "kernels/common/simd.h"
#include "kernels/common/transpose.h"
#include "kernels/newton_schulz/panels.h"

namespace headwise::newton_schulz {

// For every tile of the piece: sums[TileIndex * 256 + 16 r + lane], the element of row
// i = 16 tile_row + r and column j = 16 tile_col + lane, becomes the fma chain from +0 of
// a(k, i) b(k, j) over begin <= k < end. Lanes of the diagonal's tiles with j > i are computed too.
void LowerProduct(const Panels& a, const Panels& b, std::int64_t begin, std::int64_t end,
                  const Piece& piece, float* sums);

inline void LoadTile(const float* p, F16 (&tile)[kLanes]) {
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) tile[i] = Load(p + i * kLanes);
}

// 0, 1, ..., 15.
inline I16 LaneNumbers() {
  std::int32_t numbers[kLanes];
  for (int i = 0; i < kLanes; ++i) numbers[i] = i;
  return Load(numbers);
}

// Writes a tile, given by its rows, at (row, col) in tiles, and its mirror image at (col, row). On
// the diagonal, where row == col, what lies above it is replaced by what lies below.
inline void StoreMirrored(F16 (&tile)[kLanes], std::int64_t row, std::int64_t col,
                          const Panels& out) {
  float* const at = out.panel(col) + row * kTileFloats;
  float* const mirrored_at = out.panel(row) + col * kTileFloats;
  if (row != col) {
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) Store(at + i * kLanes, tile[i]);
    Transpose16x16(tile);
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) Store(mirrored_at + i * kLanes, tile[i]);
    return;
  }
  F16 mirror[kLanes];
  for (int i = 0; i < kLanes; ++i) mirror[i] = tile[i];
  Transpose16x16(mirror);
  for (int i = 0; i < kLanes; ++i) {
    Store(at + i * kLanes, Select(LaneNumbers() > I16(i), mirror[i], tile[i]));
  }
}

}  // namespace headwise::newton_schulz

#endif  // HEADWISE_KERNELS_NEWTON_SCHULZ_LOWER_PRODUCT_H_
