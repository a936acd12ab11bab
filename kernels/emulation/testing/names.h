// Kernels that use every name of cuda_kernel.h's memory, warps and coordinates, to see that both
// compilers take them and that they do what they say.
#ifndef HEADWISE_KERNELS_EMULATION_TESTING_NAMES_H_
#define HEADWISE_KERNELS_EMULATION_TESTING_NAMES_H_

#include "absl/status/status.h"

#define HW_DECLARE_NAMES                                                                               \
  /* One thread of one block: 31 bytes of x to y by values of 1, 2, 4, 8 and 16 bytes, from and */     \
  /* to the end on; three times, by plain, streaming and cached accesses. 32-byte aligned. */          \
  absl::Status CopyByWidths(const unsigned char* x, unsigned char* y);                                 \
  /* One block of 32 threads. v[0..2]: a sum, a minimum, a maximum of (lane - 16) * 3 with what */     \
  /* is there; u and l likewise, unsigned and 64 bits, of lane. v[3], u[3], l[3]: how often a */       \
  /* compare-and-swap added 1. old: what lane 31's addition to v found in forward order. */            \
  absl::Status Atomics(int* v, unsigned* u, unsigned long long* l, int* old);                          \
  /* For each lane of one warp: out[lane] = what lane gets of the values 100 + lane. `how`: */         \
  /* 0 index, 1 xor, 2 up, 3 down. `type`: 0 int, 1 unsigned, 2 long long, 3 float, 4 double. */       \
  absl::Status Shuffle(int* out, int how, int argument, int width, int type);                          \
  /* For each lane of one warp, of which those of `voters` vote, lane i by bit i of `votes`: */        \
  /* out[lane] = ballot, out[32 + lane] = any, out[64 + lane] = all. */                                \
  absl::Status Vote(unsigned* out, unsigned voters, unsigned votes);                                   \
  /* One thread's coordinates and the extents, 12 numbers, at out[12 * global thread]. */              \
  absl::Status Coordinates(unsigned* out);                                                             \
  /* 64 threads, shared memory of all kinds: out[i] = 2 * (63 - i) + 1. */                             \
  absl::Status SharedKinds(unsigned* out);                                                             \
  /* One warp: each lane's words of a, b and floats of d, lane after lane: d += a b, `times` times. */ \
  absl::Status Multiply(const unsigned* a, const unsigned* b, float* d, int times)

namespace headwise::cuda {
HW_DECLARE_NAMES;
}  // namespace headwise::cuda
namespace headwise::cuda_emulated {
HW_DECLARE_NAMES;
}  // namespace headwise::cuda_emulated
#undef HW_DECLARE_NAMES

#endif  // HEADWISE_KERNELS_EMULATION_TESTING_NAMES_H_
