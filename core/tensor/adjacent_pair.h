// Sums whose order of additions is fixed: the same bits for any number of threads, and a contiguous
// power-of-two share of the leaves is a complete subtree, so ranks can sum their own share first.
//
// The adjacent-pair tree over n leaves: pad with +0 to a power of two, then p[i] = p[2i] + p[2i+1]
// until one is left. Additions with padding are performed (they turn -0 into +0). No leaf gives +0;
// one leaf is returned as it is.
//
//   double total = AdjacentPairTree<double>(losses);
#ifndef HEADWISE_CORE_TENSOR_ADJACENT_PAIR_H_
#define HEADWISE_CORE_TENSOR_ADJACENT_PAIR_H_

#include <bit>
#include <cstdint>

#include "absl/types/span.h"
#include "core/base/check.h"
#include "core/tensor/row_span.h"

namespace headwise {

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

}  // namespace headwise

#endif  // HEADWISE_CORE_TENSOR_ADJACENT_PAIR_H_
