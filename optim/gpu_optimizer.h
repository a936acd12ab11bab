// GpuOptimizer: Optimizer's step for parameters in the memory of one GPU, with its bits (of Muon's
// compute_mode TENSOR_CORE: within the error bound of kernels/muon_step/cuda.h), where nothing is
// decided by the host between the gradients and the new weights: a step can be captured in a CUDA
// graph, alone or behind the backward pass, and replayed.
//
//   // A parameter's value and gradient:
//   Tensor::FromStorage(*gpu.Allocate(4 * NumElements(shape)), shape, DType::kF32, Device::kCuda);
//   auto optimizer = *GpuOptimizer::Create(config, parameters, gpu, launchers);
//   auto graph = *gpu.Capture([&] { return optimizer->Enqueue(); });
//   for (int64_t step = 0; step < steps; ++step) {
//     HW_RETURN_IF_ERROR(optimizer->Prepare(step, steps));
//     ... the backward pass fills every parameter's gradient ...
//     HW_RETURN_IF_ERROR(graph->Launch());
//     HW_ASSIGN_OR_RETURN(const StepReport report, optimizer->ReadReport());
//   }
//
// A step is that of optim/optimizer.h. What changes from one to the next is in device memory:
//
//   Prepare      learning rates by the schedule, and AdamW's factors for the update after those
//                that were not skipped: some 100 bytes
//   Enqueue      norm, guard and clip factor (kernels/gradient_norm/cuda.h), which go from kernel
//                to kernel; Muon for all of its parameters at once, AdamW for all of its own, and each
//                balancing bias. A step with an unusable gradient runs through and writes no
//                value and no state.
//   ReadReport   what the kernels decided: 24 bytes
//
// Owns the momentum (4 bytes an element of Muon's parameters), the moments (8 of AdamW's), tables
// and scratch, all of it allocated by Create(). Does not own parameters, gpu and launchers; they
// must outlive it, and the parameters keep their tensors. Not thread-safe.
#ifndef HEADWISE_OPTIM_GPU_OPTIMIZER_H_
#define HEADWISE_OPTIM_GPU_OPTIMIZER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/cuda/gpu.h"
#include "core/proto/config.pb.h"
#include "kernels/launchers/launchers.h"
#include "optim/groups.h"
#include "optim/named_tensor.h"
#include "optim/parameter.h"
#include "optim/step_report.h"

namespace headwise {

class GpuOptimizer {
 public:
  // `launchers` are those of the gpu's kernels. kInvalidArgument: as Optimizer::Create(), with
  // values and gradients on Device::kCuda; parameters that are shares of several ranks. Errors of
  // the gpu.
  static absl::StatusOr<std::unique_ptr<GpuOptimizer>> Create(const OptimizerConfig& config,
                                                              std::vector<Parameter*> parameters,
                                                              Gpu& gpu,
                                                              const KernelLaunchers& launchers);
  virtual ~GpuOptimizer() = default;

  // Before a step is enqueued or launched. Waits for what was enqueued. step counts from 0 out of
  // total_steps. After a step was prepared its report must be read before the next (HW_CHECK).
  virtual absl::Status Prepare(std::int64_t step, std::int64_t total_steps) = 0;

  // The step that was last prepared when the kernels run. Enqueues launches() kernels and a fill on
  // the stream of the gpu; allocates nothing, waits for nothing, and changes nothing on the host.
  virtual absl::Status Enqueue() = 0;
  virtual int launches() const = 0;

  // Of the step that was prepared, once it was enqueued or launched. Waits for it.
  // kFailedPrecondition if it was neither since; then it still can be.
  virtual absl::StatusOr<StepReport> ReadReport() = 0;

  // In the order in which the parameters were given.
  virtual const std::vector<ParameterAssignment>& assignments() const = 0;

  // Copies in host memory of what Optimizer::State() has: the same names, shapes and bytes, sorted
  // by name. Waits.
  virtual absl::StatusOr<std::vector<NamedTensor>> State() const = 0;
  // Takes over such copies, in any order, between steps. kInvalidArgument names a tensor that is
  // missing, unknown, of another shape or dtype, or a negative number of updates; then nothing has
  // changed.
  virtual absl::Status Load(absl::Span<const NamedTensor> state) = 0;
};

}  // namespace headwise

#endif  // HEADWISE_OPTIM_GPU_OPTIMIZER_H_
