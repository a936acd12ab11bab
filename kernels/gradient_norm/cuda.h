// gradient_norm on NVIDIA GPUs: the norm of all gradients, the guard, and what follows from them
// for the step, decided on the device in three launches, whatever the number of parameters and
// their sizes. Two builds of one .cu text:
//
//   headwise::cuda            by nvcc, for the GPU (//kernels/gradient_norm:cuda)
//   headwise::cuda_emulated   by the host compiler, on the CPU (:cuda_emulated)
//
// Both return the bits of SummarizeGradients() and ClipFactor() of gradient_norm.h.
//
// Addresses and shapes are planned once, on the host. A launch then allocates nothing and waits for
// nothing, so that it can be captured in a CUDA graph and replayed.
//
//   // In name order: the tree over parameters is in the order given here.
//   HW_ASSIGN_OR_RETURN(const GradientNormPlan plan, GradientNormPlan::Create(gradients));
//   // Once: plan.table() to device memory, and plan.scratch_bytes() of it, uninitialised.
//   // Each step, before the updates read their words:
//   HW_RETURN_IF_ERROR(cuda::DecideStep(
//       plan, {.stream = stream, .table = table, .scratch = scratch, .clip_norm = 1.0,
//              .decision = decision, .adamw_scale = &factors->gradient_scale,
//              .adamw_skip = &factors->skip, .muon_skip = &scalars->skip}));
//   // After it, when the host waits anyway: *decision.
//
// Launches:
//
//   squares     a warp for 32 rows of a gradient, a lane for each row's serial sum; elements come
//               through shared memory, so that a warp loads 128 consecutive bytes of a row
//   parameters  a block for each parameter: the tree over its rows
//   decision    one block: the tree over parameters, the root, and the words
//
// Traffic: every gradient is read once; besides, 8 bytes a row are written and read.
//
// On sm_90a: RowSquaresKernel 69 registers and 16.5 KiB of static shared memory,
// ParameterSquaresKernel 30 and 192 bytes, DecisionKernel 30 and 192 bytes; no kernel spills. No
// CUDA header is included here.
#ifndef HEADWISE_KERNELS_GRADIENT_NORM_CUDA_H_
#define HEADWISE_KERNELS_GRADIENT_NORM_CUDA_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/tensor/row_span.h"

struct CUstream_st;

namespace headwise {

// What a step's gradients come to; in device memory.
struct GradientDecision {
  double norm = 0;         // as GradientSummary's
  double clip_factor = 1;  // ClipFactor(); 1 where the step is skipped
  std::uint32_t skip = 0;  // 1: an element is unusable, and nothing may change
  // Then the first gradient, by its place in the plan, that has one; all ones: none has.
  std::uint32_t first_unusable = ~std::uint32_t{0};
};

class GradientNormPlan {
 public:
  // Of the pointers only the addresses are looked at: device memory. A gradient may have no
  // elements. kInvalidArgument, naming the gradient by its index: a null pointer with elements, a
  // negative extent; or more rows than a grid has blocks for.
  static absl::StatusOr<GradientNormPlan> Create(absl::Span<const RowSpan<const float>> gradients);

  // Host memory, as long as the plan: what to copy to device memory.
  absl::Span<const std::byte> table() const { return table_; }
  // A multiple of 16.
  std::int64_t scratch_bytes() const;
  // Kernels of a step.
  int launches() const { return 1 + (gradients_ > 0) + (groups_ > 0); }

  // For the launchers: gradients, and groups of 32 rows of one gradient.
  std::int64_t gradients() const { return gradients_; }
  std::int64_t groups() const { return groups_; }

 private:
  GradientNormPlan() = default;

  std::int64_t gradients_ = 0, groups_ = 0;
  std::vector<std::byte> table_;
};

// All memory is device memory, owned by the caller, left alone until the stream has passed the
// launch, and overlaps neither the gradients nor each other.
struct GradientNormLaunch {
  CUstream_st* stream = nullptr;
  const std::byte* table = nullptr;  // a copy of plan.table(), at a multiple of 8 bytes
  std::byte* scratch = nullptr;      // plan.scratch_bytes() at a multiple of 8; contents irrelevant
  double clip_norm = 0;              // by value: finite and 0 or more; 0 means no clipping
  GradientDecision* decision = nullptr;  // written
  // Words of the updates that follow, written too where they are not null: the clip factor, rounded
  // once to fp32 for AdamWFactors<float>; and `skip`. Leave muon_scale null where Muon's gradients
  // are not clipped.
  float* adamw_scale = nullptr;
  std::uint32_t* adamw_skip = nullptr;
  double* muon_scale = nullptr;
  std::uint32_t* muon_skip = nullptr;
};

// Enqueues the step's decision. A missing member of `launch` or a clip_norm out of range fails an
// HW_CHECK. kInternal with CUDA's message if a launch fails.
namespace cuda {
absl::Status DecideStep(const GradientNormPlan& plan, const GradientNormLaunch& launch);
}  // namespace cuda
namespace cuda_emulated {
absl::Status DecideStep(const GradientNormPlan& plan, const GradientNormLaunch& launch);
}  // namespace cuda_emulated

namespace gradient_norm {

// A gradient in the table. Its rows are groups [first_group, ...) of 32 rows each.
struct TableEntry {
  std::uintptr_t data;  // in device memory
  std::int64_t stride;  // in elements
  std::int64_t rows, width;
  std::int64_t first_group;
};
inline constexpr int kGroupRows = 32;

// Where things are in the scratch, in bytes.
struct ScratchLayout {
  std::int64_t row_sums;        // double [groups, kGroupRows]
  std::int64_t parameter_sums;  // double [gradients]
  std::int64_t group_unusable;  // uint32 [groups]
  std::int64_t unusable;        // uint32 [gradients]
  std::int64_t bytes;
};
ScratchLayout LayoutOf(const GradientNormPlan& plan);

}  // namespace gradient_norm
}  // namespace headwise

#endif  // HEADWISE_KERNELS_GRADIENT_NORM_CUDA_H_
