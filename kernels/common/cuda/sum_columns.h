// SumColumns: adjacent-pair trees down the columns of a matrix, on NVIDIA GPUs: the last step of
// weight gradients, whose partial sums are the rows (core/tensor/adjacent_pair.h has the order).
//
//   HW_RETURN_IF_ERROR(cuda::SumColumns(partials, RowSpan(dweight, 1, width), {}, stream));
//
// One launch; nothing is allocated and nothing waited for. No CUDA header is included here.
#ifndef HEADWISE_KERNELS_COMMON_CUDA_SUM_COLUMNS_H_
#define HEADWISE_KERNELS_COMMON_CUDA_SUM_COLUMNS_H_

#include "absl/status/status.h"
#include "core/tensor/row_span.h"

struct CUstream_st;

// leaves (in) [leaves, columns], in device memory as the others. Column c's sum goes to row c / W,
// column c % W of first (out) [columns / W, W]; or where second (out) has data, to first's and
// second's rows in turn: row r / 2 of first if r = c / W is even, else of second. Without leaves,
// +0. Outputs do not overlap the leaves. kInternal if the launch fails.
#define HW_DECLARE_LAUNCHERS                                                 \
  absl::Status SumColumns(RowSpan<const float> leaves, RowSpan<float> first, \
                          RowSpan<float> second, CUstream_st* stream);
namespace headwise::cuda {
HW_DECLARE_LAUNCHERS
}  // namespace headwise::cuda
namespace headwise::cuda_emulated {
HW_DECLARE_LAUNCHERS
}  // namespace headwise::cuda_emulated
#undef HW_DECLARE_LAUNCHERS

#endif  // HEADWISE_KERNELS_COMMON_CUDA_SUM_COLUMNS_H_
