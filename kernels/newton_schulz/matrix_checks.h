// What Newton-Schulz and the Muon step refuse about the matrices they are given, said once.
#ifndef HEADWISE_KERNELS_NEWTON_SCHULZ_MATRIX_CHECKS_H_
#define HEADWISE_KERNELS_NEWTON_SCHULZ_MATRIX_CHECKS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "core/heads/head_blocks.h"
#include "core/tensor/row_span.h"

namespace headwise::newton_schulz {

// Whether two matrices share memory. Columns of one buffer (equal strides) are told apart; of
// matrices with different strides, whether the memory from first to last element meets.
template <typename A, typename B>
bool Overlap(RowSpan<A> a, RowSpan<B> b) {
  if (a.empty() || b.empty()) return false;
  const auto begin_of = [](const auto& s) { return reinterpret_cast<std::uintptr_t>(s.data); };
  const auto end_of = [](const auto& s) {
    return reinterpret_cast<std::uintptr_t>(s.row(s.rows - 1) + s.width);
  };
  const std::uintptr_t a_begin = begin_of(a), b_begin = begin_of(b);
  if (end_of(a) <= b_begin || end_of(b) <= a_begin) return false;
  const std::uintptr_t a_stride = static_cast<std::uintptr_t>(a.stride) * sizeof(A);
  const std::uintptr_t b_stride = static_cast<std::uintptr_t>(b.stride) * sizeof(B);
  if (a_stride != b_stride) return true;
  // How far b's rows begin behind a's, modulo the stride.
  const std::uintptr_t shift = b_begin >= a_begin
                                   ? (b_begin - a_begin) % a_stride
                                   : (a_stride - (a_begin - b_begin) % a_stride) % a_stride;
  return shift < static_cast<std::uintptr_t>(a.width) * sizeof(A) ||
         shift + static_cast<std::uintptr_t>(b.width) * sizeof(B) > a_stride;
}

// kInvalidArgument, beginning with `what`, unless `span` is a matrix of rows x cols that can be
// walked: data where there are elements, and rows that do not run into each other.
absl::Status CheckSpan(const char* what, const void* data, std::int64_t rows, std::int64_t cols,
                       std::int64_t stride);

// kInvalidArgument unless `blocks` tiles the axis of a matrix of rows x cols.
absl::Status CheckBlocks(const HeadBlocks* blocks, std::int64_t rows, std::int64_t cols);

}  // namespace headwise::newton_schulz

#endif  // HEADWISE_KERNELS_NEWTON_SCHULZ_MATRIX_CHECKS_H_
