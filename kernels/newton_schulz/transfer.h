// Between a block's rows, wherever they are, and the panels that the products work on.
#ifndef HEADWISE_KERNELS_NEWTON_SCHULZ_TRANSFER_H_
#define HEADWISE_KERNELS_NEWTON_SCHULZ_TRANSFER_H_

#include <cstdint>

#include "kernels/newton_schulz/orthogonalize.h"
#include "kernels/newton_schulz/panels.h"

namespace headwise::newton_schulz {

// X [d, n] is the block, or its transpose if the block is taller than wide, or square and stored
// transposed: d <= n.
struct BlockShape {
  explicit BlockShape(const BlockAccess& block);

  std::int64_t d, n;
  bool transposed;
};

// Loads columns [begin, end) of X into its panels, and returns the largest magnitude among them as
// the bits of a float (which order as the magnitudes do).
std::uint32_t LoadColumns(BlockAccess& block, const BlockShape& shape, std::int64_t begin,
                          std::int64_t end, const Panels& x);

// Stores columns [begin, end) of the result; strip's row c is column begin + c.
void StoreColumns(const Panels& strip, const BlockShape& shape, std::int64_t begin,
                  std::int64_t end, BlockAccess& block);

// Stores zeros.
void StoreZeros(BlockAccess& block);

}  // namespace headwise::newton_schulz

#endif  // HEADWISE_KERNELS_NEWTON_SCHULZ_TRANSFER_H_
