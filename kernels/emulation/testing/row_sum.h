// A small kernel with a bit of everything, for the emulation's tests.
#ifndef HEADWISE_KERNELS_EMULATION_TESTING_ROW_SUM_H_
#define HEADWISE_KERNELS_EMULATION_TESTING_ROW_SUM_H_

#include "absl/status/status.h"

// sums[r] = the sum of row r of x [rows, width]; *positive += how many elements are positive.
// 1 <= threads <= 1024, a multiple of 32. The order of additions depends on `threads` only.
#define HW_DECLARE_ROW_SUM                                                                  \
  absl::Status RowSum(const float* x, float* sums, unsigned* positive, int rows, int width, \
                      int threads, void* stream);

namespace headwise::cuda {
HW_DECLARE_ROW_SUM
}  // namespace headwise::cuda
namespace headwise::cuda_emulated {
HW_DECLARE_ROW_SUM
}  // namespace headwise::cuda_emulated
#undef HW_DECLARE_ROW_SUM

#endif  // HEADWISE_KERNELS_EMULATION_TESTING_ROW_SUM_H_
