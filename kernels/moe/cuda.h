// moe on NVIDIA GPUs: launchers of the CUDA kernels, in two builds of the same .cu text.
//
//   headwise::cuda            by nvcc, for the GPU (//kernels/moe:cuda)
//   headwise::cuda_emulated   by the host compiler, on the CPU (//kernels/moe:cuda_emulated)
//
// All return the bits of router.h, grouping.h, grouped_linear.h with GemmBackend::kContract, and
// balancing.h. The host never learns where tokens go: offsets and rows stay in device memory, and
// grids are those of the worst case, whose blocks without work return at once; so a layer of experts
// can be captured in a CUDA graph. A launcher enqueues on `stream` and returns; it never allocates
// and never waits. No atomic decides a bit. Without elements nothing is launched.
//
//   std::int64_t offsets[E + 1], row_of[T k];     // of expert e: rows [offsets[e], offsets[e + 1])
//   cuda::RouterForward(op, logits, bias, experts, weights, stream);
//   cuda::GroupByExpert(experts, offsets, row_of, scratch, first_bad_expert, stream);
//   cuda::DispatchForward<BFloat16>(row_of, x, rows, stream);
//   cuda::GroupedLinearForward<BFloat16>(offsets, rows, w, {}, outputs, stream);
//   cuda::CombineForward<BFloat16>(row_of, weights, outputs, y, stream);
//
//   launches: GroupByExpert and LoadBalancingLoss 3, all others 1.
//
// Traffic: DispatchForward reads x once and CombineForward each grouped row once; CombineBackward
// reads dy once a choice, from cache but for the first. A product's block takes 64 rows of one
// expert and 64 columns; products are serial chains, so on fp32 units, not on tensor cores.
//
// On sm_90a, the larger of fp32 and bf16 storage: GroupedRowsKernel 79 registers and GroupedWeight-
// Kernel 77, each with 8.5 KiB of static shared memory; GroupedBiasKernel 68, RouterForwardKernel 48
// and RouterBackwardKernel 54 (dynamic: 16 bytes an expert and 32 a choice), GroupRankKernel 31 (4
// KiB), GroupScanKernel 39, CombineBackwardKernel 40, dispatch (MapRowsKernel) 62, sums 38,
// BalancingGradientKernel 32 (dynamic: 20 bytes an expert), others at most 32; no kernel spills.
// No CUDA header is included here.
#ifndef HEADWISE_KERNELS_MOE_CUDA_H_
#define HEADWISE_KERNELS_MOE_CUDA_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/tensor/row_span.h"
#include "kernels/moe/router.h"

struct CUstream_st;

