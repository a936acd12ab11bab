// Sums whose order of additions is fixed: the same bits for any number of threads, and a contiguous
// power-of-two share of the leaves is a complete subtree, so ranks can sum their own share first.
//
// The adjacent-pair tree over n leaves: pad with +0 to a power of two, then p[i] = p[2i] + p[2i+1]
// until one is left. Additions with padding are performed (they turn -0 into +0). No leaf gives +0;
// one leaf is returned as it is.
//
//   double total = AdjacentPairTree<double>(losses);
//
// Sums over tokens (weight gradients): tiles of kTokenTile tokens, a constant that never depends on
// threads or shapes; serial inside a tile, ascending, from +0; the adjacent-pair tree over tiles.
#ifndef HEADWISE_KERNELS_COMMON_REDUCTIONS_H_
#define HEADWISE_KERNELS_COMMON_REDUCTIONS_H_

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "core/base/check.h"
#include "core/tensor/row_span.h"
#include "kernels/common/thread_pool.h"

namespace headwise {

inline constexpr std::int64_t kTokenTile = 64;

// The tree as leaves arrive, in memory that grows with the logarithm of their number.
//
//   AdjacentPairAccumulator<double> sum;
//   for (float x : losses) sum.Add(x);
//   sum.Total();
template <typename C>
class AdjacentPairAccumulator {
 public:
  void Add(C leaf) {
    // Subtree k, when bit k of the count is set, holds 2^k leaves; a new leaf carries as in binary
    // addition.
    int level = 0;
    for (std::uint64_t n = count_; n & 1; n >>= 1) leaf = subtree_[level++] + leaf;
    subtree_[level] = leaf;
    ++count_;
  }

  // The whole tree over the leaves so far, padding included.
  C Total() const {
    if (count_ == 0) return C(0);
    const int levels = std::bit_width(std::bit_ceil(count_)) - 1;
    if (std::has_single_bit(count_)) return subtree_[levels];
    // From the right edge upwards: what lies to the right of the last leaf is +0.
    int level = std::countr_zero(count_);
    C right = subtree_[level];
    for (; level < levels; ++level) {
      const bool is_right_child = (count_ >> level & 1) && level != std::countr_zero(count_);
      right = is_right_child ? subtree_[level] + right : right + C(0);
    }
    return right;
  }

 private:
  std::uint64_t count_ = 0;
  C subtree_[64] = {};
};

// The tree over `leaves`.
template <typename C>
C AdjacentPairTree(absl::Span<const C> leaves) {
  AdjacentPairAccumulator<C> sum;
  for (const C& leaf : leaves) sum.Add(leaf);
  return sum.Total();
}

// The tree over the rows of `leaves` [n, N], n >= 1, column by column; the total is left in row 0,
// the other rows are overwritten.
template <typename C>
void AdjacentPairTreeOfRows(RowSpan<C> leaves) {
  HW_CHECK_GE(leaves.rows, 1);
  for (std::int64_t step = 1; step < leaves.rows; step *= 2) {
    for (std::int64_t i = 0; i < leaves.rows; i += 2 * step) {
      C* const left = leaves.row(i);
      if (i + step < leaves.rows) {
        const C* const right = leaves.row(i + step);
        for (std::int64_t d = 0; d < leaves.width; ++d) left[d] = left[d] + right[d];
      } else {
        for (std::int64_t d = 0; d < leaves.width; ++d) left[d] = left[d] + C(0);
      }
    }
  }
}

// Runs add(begin, end, acc) for every tile of tokens [begin, end), in parallel; acc [total.size()]
// starts at +0 and the tile's terms are to be added to it, tokens ascending. total = the tree over
// tiles (+0 if there are no tokens).
//
// add : void(std::int64_t begin, std::int64_t end, C* acc); it may do a token's other work too.
template <typename C, typename AddTile>
void SumOverTokens(std::int64_t tokens, absl::Span<C> total, ThreadPool& pool, AddTile add) {
  const std::int64_t width = static_cast<std::int64_t>(total.size());
  const std::int64_t tiles = (tokens + kTokenTile - 1) / kTokenTile;
  std::vector<C> storage(static_cast<std::size_t>(tiles * width));  // +0
  const RowSpan<C> partial(storage.data(), tiles, width);
  pool.ParallelFor(tiles, [&](std::int64_t tile) {
    const std::int64_t begin = tile * kTokenTile;
    add(begin, std::min(begin + kTokenTile, tokens), partial.row(tile));
  });
  if (tiles == 0) {
    std::fill(total.begin(), total.end(), C(0));
  } else {
    AdjacentPairTreeOfRows(partial);
    std::copy_n(partial.row(0), width, total.begin());
  }
}

}  // namespace headwise

#endif  // HEADWISE_KERNELS_COMMON_REDUCTIONS_H_
