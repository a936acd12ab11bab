// cross_entropy on NVIDIA GPUs: launchers of the CUDA kernels, in two builds of the same .cu text.
//
//   headwise::cuda            by nvcc, for the GPU (//kernels/cross_entropy:cuda)
//   headwise::cuda_emulated   by the host compiler, on the CPU (:cuda_emulated)
//
// Both return the bits of cross_entropy.h, in one launch each: of the loss and of the transform a
// warp a row, of the losses' sum one block. A launcher enqueues on `stream` and returns; it never
// allocates and never waits, so that a launch can be captured in a CUDA graph. Without elements
// nothing is launched, but for the sum.
//
//   HW_RETURN_IF_ERROR(cuda::CrossEntropy<BFloat16>(
//       {.cap = 20.0}, z, targets, loss_scale, losses, dz, first_bad_target, stream));
//   HW_RETURN_IF_ERROR(cuda::SumLosses(losses, sum, stream));
//
// Traffic: z is read three times, for the largest logit, for the sum and for the gradient (twice
// for the loss alone), and dz written once. Rows that start on multiples of two elements move in
// pairs. The sum reads each loss once.
//
// On sm_90a, the largest of fp32 and bf16 gradients: CrossEntropyKernel 32 registers, with a cap
// 38; TransformLogits (MapRowsKernel) 25; SumLossesKernel 28 and 128 bytes of static shared memory;
// no other shared memory, no spills. No CUDA header is included here.
#ifndef HEADWISE_KERNELS_CROSS_ENTROPY_CUDA_H_
#define HEADWISE_KERNELS_CROSS_ENTROPY_CUDA_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/tensor/row_span.h"
#include "kernels/cross_entropy/cross_entropy.h"

struct CUstream_st;

// As the functions of these names in cross_entropy.h. T is float or BFloat16. Matrices, targets and
// losses are device memory of the caller, left alone until the stream has passed.
//
// *loss_scale (in) is in device memory too: a captured launch takes that of each replay. It is not
// read without dz, and may be null then.
//
// Targets are in device memory, so a target that is neither in [0, V) nor kIgnoredTarget is found
// by the kernel: nothing is written for its row, and the smallest index of such a target is kept in
// *first_bad_target (atomic minimum). Set that to all ones beforehand and read it at your next
// synchronisation: still all ones means that there was none. Shapes and the cap are checked here,
// as there. kInvalidArgument for a grid of more than 2^31 - 1 blocks, kInternal with CUDA's message
// if a launch fails.
//
// *sum (out) in device memory is the sum of the losses, 0 without any.
#define HW_DECLARE_LAUNCHERS                                                                  \
  template <typename T>                                                                       \
  absl::Status CrossEntropy(const LogitTransform& op, RowSpan<const float> z,                 \
                            absl::Span<const std::int32_t> targets, const double* loss_scale, \
                            absl::Span<float> losses, RowSpan<T> dz,                          \
                            std::uint64_t* first_bad_target, CUstream_st* stream);            \
  absl::Status TransformLogits(const LogitTransform& op, RowSpan<const float> z,              \
                               RowSpan<float> logits, CUstream_st* stream);                   \
  absl::Status SumLosses(absl::Span<const float> losses, double* sum, CUstream_st* stream);
namespace headwise::cuda {
HW_DECLARE_LAUNCHERS
}  // namespace headwise::cuda
namespace headwise::cuda_emulated {
HW_DECLARE_LAUNCHERS
}  // namespace headwise::cuda_emulated
#undef HW_DECLARE_LAUNCHERS

#endif  // HEADWISE_KERNELS_CROSS_ENTROPY_CUDA_H_
