// Kernels that are wrong at barriers and warp operations: the referee must say so. Each is wrong in
// block (1, 2, 0) only, at the line whose comment has its name.
#ifndef HEADWISE_KERNELS_EMULATION_TESTING_WRONG_WAITING_H_
#define HEADWISE_KERNELS_EMULATION_TESTING_WRONG_WAITING_H_

#include "absl/status/status.h"

// Runs blocks of `block_x` x 2 threads, in a grid of 2 x 3.
#define HW_DECLARE_WRONG_WAITING                                   \
  absl::Status ReturnsBeforeBarrier(int block_x, unsigned who);    \
  absl::Status DifferentBarriers(int block_x);                     \
  absl::Status MaskWithoutCaller(int block_x);                     \
  absl::Status MaskOfAll(int block_x); /* also the absent lanes */ \
  absl::Status ReturnsBeforeVote(int block_x, unsigned who);       \
  absl::Status DifferentOperations(int block_x);                   \
  absl::Status DifferentLines(int block_x);                        \
  absl::Status DifferentMasks(int block_x);                        \
  absl::Status ShuffleFromOutside(int block_x);                    \
  absl::Status ShuffleWidth(int block_x, int width);               \
  absl::Status BarrierAgainstShuffle(int block_x);

namespace headwise::cuda {
HW_DECLARE_WRONG_WAITING
}  // namespace headwise::cuda
namespace headwise::cuda_emulated {
HW_DECLARE_WRONG_WAITING
}  // namespace headwise::cuda_emulated
#undef HW_DECLARE_WRONG_WAITING

#endif  // HEADWISE_KERNELS_EMULATION_TESTING_WRONG_WAITING_H_
