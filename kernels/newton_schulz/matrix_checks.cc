#include "kernels/newton_schulz/matrix_checks.h"

#include "absl/strings/str_cat.h"

namespace headwise::newton_schulz {

absl::Status CheckSpan(const char* what, const void* data, std::int64_t rows, std::int64_t cols,
                       std::int64_t stride) {
  if (rows <= 0 || cols <= 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        what, " must have at least one row and column, found [", rows, ", ", cols, "]"));
  }
  if (data == nullptr) return absl::InvalidArgumentError(absl::StrCat(what, " has no data"));
  if (rows > 1 && stride < cols) {
    return absl::InvalidArgumentError(absl::StrCat(what, " has rows of ", cols, " elements but ",
                                                   stride, " from one row to the next"));
  }
  return absl::OkStatus();
}

absl::Status CheckBlocks(const HeadBlocks* blocks, std::int64_t rows, std::int64_t cols) {
  if (blocks == nullptr) return absl::InvalidArgumentError("it has no head blocks");
  const bool by_rows = blocks->axis() == BlockAxis::kRows;
  const std::int64_t size = by_rows ? rows : cols;
  if (blocks->axis_size() != size) {
    return absl::InvalidArgumentError(absl::StrCat("its head blocks tile ", blocks->axis_size(),
                                                   by_rows ? " rows" : " columns",
                                                   " but the matrix is [", rows, ", ", cols, "]"));
  }
  return absl::OkStatus();
}

}  // namespace headwise::newton_schulz
