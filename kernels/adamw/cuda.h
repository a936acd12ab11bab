// adamw on NVIDIA GPUs: one AdamW update of many parameters in one launch, whatever their number and
// sizes. Two builds of the same .cu text:
//
//   headwise::cuda            by nvcc, for the GPU (//kernels/adamw:cuda)
//   headwise::cuda_emulated   by the host compiler, on the CPU (//kernels/adamw:cuda_emulated)
//
// Both return the bits of AdamWStep of adamw.h, for each parameter.
//
// Addresses and sizes are planned once, on the host. A launch then allocates nothing, waits for
// nothing and reads the step's constants from device memory: captured in a CUDA graph, it takes those
// of each replay. The host forms them with MakeAdamWFactors<float>() and copies them there before
// the launch; a kernel may overwrite gradient_scale and skip, where clipping and the guard are
// decided on the device. Where skip is not zero nothing is written, and only the factors are read.
//
//   HW_ASSIGN_OR_RETURN(const AdamWPlan plan, AdamWPlan::Create(parameters));
//   // Once: plan.table() to device memory. Each step: the factors, in device memory; then
//   HW_RETURN_IF_ERROR(cuda::AdamWStep(plan, {.stream = stream, .table = table,
//                                             .factors = factors}));
//
// A thread block takes up to kBlockElements consecutive elements of one parameter, which it finds in
// the table by bisection.
//
// 28 bytes an element: gradient, weight, m and v are read once and the last three written once. A
// parameter whose four addresses are multiples of 16 bytes moves in 16-byte vectors, but for its
// last elements where 4 does not divide their number; any other one element by element. Which way
// shows in no bit.
//
// On sm_90a 48 registers, no shared memory, no spills. No CUDA header is included here.
#ifndef HEADWISE_KERNELS_ADAMW_CUDA_H_
#define HEADWISE_KERNELS_ADAMW_CUDA_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/adamw/adamw.h"

struct CUstream_st;

namespace headwise {

// A parameter: weight, m, v (in and out) and gradient (in), of one length, 0 included.
struct AdamWTensors {
  absl::Span<float> weight, m, v;
  absl::Span<const float> gradient;
};

class AdamWPlan {
 public:
  // Of the pointers only the addresses are looked at: device memory. Unequal lengths fail an
  // HW_CHECK. kInvalidArgument, naming parameters by their index: an address that is null or no
  // multiple of 4 bytes, where there are elements; more elements than a grid has blocks for; a
  // weight, m or v that shares memory with any other tensor, of whatever parameter. Gradients may
  // share theirs. No elements make a plan of no launches.
  static absl::StatusOr<AdamWPlan> Create(absl::Span<const AdamWTensors> parameters);

  // Host memory, as long as the plan: what to copy to device memory.
  absl::Span<const std::byte> table() const { return table_; }
  // Kernels of a step: 0 or 1.
  int launches() const { return blocks_ > 0 ? 1 : 0; }

  // For the launchers: parameters that have elements, and thread blocks for all of them.
  std::int64_t parameters() const { return parameters_; }
  std::int64_t blocks() const { return blocks_; }

 private:
  AdamWPlan() = default;

  std::int64_t parameters_ = 0, blocks_ = 0;
  std::vector<std::byte> table_;
};

// All memory is device memory, owned by the caller, left alone until the stream has passed the
// launch, and overlaps neither the parameters nor each other.
struct AdamWLaunch {
  CUstream_st* stream = nullptr;
  const std::byte* table = nullptr;              // a copy of plan.table(), at a multiple of 8 bytes
  const AdamWFactors<float>* factors = nullptr;  // one
};

// Enqueues a step. A missing member of `launch` fails an HW_CHECK, unless nothing is launched.
// kInternal with CUDA's message if the launch fails.
namespace cuda {
absl::Status AdamWStep(const AdamWPlan& plan, const AdamWLaunch& launch);
}  // namespace cuda
namespace cuda_emulated {
absl::Status AdamWStep(const AdamWPlan& plan, const AdamWLaunch& launch);
}  // namespace cuda_emulated

namespace adamw {

// A parameter with elements, in the table. Its elements are those of blocks [first_block, ...) of
// kBlockElements each.
struct TableEntry {
  std::uintptr_t weight, m, v, gradient;  // in device memory
  std::int64_t size;
  std::int64_t first_block;
};
inline constexpr int kBlockElements = 4096;

}  // namespace adamw
}  // namespace headwise

#endif  // HEADWISE_KERNELS_ADAMW_CUDA_H_
