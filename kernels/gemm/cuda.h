// The part of a linear layer that no matrix product is, on NVIDIA GPUs: the gradient of the bias.
// Two builds of the same .cu text:
//
//   headwise::cuda            by nvcc, for the GPU (//kernels/gemm:cuda)
//   headwise::cuda_emulated   by the host compiler, on the CPU (//kernels/gemm:cuda_emulated)
//
// Both return the bits of gemm.h's LinearBackwardBias, in two launches: sums of tiles of 64 tokens,
// and the adjacent-pair tree over tiles. A launcher enqueues on `stream` and returns; it never
// allocates and never waits, so that a launch can be captured in a CUDA graph.
//
//   // scratch: LinearBackwardBiasScratch(dy.rows, dy.width) floats of device memory
//   HW_RETURN_IF_ERROR(cuda::LinearBackwardBias<BFloat16>(dy, dbias, scratch, stream));
//
// Traffic: dy is read once, in pairs where its rows start on multiples of two elements, and four
// bytes an element of every 64th row are written and read again.
//
// On sm_90a, the larger of fp32 and bf16 storage: TileSumsKernel 30 registers; no spills. The
// products themselves are core/cuda's. No CUDA header is included here.
#ifndef HEADWISE_KERNELS_GEMM_CUDA_H_
#define HEADWISE_KERNELS_GEMM_CUDA_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/tensor/row_span.h"

struct CUstream_st;

namespace headwise {

// Floats of scratch for a dy of `tokens` rows of `width`.
std::int64_t LinearBackwardBiasScratch(std::int64_t tokens, std::int64_t width);

// dbias (out) [N] = the sum of the rows of dy (in) [T, N], +0 where there are none. T is float or
// BFloat16. dy, dbias and scratch [LinearBackwardBiasScratch()], contents irrelevant, are device
// memory of the caller, left alone until the stream has passed, and do not overlap. Without columns
// nothing is launched. A dbias of another length than the rows, or of 2^30 elements and more, fails
// an HW_CHECK. kInvalidArgument for a grid of more than 2^31 - 1 blocks, kInternal with CUDA's
// message if a launch fails.
#define HW_DECLARE_LAUNCHERS                                                                    \
  template <typename T>                                                                         \
  absl::Status LinearBackwardBias(RowSpan<const T> dy, absl::Span<float> dbias, float* scratch, \
                                  CUstream_st* stream);
namespace cuda {
HW_DECLARE_LAUNCHERS
}  // namespace cuda
namespace cuda_emulated {
HW_DECLARE_LAUNCHERS
}  // namespace cuda_emulated
#undef HW_DECLARE_LAUNCHERS

}  // namespace headwise

#endif  // HEADWISE_KERNELS_GEMM_CUDA_H_
