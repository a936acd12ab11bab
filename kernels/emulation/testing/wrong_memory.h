// Kernels that touch memory they must not: the referee must say so, at the line whose comment has
// the kernel's name.
#ifndef HEADWISE_KERNELS_EMULATION_TESTING_WRONG_MEMORY_H_
#define HEADWISE_KERNELS_EMULATION_TESTING_WRONG_MEMORY_H_

#include "absl/status/status.h"

// One block of 32 threads; the thread `who` touches p[index], the others nothing.
#define HW_DECLARE_WRONG_MEMORY                                                 \
  absl::Status LoadOne(const float* p, long long index, int who);               \
  absl::Status StoreOne(float* p, long long index, int who);                    \
  absl::Status AddOne(unsigned* p, long long index, int who);                   \
  /* 16 bytes at once. */                                                       \
  absl::Status LoadFour(const float* p, long long index, int who);              \
  /* Shared memory: static arrays of 8 floats and 8 unsigned, and `bytes` of */ \
  /* dynamic memory as floats from byte `offset` on. The first `written` of */  \
  /* each are written before element `index` is read, or written. */            \
  absl::Status ReadShared(int written, int index);                              \
  absl::Status WriteShared(int index);                                          \
  absl::Status AddShared(int written, int index);                               \
  absl::Status ReadSharedFour(int written, int index);                          \
  absl::Status ReadDynamic(int bytes, int offset, int written, int index);      \
  /* Block 0 writes shared memory, block 1 reads it. */                         \
  absl::Status ReadsTheLastBlocksShared();                                      \
  /* 48 KiB of static shared memory and `bytes` of dynamic. */                  \
  absl::Status LargeShared(int bytes, bool allow);                              \
  /* Frames of 1 KiB, `depth` deep; the deepest loads *p, or does not. */       \
  absl::Status Recurse(const float* p, int depth, bool load);                   \
  /* One frame of 160 KiB. */                                                   \
  absl::Status LargeFrame(const float* p)

namespace headwise::cuda {
HW_DECLARE_WRONG_MEMORY;
}  // namespace headwise::cuda
namespace headwise::cuda_emulated {
HW_DECLARE_WRONG_MEMORY;
}  // namespace headwise::cuda_emulated
#undef HW_DECLARE_WRONG_MEMORY

#endif  // HEADWISE_KERNELS_EMULATION_TESTING_WRONG_MEMORY_H_
