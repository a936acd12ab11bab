// The pieces of the gradient norm (gradient_norm.h has the order of additions): sums of squares
// along rows, which may go on from where another part of the row ended, and the tree.
//
//   std::vector<RowSquares> rows = {RowSquares(gradient)};
//   AddRowSquares(absl::MakeSpan(rows), pool);
//   const double sum = AdjacentPairSum(absl::MakeSpan(rows[0].sums));
#ifndef HEADWISE_KERNELS_GRADIENT_NORM_ROW_SQUARES_H_
#define HEADWISE_KERNELS_GRADIENT_NORM_ROW_SQUARES_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "core/tensor/row_span.h"
#include "kernels/common/thread_pool.h"

namespace headwise {

// The magnitudes of unusable elements, as bits, begin here: 2^96, and NaN and infinity are larger
// still.
inline constexpr std::uint32_t kUnusableBits = 0x6f800000u;

struct RowSquares {
  RowSpan<const float> gradient;
  std::vector<double> sums;  // of each row so far
  bool unusable = false;     // an element is NaN, or 2^96 or more in magnitude

  explicit RowSquares(const RowSpan<const float>& gradient)
      : gradient(gradient), sums(static_cast<std::size_t>(gradient.rows)) {}
};

// Adds each row's squares to its sum, in double, one after the other. Rows are on their own: the
// number of threads does not enter.
void AddRowSquares(absl::Span<RowSquares> gradients, ThreadPool& pool);

// The adjacent-pair tree over sums of squares (never -0). Overwrites them.
double AdjacentPairSum(absl::Span<double> sums);

}  // namespace headwise

#endif  // HEADWISE_KERNELS_GRADIENT_NORM_ROW_SQUARES_H_
