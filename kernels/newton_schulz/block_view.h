// BlockView: one head block of a matrix, seen as a matrix of its own.
//
// A block of rows is its ranges' rows one below the other, in the ranges' order, with all columns;
// a block of columns is its ranges' columns side by side. What the reference, the fast path and the
// Muon step share about where a block's elements are.
#ifndef HEADWISE_KERNELS_NEWTON_SCHULZ_BLOCK_VIEW_H_
#define HEADWISE_KERNELS_NEWTON_SCHULZ_BLOCK_VIEW_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/heads/head_blocks.h"

namespace headwise::newton_schulz {

class BlockView {
 public:
  // `block` belongs to a HeadBlocks of this axis of a matrix of rows x cols.
  BlockView(const HeadBlock& block, BlockAxis axis, std::int64_t rows, std::int64_t cols);

  std::int64_t rows() const { return rows_; }
  std::int64_t cols() const { return cols_; }

  // Calls f(matrix_row, matrix_col, length, done) for each piece of the block's elements
  // (row, [col, col + count)) that is contiguous in the matrix; `done` elements came before it.
  template <typename F>
  void ForEachRun(std::int64_t row, std::int64_t col, std::int64_t count, const F& f) const {
    if (axis_ == BlockAxis::kRows) {
      const std::size_t range = RangeHolding(row);
      f(ranges_[range].begin + row - starts_[range], col, count, std::int64_t{0});
      return;
    }
    std::size_t range = RangeHolding(col);
    for (std::int64_t done = 0; done < count; ++range) {
      const std::int64_t skip = col + done - starts_[range];
      const std::int64_t length = std::min(count - done, ranges_[range].size - skip);
      f(row, ranges_[range].begin + skip, length, done);
      done += length;
    }
  }

 private:
  // The range in which row (or column) i of the block lies.
  std::size_t RangeHolding(std::int64_t i) const {
    return static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end(), i) -
                                    starts_.begin() - 1);
  }

  BlockAxis axis_;
  std::int64_t rows_, cols_;
  std::vector<IndexRange> ranges_;
  std::vector<std::int64_t> starts_;  // the block's row (or column) at which each range begins
};

}  // namespace headwise::newton_schulz

#endif  // HEADWISE_KERNELS_NEWTON_SCHULZ_BLOCK_VIEW_H_
