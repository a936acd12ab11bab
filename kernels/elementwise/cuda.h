// elementwise and residual_gate on NVIDIA GPUs: launchers of the CUDA kernels, in two builds of the
// same .cu text.
//
//   headwise::cuda            by nvcc, for the GPU (//kernels/elementwise:cuda)
//   headwise::cuda_emulated   by the host compiler, on the CPU (:cuda_emulated)
//
// Both return the bits of elementwise.h and residual_gate.h. One launch each, except that
// ResidualGateBackward takes three: the gradients of the branches with partial sums of tiles of
// tokens, the tree over tiles, the gate's gradient. A launcher enqueues on `stream` and returns; it
// never allocates and never waits, so that a launch can be captured in a CUDA graph. Without
// elements nothing is launched.
//
//   HW_RETURN_IF_ERROR(cuda::Add<BFloat16>(residual, branch, residual, stream));
//
// Every matrix is read or written once. Where addresses and strides are multiples of 16 bytes, and
// for residual_gate the width too, elements move in 16-byte vectors, otherwise one by one.
//
// On sm_90a, the largest of all storage types: the elementwise kernels (MapRowsKernel) 40
// registers, ResidualGateForwardKernel 56, ResidualGateBackwardKernel 72, ResidualGateTailKernel
// 19; no shared memory, no spills. No CUDA header is included here.
#ifndef HEADWISE_KERNELS_ELEMENTWISE_CUDA_H_
#define HEADWISE_KERNELS_ELEMENTWISE_CUDA_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/tensor/row_span.h"
#include "kernels/elementwise/residual_gate.h"

struct CUstream_st;

namespace headwise {

// Floats of scratch that ResidualGateBackward needs: dalpha and dbeta of each channel, for each
// tile of 64 tokens and in all.
std::int64_t ResidualGateBackwardScratch(std::int64_t tokens, std::int64_t width);

// As the functions of these names in elementwise.h and residual_gate.h, with their checks and
// aliases. T is float or BFloat16. Matrices, vectors, destinations and scratch are device memory of
// the caller, left alone until the stream has passed; scratch [ResidualGateBackwardScratch()], contents
// irrelevant, overlaps nothing else. kInvalidArgument for a grid of more than 2^31 - 1 blocks,
// kInternal with CUDA's message if a launch fails.
#define HW_DECLARE_LAUNCHERS                                                                     \
  template <typename T>                                                                          \
  absl::Status Add(RowSpan<const T> a, RowSpan<const T> b, RowSpan<T> out, CUstream_st* stream); \
  template <typename T>                                                                          \
  absl::Status AddBias(RowSpan<const T> y, absl::Span<const float> bias, RowSpan<T> out,         \
                       CUstream_st* stream);                                                     \
  template <typename T>                                                                          \
  absl::Status SigmoidGateForward(RowSpan<const T> x, RowSpan<const T> gate, RowSpan<T> out,     \
                                  CUstream_st* stream);                                          \
  template <typename T>                                                                          \
  absl::Status SigmoidGateBackward(RowSpan<const T> x, RowSpan<const T> gate,                    \
                                   RowSpan<const T> dout, RowSpan<T> dx, RowSpan<T> dgate,       \
                                   CUstream_st* stream);                                         \
  template <typename From, typename To>                                                          \
  absl::Status Convert(RowSpan<const From> in, RowSpan<To> out, CUstream_st* stream);            \
  template <typename T>                                                                          \
  absl::Status ScatterRows(RowSpan<const T> in, absl::Span<const std::int64_t> destinations,     \
                           RowSpan<T> out, CUstream_st* stream);                                 \
  template <typename T>                                                                          \
  absl::Status ResidualGateForward(const ResidualGate& op, RowSpan<const T> residual,            \
                                   RowSpan<const T> branch, absl::Span<const float> gate,        \
                                   RowSpan<T> out, CUstream_st* stream);                         \
  template <typename T>                                                                          \
  absl::Status ResidualGateBackward(                                                             \
      const ResidualGate& op, RowSpan<const T> residual, RowSpan<const T> branch,                \
      absl::Span<const float> gate, RowSpan<const T> dout, RowSpan<T> dresidual,                 \
      RowSpan<T> dbranch, absl::Span<float> dgate, float* scratch, CUstream_st* stream);
namespace cuda {
HW_DECLARE_LAUNCHERS
}  // namespace cuda
namespace cuda_emulated {
HW_DECLARE_LAUNCHERS
}  // namespace cuda_emulated
#undef HW_DECLARE_LAUNCHERS

}  // namespace headwise

#endif  // HEADWISE_KERNELS_ELEMENTWISE_CUDA_H_
