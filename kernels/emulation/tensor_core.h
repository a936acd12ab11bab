// The product of small matrices that a warp's tensor cores make, mma.sync m16n8k16 of halves with
// fp32 sums:
//
//   D[i][j] = C[i][j] + sum over k of A[i][k] B[k][j]        A [16, 16], B [16, 8], C and D [16, 8]
//
// Each lane holds a part of each matrix. With g = lane / 4, t = lane % 4, the first of two halves in
// the lower half of a word (PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type"):
//
//   a[0], a[1], a[2], a[3]   A[g][2t, 2t + 1], A[g + 8][2t, 2t + 1], A[g][2t + 8, 2t + 9],
//                            A[g + 8][2t + 8, 2t + 9]
//   b[0], b[1]               B[2t, 2t + 1][g], B[2t + 8, 2t + 9][g]
//   d[0], ..., d[3]          D[g][2t], D[g][2t + 1], D[g + 8][2t], D[g + 8][2t + 1]
//
// The order of the sum is not part of PTX. Here: C and the products, each exact, are added in double
// in ascending k, and the sum is chopped to fp32 once, as GPUs chop it (P. Xie et al., MMA-Sim,
// github.com/microsoft/MMA-Sim, describe what they do). So a kernel with tensor cores promises an
// error bound, not bits.
//
// Internal to kernels/emulation: kernels call MultiplyHalves (cuda_kernel.h).
#ifndef HEADWISE_KERNELS_EMULATION_TENSOR_CORE_H_
#define HEADWISE_KERNELS_EMULATION_TENSOR_CORE_H_

#include "kernels/emulation/runtime.h"

namespace headwise::emulation {

// d is C before and D after.
void MultiplyFragments(const MmaOperands (&lanes)[32]);

}  // namespace headwise::emulation

#endif  // HEADWISE_KERNELS_EMULATION_TENSOR_CORE_H_
