// attention on NVIDIA GPUs: launchers of the CUDA kernels, in two builds of the same .cu text.
//
//   headwise::cuda            by nvcc, for the GPU (//kernels/attention:cuda)
//   headwise::cuda_emulated   by the host compiler, on the CPU (//kernels/attention:cuda_emulated)
//
// Both return the bits of attention.h, whose every product is a serial fma chain: the work is that
// of fp32 lanes, not of tensor cores. Forward is one launch. Backward is three: r = d_o . o of
// every query, dq, dk with dv; and with sinks a fill and two more, which sum their gradients. A
// launcher enqueues on `stream` and returns; it never allocates and never waits, so that a launch
// can be captured in a CUDA graph, whose replays read the segments of that time.
//
//   const AttentionLaunch launch = {.stream = stream, .first_bad_segment = first_bad_segment};
//   HW_RETURN_IF_ERROR(cuda::AttentionForward<BFloat16>(op, segments, q, k, v, sinks, o,
//                                                       log_sum_exp, launch));
//
// A block takes 16 query rows of a kv group (or, for dk and dv, 16 of its keys) and walks the keys
// that they see in tiles of 64 (the rows that see them in chunks of 16), staged in shared memory as
// fp32. So forward reads a group's keys and values once for every 16 of its query rows.
//
// Dynamic shared memory in floats, P being the least of 32, 64, 128 and 256 that holds D: forward
// 16 P + 64 (P + 1) + 1024, dq 16 P more, dk with dv 64 (P + 1) + 512; at D = 128, 44, 52 and 34
// KiB. On sm_90a, the largest of all D and storage types: AttentionForwardKernel 116 registers,
// AttentionQueryKernel 126, AttentionKeyKernel 123, AttentionDeltaKernel 32, AttentionSinkKernel
// 30; no spills. No CUDA header is included here.
#ifndef HEADWISE_KERNELS_ATTENTION_CUDA_H_
#define HEADWISE_KERNELS_ATTENTION_CUDA_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/tensor/row_span.h"
#include "kernels/attention/attention.h"

struct CUstream_st;

namespace headwise {

inline constexpr std::int64_t kMostCudaHeadDim = 256;  // of the CUDA kernels

// What a launch needs besides the arguments of attention.h. Device memory of the caller.
struct AttentionLaunch {
  CUstream_st* stream = nullptr;  // a cudaStream_t
  // Segments are in device memory, so one that lies outside its rows, or has a negative member, is
  // found by the kernel: it is left out, and the smallest index of such a segment is kept here
  // (atomic minimum). Set it to all ones beforehand and read it at your next synchronisation: still
  // all ones means that there was none. Required.
  std::uint64_t* first_bad_segment = nullptr;
  float* scratch = nullptr;  // backward: AttentionBackwardScratch() floats, contents irrelevant
};

// Floats of scratch of the backward of `queries` rows.
std::int64_t AttentionBackwardScratch(const Attention& op, std::int64_t queries, bool sinks);

// As the functions of these names in attention.h, with their checks of everything but segments. T
// is float or BFloat16. Matrices, segments and sinks are device memory of the caller, left alone
// until the stream has passed. kInvalidArgument for a head_dim above kMostCudaHeadDim and for more
// than 65535 segments or kv heads; kInternal with CUDA's message if a launch fails.
#define HW_DECLARE_LAUNCHERS                                                                      \
  template <typename T>                                                                           \
  absl::Status AttentionForward(const Attention& op, absl::Span<const AttentionSegment> segments, \
                                RowSpan<const T> q, RowSpan<const T> k, RowSpan<const T> v,       \
                                absl::Span<const float> sinks, RowSpan<T> o,                      \
                                RowSpan<float> log_sum_exp, const AttentionLaunch& launch);       \
  template <typename T>                                                                           \
  absl::Status AttentionBackward(                                                                 \
      const Attention& op, absl::Span<const AttentionSegment> segments, RowSpan<const T> q,       \
      RowSpan<const T> k, RowSpan<const T> v, absl::Span<const float> sinks, RowSpan<const T> o,  \
      RowSpan<const float> log_sum_exp, RowSpan<const T> d_o, RowSpan<T> dq, RowSpan<T> dk,       \
      RowSpan<T> dv, absl::Span<float> d_sinks, const AttentionLaunch& launch);
namespace cuda {
HW_DECLARE_LAUNCHERS
}  // namespace cuda
namespace cuda_emulated {
HW_DECLARE_LAUNCHERS
}  // namespace cuda_emulated
#undef HW_DECLARE_LAUNCHERS

}  // namespace headwise

#endif  // HEADWISE_KERNELS_ATTENTION_CUDA_H_
