// What both directions of attention ask of their arguments. Internal to kernels/attention.
#ifndef HEADWISE_KERNELS_ATTENTION_CHECK_ARGUMENTS_H_
#define HEADWISE_KERNELS_ATTENTION_CHECK_ARGUMENTS_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "core/base/check.h"
#include "core/tensor/row_span.h"
#include "kernels/attention/attention.h"

namespace headwise::attention {

// Fails an HW_CHECK unless heads divide, q and k have the widths that `op` says, and every segment
// lies inside their rows.
void CheckArguments(const Attention& op, absl::Span<const AttentionSegment> segments,
                    std::int64_t query_rows, std::int64_t query_width, std::int64_t key_rows,
                    std::int64_t key_width);

// Fails an HW_CHECK unless there is a sink for every query head, or none at all.
void CheckSinks(const Attention& op, std::size_t sinks);

template <typename T, typename U>
void CheckSameShape(const RowSpan<T>& a, const RowSpan<U>& b, const char* names) {
  HW_CHECK(a.rows == b.rows && a.width == b.width)
      << names << ": " << a.rows << " x " << a.width << " and " << b.rows << " x " << b.width;
}

}  // namespace headwise::attention

#endif  // HEADWISE_KERNELS_ATTENTION_CHECK_ARGUMENTS_H_
