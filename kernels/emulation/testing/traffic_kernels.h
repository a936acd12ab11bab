// Kernels whose traffic can be counted by hand.
#ifndef HEADWISE_KERNELS_EMULATION_TESTING_TRAFFIC_KERNELS_H_
#define HEADWISE_KERNELS_EMULATION_TESTING_TRAFFIC_KERNELS_H_

#include "absl/status/status.h"

#define HW_DECLARE_TRAFFIC                                                                       \
  /* Thread i of n (blocks of 64): y[i * stride] = x[i * stride], by values of `bytes` bytes. */ \
  absl::Status CopyStrided(const void* x, void* y, int n, int stride, int bytes);                \
  /* Row r of `rows`, one warp each: the `width` floats at x + r * stride into y + r * width. */ \
  absl::Status CopyRows(const float* x, float* y, int rows, int width, int stride);              \
  /* 32 threads: all load x[0]. */                                                               \
  absl::Status LoadTheSame(const float* x);                                                      \
  /* 32 threads: lane i loads x[0] to x[i]. */                                                   \
  absl::Status LoadTriangle(const float* x);                                                     \
  /* 32 threads: x[i] and x[32 + i], in one line of the kernel. */                               \
  absl::Status LoadPair(const float* x);                                                         \
  /* 64 threads add 1 to counters[i % 8]. */                                                     \
  absl::Status AddToEight(unsigned* counters)

namespace headwise::cuda {
HW_DECLARE_TRAFFIC;
}  // namespace headwise::cuda
namespace headwise::cuda_emulated {
HW_DECLARE_TRAFFIC;
}  // namespace headwise::cuda_emulated
#undef HW_DECLARE_TRAFFIC

#endif  // HEADWISE_KERNELS_EMULATION_TESTING_TRAFFIC_KERNELS_H_
