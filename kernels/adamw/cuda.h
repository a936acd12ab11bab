// adamw on NVIDIA GPUs: the launcher of the CUDA kernel, in two builds of the same .cu text.
//
//   headwise::cuda            by nvcc, for the GPU (//kernels/adamw:cuda)
//   headwise::cuda_emulated   by the host compiler, on the CPU (//kernels/adamw:cuda_emulated)
//
// Both return the bits of adamw.h, in one launch. The step's constants are read from device memory,
// so that a launch captured in a CUDA graph takes those of each replay: the host forms them with
// MakeAdamWFactors<float>() and copies them there before the graph; a kernel may overwrite
// gradient_scale and skip, where clipping and the guard are decided on the device. Where skip is
// not zero nothing is written, and only the factors are read.
//
//   HW_RETURN_IF_ERROR(cuda::AdamWStep(factors, weight, m, v, gradient, stream));
//
// 28 bytes an element: gradient, weight, m and v are read once and the last three written once, in
// 16-byte vectors where all four addresses are multiples of 16 bytes. On sm_90a at most 43
// registers, no shared memory, no spills. No CUDA header is included here.
#ifndef HEADWISE_KERNELS_ADAMW_CUDA_H_
#define HEADWISE_KERNELS_ADAMW_CUDA_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/adamw/adamw.h"

struct CUstream_st;

// factors (in), weight, m, v (in and out), gradient (in): device memory of the caller, left alone
// until the stream has passed; no two overlap. Unequal lengths fail an HW_CHECK. Nothing is
// launched without elements; a launcher never allocates and never waits. kInvalidArgument for a
// grid of more than 2^31 - 1 blocks, kInternal with CUDA's message if the launch fails.
#define HW_DECLARE_LAUNCHERS                                                           \
  absl::Status AdamWStep(const AdamWFactors<float>* factors, absl::Span<float> weight, \
                         absl::Span<float> m, absl::Span<float> v,                     \
                         absl::Span<const float> gradient, CUstream_st* stream);
namespace headwise::cuda {
HW_DECLARE_LAUNCHERS
}  // namespace headwise::cuda
namespace headwise::cuda_emulated {
HW_DECLARE_LAUNCHERS
}  // namespace headwise::cuda_emulated
#undef HW_DECLARE_LAUNCHERS

#endif  // HEADWISE_KERNELS_ADAMW_CUDA_H_
