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
  /* n blocks of one thread: block i is the order[i]th to come; *next is 0 before. */             \
  absl::Status NoteBlockOrder(unsigned* order, unsigned* next, int n);                            \
  /* 64 threads: thread i takes the tickets first[i] and second[i], with nothing between. */      \
  absl::Status TakeTickets(unsigned* first, unsigned* second, unsigned* next);                    \
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
