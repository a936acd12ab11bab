// Kernels for launch_test.cc. Extents are what the emulation and CUDA both make of braces.
#ifndef HEADWISE_KERNELS_EMULATION_TESTING_LAUNCHES_H_
#define HEADWISE_KERNELS_EMULATION_TESTING_LAUNCHES_H_

#include "absl/status/status.h"
#include "kernels/emulation/dim3.h"

#define HW_DECLARE_LAUNCHES                                                                       \
  /* counts[block] += the threads of the block; a thread of wrong_block misses a barrier. */      \
  absl::Status Count(unsigned* counts, const emulation::Dim3& grid, const emulation::Dim3& block, \
                     int dynamic_shared_bytes, int wrong_block);                                  \
  /* Blocks of 32 threads, from `from` on wrong. */                                               \
  absl::Status CountWrongFrom(unsigned* counts, int blocks, int from);                            \
  absl::Status CountTemplate(unsigned* counts);                                                   \
  /* Two blocks of 64 threads: thread i of a block is its order[64 * block + i]th to come. */     \
  absl::Status NoteOrder(unsigned* order);                                                        \
  /* 64 threads change their arguments, then store what they were: 42. */                         \
  absl::Status ChangeArguments(int* out)

namespace headwise::cuda {
HW_DECLARE_LAUNCHES;
}  // namespace headwise::cuda
namespace headwise::cuda_emulated {
HW_DECLARE_LAUNCHES;
}  // namespace headwise::cuda_emulated
#undef HW_DECLARE_LAUNCHES

#endif  // HEADWISE_KERNELS_EMULATION_TESTING_LAUNCHES_H_
