// swiglu on NVIDIA GPUs: launchers of the CUDA kernels, in two builds of the same .cu text.
//
//   headwise::cuda            by nvcc, for the GPU (//kernels/swiglu:cuda)
//   headwise::cuda_emulated   by the host compiler, on the CPU (//kernels/swiglu:cuda_emulated)
//
// Both return the bits of swiglu.h, in one launch. A launcher enqueues on `stream` and returns; it
// never allocates and never waits, so that a launch can be captured in a CUDA graph. Without
// elements nothing is launched.
//
//   HW_RETURN_IF_ERROR(cuda::SwigluForward<BFloat16>({}, gate, up, hidden, stream));
//
// Every matrix is read or written once: in 16-byte vectors where addresses and strides are
// multiples of 16 bytes, otherwise element by element.
//
// On sm_90a: forward at most 31 registers, backward 43; no shared memory, no spills. No CUDA header
// is included here.
#ifndef HEADWISE_KERNELS_SWIGLU_CUDA_H_
#define HEADWISE_KERNELS_SWIGLU_CUDA_H_

#include "absl/status/status.h"
#include "core/tensor/row_span.h"
#include "kernels/swiglu/swiglu.h"

struct CUstream_st;

// As the functions of these names in swiglu.h, with their checks and aliases. T is float or
// BFloat16. Matrices are device memory of the caller, left alone until the stream has passed.
// kInvalidArgument for a grid of more than 2^31 - 1 blocks, kInternal with CUDA's message if the
// launch fails.
#define HW_DECLARE_LAUNCHERS                                                                \
  template <typename T>                                                                     \
  absl::Status SwigluForward(const Swiglu& op, RowSpan<const T> gate, RowSpan<const T> up,  \
                             RowSpan<T> out, CUstream_st* stream);                          \
  template <typename T>                                                                     \
  absl::Status SwigluBackward(const Swiglu& op, RowSpan<const T> gate, RowSpan<const T> up, \
                              RowSpan<const T> dout, RowSpan<T> dgate, RowSpan<T> dup,      \
                              CUstream_st* stream);
namespace headwise::cuda {
HW_DECLARE_LAUNCHERS
}  // namespace headwise::cuda
namespace headwise::cuda_emulated {
HW_DECLARE_LAUNCHERS
}  // namespace headwise::cuda_emulated
#undef HW_DECLARE_LAUNCHERS

#endif  // HEADWISE_KERNELS_SWIGLU_CUDA_H_
