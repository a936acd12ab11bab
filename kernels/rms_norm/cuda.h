// rms_norm on NVIDIA GPUs: launchers of the CUDA kernels, in two builds of the same .cu text.
//
//   headwise::cuda            by nvcc, for the GPU (//kernels/rms_norm:cuda)
//   headwise::cuda_emulated   by the host compiler, on the CPU (//kernels/rms_norm:cuda_emulated)
//
// Both return the bits of rms_norm.h. Forward is one launch; backward two, and with a weight a
// third that sums its gradient over tiles of tokens. A launcher enqueues on `stream` and returns;
// it never allocates and never waits, so that a launch can be captured in a CUDA graph.
//
//   HW_RETURN_IF_ERROR(cuda::RmsNormForward<BFloat16>(op, x, weight, y, stream));
//   HW_RETURN_IF_ERROR(
//       cuda::RmsNormBackward<BFloat16>(op, x, weight, dy, dx, dweight, scratch, stream));
//
// Traffic: forward reads x, and again from cache, and writes y. Backward reads x and dy, and x
// again from cache, for r and c of each row; then reads both once more and writes dx, beside four
// bytes of partial gradients an element of every 64th row. Rows that start on multiples of two
// elements move in pairs.
//
// On sm_90a, the larger of fp32 and bf16 storage: RmsNormForwardKernel 29 registers,
// RmsNormStatisticsKernel 40, RmsNormGradientKernel 56 and 512 bytes of static shared memory; no
// kernel spills. No CUDA header is included here.
#ifndef HEADWISE_KERNELS_RMS_NORM_CUDA_H_
#define HEADWISE_KERNELS_RMS_NORM_CUDA_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/tensor/row_span.h"
#include "kernels/rms_norm/rms_norm.h"

struct CUstream_st;

namespace headwise {

// Floats of scratch that the backward of `tokens` rows of `width` needs: r and c of each row, and
// with a weight a row for each tile of 64 tokens.
std::int64_t RmsNormBackwardScratch(const RmsNorm& op, std::int64_t tokens, std::int64_t width);

// As the functions of these names in rms_norm.h, with their checks and aliases. T is float or
// BFloat16. Matrices, weights and scratch are device memory of the caller, left alone until the
// stream has passed; scratch [RmsNormBackwardScratch()], contents irrelevant, overlaps nothing
// else. kInvalidArgument for a grid of more than 2^31 - 1 blocks, kInternal with CUDA's message if
// a launch fails.
#define HW_DECLARE_LAUNCHERS                                                                       \
  template <typename T>                                                                            \
  absl::Status RmsNormForward(const RmsNorm& op, RowSpan<const T> x,                               \
                              absl::Span<const float> weight, RowSpan<T> y, CUstream_st* stream);  \
  template <typename T>                                                                            \
  absl::Status RmsNormBackward(const RmsNorm& op, RowSpan<const T> x,                              \
                               absl::Span<const float> weight, RowSpan<const T> dy, RowSpan<T> dx, \
                               absl::Span<float> dweight, float* scratch, CUstream_st* stream);
namespace cuda {
HW_DECLARE_LAUNCHERS
}  // namespace cuda
namespace cuda_emulated {
HW_DECLARE_LAUNCHERS
}  // namespace cuda_emulated
#undef HW_DECLARE_LAUNCHERS

}  // namespace headwise

#endif  // HEADWISE_KERNELS_RMS_NORM_CUDA_H_
