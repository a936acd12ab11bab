// Device code's Exp, Log, Tanh and Sigmoid, an element each, for math_test.
#ifndef HEADWISE_KERNELS_COMMON_CUDA_MATH_PROBE_H_
#define HEADWISE_KERNELS_COMMON_CUDA_MATH_PROBE_H_

#include "absl/status/status.h"

// results[5 * i ...] = Exp, Log, Tanh, Sigmoid of x[i], and Sigmoids(x[i]).complement; 0 <= i < n.
#define HW_DECLARE_LAUNCHERS absl::Status ProbeMath(const float* x, float* results, int n);
namespace headwise::cuda {
HW_DECLARE_LAUNCHERS
}  // namespace headwise::cuda
namespace headwise::cuda_emulated {
HW_DECLARE_LAUNCHERS
}  // namespace headwise::cuda_emulated
#undef HW_DECLARE_LAUNCHERS

#endif  // HEADWISE_KERNELS_COMMON_CUDA_MATH_PROBE_H_
