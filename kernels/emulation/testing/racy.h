// Kernels with a race, and the same without it. TSan must find the one and be silent on the other.
#ifndef HEADWISE_KERNELS_EMULATION_TESTING_RACY_H_
#define HEADWISE_KERNELS_EMULATION_TESTING_RACY_H_

#include "absl/status/status.h"

#define HW_DECLARE_RACY                                                                           \
  /* One block of 64 threads; out[i] = i + 1 from the neighbour's shared memory. Without the */   \
  /* barrier the right values come out in one order of the threads. */                            \
  absl::Status PassOn(unsigned* out, bool barrier);                                               \
  /* The same by global memory. */                                                                \
  absl::Status PassOnGlobal(unsigned* scratch, unsigned* out, bool barrier);                      \
  /* The same among the lanes of each warp, who wait for each other by __syncwarp, by a */        \
  /* shuffle, which orders no memory, or not at all. */                                           \
  absl::Status PassOnInWarp(unsigned* out, int wait);                                             \
  /* `blocks` blocks of one thread; each adds 1 to *sum, atomically or by a load and a store. */  \
  absl::Status CountBlocks(unsigned* sum, int blocks, bool atomic);                               \
  /* Blocks of 64 threads that all end at a barrier; each stores to its own element, or to the */ \
  /* same as the block before. */                                                                 \
  absl::Status StorePerBlock(unsigned* out, int blocks, bool own);                                \
  /* A barrier is missing in the second round of two. */                                          \
  absl::Status TwoRounds(unsigned* out, bool barrier)

namespace headwise::cuda {
HW_DECLARE_RACY;
}  // namespace headwise::cuda
namespace headwise::cuda_emulated {
HW_DECLARE_RACY;
}  // namespace headwise::cuda_emulated
#undef HW_DECLARE_RACY

#endif  // HEADWISE_KERNELS_EMULATION_TESTING_RACY_H_