namespace headwise {

// Experts of one layer on CUDA: a token's keys lie in shared memory.
inline constexpr std::int64_t kMostCudaExperts = 4096;

// Integers of scratch that GroupByExpert needs for `choices` = T k, floats that LoadBalancingLoss
// needs for T tokens.
std::int64_t GroupByExpertScratch(std::int64_t choices, std::int64_t experts);
std::int64_t LoadBalancingLossScratch(std::int64_t tokens, std::int64_t experts);

// Shapes are those of the functions of these names in the family's headers, and are checked as
// there. T is float or BFloat16; what is in the compute type there is float here. Matrices, spans
// and scratch are device memory of the caller, left alone until the stream has passed; scratch
// overlaps nothing else, contents irrelevant. kInvalidArgument for more than kMostCudaExperts
// experts or a grid that no GPU takes, kInternal with CUDA's message if a launch fails.
//
// RouterBackward and GroupByExpert check experts (in) in the kernel: the smallest token with one out
// of range is kept in *first_bad_expert (atomic minimum). Set that to all ones beforehand and read
// it at your next synchronisation: still all ones means that there was none. RouterBackward writes
// nothing for such a token. GroupByExpert gives such a choice row -1, and the last rows to nobody;
// the others leave them out.
//
//   offsets  [E + 1], written by GroupByExpert; the others trust it.
//   row_of   [T k], likewise: the row of choice j of token t at t * k + j.
//   loads    [E]: how often each expert was chosen, whole numbers, at most 2^24 for exact ones.
//
// LoadBalancingLoss: *total = *total + weight * loss, each operation rounded once, in double.
// LoadBalancingBackward has *loss_scale * weight * tokens, each operation rounded once, in double,
// for the loss_scale of balancing.h. *loss_scale (in) is in device memory: a captured launch takes
// that of each replay.
// UpdateSelectionBias changes nothing where `skip` is not null and *skip is not zero.
#define HW_DECLARE_LAUNCHERS                                                                       \
  absl::Status RouterForward(                                                                      \
      const Router& op, RowSpan<const float> logits, absl::Span<const float> selection_bias,       \
      RowSpan<std::int32_t> experts, RowSpan<float> weights, CUstream_st* stream);                 \
  absl::Status RouterBackward(const Router& op, RowSpan<const float> logits,                       \
                              RowSpan<const std::int32_t> experts, RowSpan<const float> dweights,  \
                              RowSpan<float> dlogits, std::uint64_t* first_bad_expert,             \
                              CUstream_st* stream);                                                \
  absl::Status GroupByExpert(RowSpan<const std::int32_t> experts,                                  \
                             absl::Span<std::int64_t> offsets, absl::Span<std::int64_t> row_of,    \
                             std::int32_t* scratch, std::uint64_t* first_bad_expert,               \
                             CUstream_st* stream);                                                 \
  absl::Status CountLoads(absl::Span<const std::int64_t> offsets, absl::Span<float> loads,         \
                          CUstream_st* stream);                                                    \
  absl::Status LoadBalancingLoss(RowSpan<const float> logits, absl::Span<const float> loads,       \
                                 std::int64_t tokens, double weight, double* total,                \
                                 float* scratch, CUstream_st* stream);                             \
  absl::Status LoadBalancingBackward(RowSpan<const float> logits, absl::Span<const float> loads,   \
                                     std::int64_t tokens, double weight, const double* loss_scale, \
                                     RowSpan<float> dlogits, CUstream_st* stream);                 \
  absl::Status UpdateSelectionBias(absl::Span<const float> loads, float rate,                      \
                                   const std::uint32_t* skip, absl::Span<float> bias,              \
                                   CUstream_st* stream);                                           \
  template <typename T>                                                                            \
  absl::Status DispatchForward(absl::Span<const std::int64_t> row_of, RowSpan<const T> x,          \
                               RowSpan<T> rows, CUstream_st* stream);                              \
  template <typename T>                                                                            \
  absl::Status DispatchBackward(absl::Span<const std::int64_t> row_of, RowSpan<const T> drows,     \
                                RowSpan<T> dx, CUstream_st* stream);                               \
  template <typename T>                                                                            \
  absl::Status CombineForward(absl::Span<const std::int64_t> row_of, RowSpan<const float> weights, \
                              RowSpan<const T> outputs, RowSpan<T> y, CUstream_st* stream);        \
  template <typename T>                                                                            \
  absl::Status CombineBackward(absl::Span<const std::int64_t> row_of,                              \
                               RowSpan<const float> weights, RowSpan<const T> outputs,             \
                               RowSpan<const T> dy, RowSpan<T> doutputs, RowSpan<float> dweights,  \
                               CUstream_st* stream);                                               \
  template <typename T>                                                                            \
  absl::Status GroupedLinearForward(absl::Span<const std::int64_t> offsets, RowSpan<const T> x,    \
                                    RowSpan<const T> w, RowSpan<const float> bias, RowSpan<T> y,   \
                                    CUstream_st* stream);                                          \
  template <typename T>                                                                            \
  absl::Status GroupedLinearBackwardInput(absl::Span<const std::int64_t> offsets,                  \
                                          RowSpan<const T> dy, RowSpan<const T> w, RowSpan<T> dx,  \
                                          CUstream_st* stream);                                    \
  template <typename T>                                                                            \
  absl::Status GroupedLinearBackwardWeight(absl::Span<const std::int64_t> offsets,                 \
                                           RowSpan<const T> dy, RowSpan<const T> x,                \
                                           RowSpan<float> dw, CUstream_st* stream);                \
  template <typename T>                                                                            \
  absl::Status GroupedLinearBackwardBias(absl::Span<const std::int64_t> offsets,                   \
                                         RowSpan<const T> dy, RowSpan<float> dbias,                \
                                         CUstream_st* stream);
namespace cuda {
HW_DECLARE_LAUNCHERS
}  // namespace cuda
namespace cuda_emulated {
HW_DECLARE_LAUNCHERS
}  // namespace cuda_emulated
#undef HW_DECLARE_LAUNCHERS

}  // namespace headwise

#endif  // HEADWISE_KERNELS_MOE_CUDA_H_
