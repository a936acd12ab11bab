// Kernels that do one thing many times, for benchmark.cc.
#ifndef HEADWISE_KERNELS_EMULATION_TESTING_BENCHMARK_KERNELS_H_
#define HEADWISE_KERNELS_EMULATION_TESTING_BENCHMARK_KERNELS_H_

#include "absl/status/status.h"

// Each thread of blocks x threads: nothing; `times` shuffles; `times` barriers; `times` loads and
// stores of global memory (data: a float for each thread) or of shared memory.
#define HW_DECLARE_BENCHMARK_KERNELS                                       \
  absl::Status RunThreads(int blocks, int threads);                        \
  absl::Status RunShuffles(int blocks, int threads, int times);            \
  absl::Status RunBarriers(int blocks, int threads, int times);            \
  absl::Status RunGlobal(int blocks, int threads, int times, float* data); \
  absl::Status RunShared(int blocks, int threads, int times);

namespace headwise::cuda {
HW_DECLARE_BENCHMARK_KERNELS
}  // namespace headwise::cuda
namespace headwise::cuda_emulated {
HW_DECLARE_BENCHMARK_KERNELS
}  // namespace headwise::cuda_emulated
#undef HW_DECLARE_BENCHMARK_KERNELS

#endif  // HEADWISE_KERNELS_EMULATION_TESTING_BENCHMARK_KERNELS_H_
