// The products of which only the lower triangle is computed: the Gram matrix and the d x d chain.
#ifndef HEADWISE_KERNELS_NEWTON_SCHULZ_LOWER_PRODUCT_H_
#define HEADWISE_KERNELS_NEWTON_SCHULZ_LOWER_PRODUCT_H_

#include <cstdint>

#include "kernels/newton_schulz/panels.h"

namespace headwise::newton_schulz {

// For every tile of the piece: sums[TileIndex * 256 + 16 r + lane], the element of row
// i = 16 tile_row + r and column j = 16 tile_col + lane, becomes the fma chain from +0 of
// a(k, i) b(k, j) over begin <= k < end. Lanes of the diagonal's tiles with j > i are computed too.
void LowerProduct(const Panels& a, const Panels& b, std::int64_t begin, std::int64_t end,
                  const Piece& piece, float* sums);

// Writes one tile [16, 16] of a piece at (row, col) and its mirror image at (col, row). On the
// diagonal, where row == col, what lies above it is replaced by what lies below. Overwrites `tile`.
void StoreMirrored(float* tile, std::int64_t row, std::int64_t col, const Panels& out);

}  // namespace headwise::newton_schulz

#endif  // HEADWISE_KERNELS_NEWTON_SCHULZ_LOWER_PRODUCT_H_
