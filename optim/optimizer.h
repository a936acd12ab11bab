// Optimizer: one step for all parameters of a model. Muon for two-dimensional hidden matrices (per
// head where a parameter declares head blocks), AdamW for the rest; optim/groups.h says which is
// which.
//
//   auto optimizer = *Optimizer::Create(config, parameters);
//   for (int64_t step = 0; step < steps; ++step) {
//     ... backward fills every parameter's gradient ...
//     const StepReport report = optimizer->Step(step, steps, pool);
//   }
//
// A step, in this order:
//   1. The norm of all gradients, and the guard: if an element is NaN or >= 2^96 in magnitude, the
//      step is skipped, and no value, no state and no counter changes.
//   2. The schedule's factor, which multiplies both learning rates.
//   3. Clipping: gradients in clip_scope are multiplied by min(1, clip_norm / norm). The norm is of
//      all gradients whatever the scope. By default only AdamW's are clipped: a Muon update does
//      not depend on the gradient's scale, and a clipped gradient would only count for less in the
//      momentum.
//   4. Muon for its groups (optim/muon.h), AdamW for its own (kernels/adamw). AdamW's bias
//      correction counts the steps that were not skipped; weight decay, if any, applies to every
//      parameter of the group, norms and biases too.
//   5. Balancing biases move by balancing_rate, whatever the schedule (kernels/moe/balancing.h).
//      The loads that their gradients hold are no part of the norm.
//
// The result's bits do not depend on the number of threads nor on the order of the parameters.
// Muon's compute_mode TENSOR_CORE needs kernels that have it (optim/emulated_kernels.h); on GPUs
// optim/gpu_optimizer.h is this step.
//
// On several ranks a parameter's value and gradient are this rank's shares, by the layout that the
// value carries (core/parallel/tensor_layout.h; none: R), and Step() is a collective of all ranks:
//
//   auto optimizer = *Optimizer::Create(config, parameters, &ranks);
//
// Gradients have been reduced: R, I or S as the value, never P. Norm, guard and every update have
// the bits of a single rank with the same gradients. AdamW, and Muon on blocks that are whole here
// (per head, experts cut by E), step the share; Muon's blocks that axes cut are brought together on
// one rank each (optim/cut_blocks.h). optim/optimizer_communication.h says beforehand what is sent.
//
// Does not own the parameters; they must outlive it and keep their tensors. Owns the momentum of
// Muon's groups (4 bytes per element) and the moments of AdamW's (8). Not thread-safe.
#ifndef HEADWISE_OPTIM_OPTIMIZER_H_
#define HEADWISE_OPTIM_OPTIMIZER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/parallel/comm/tensor_steps.h"
#include "core/proto/config.pb.h"
#include "core/tensor/tensor.h"
#include "kernels/common/thread_pool.h"
#include "optim/groups.h"
#include "optim/named_tensor.h"
#include "optim/optimizer_kernels.h"
#include "optim/parameter.h"
#include "optim/schedule.h"
#include "optim/step_report.h"

namespace headwise {

class Optimizer {
 public:
  // Every field of `config` is taken as it stands (an unset one as 0): optim/settings.h has the
  // ranges, optim/defaults.h a configuration to start from. kInvalidArgument: a setting out of
  // range (names field, value and range), a granularity that does not fit a parameter's blocks,
  // per-head granularity when no parameter declares head blocks, two parameters with one name, a
  // value or gradient that is not fp32 on the CPU, a gradient of another shape than its value, a
  // value that shares memory with another value or with a gradient (names both; gradients may share
  // theirs), or TENSOR_CORE without such kernels or on several ranks.
  //
  // `ranks` (not owned, must outlive the optimizer): of a run on several ranks; every rank creates
  // its own. kInvalidArgument, naming the parameter: a value that is P or V, shares of unequal
  // size, a layout that cuts heads, a balancing bias that is cut; layouts of another mesh than the
  // ranks', or of several ranks without `ranks`.
  //
  // `kernels` step Muon's blocks that are whole on a rank and AdamW's parameters; blocks that axes
  // cut are stepped on the CPU whatever they are.
  static absl::StatusOr<std::unique_ptr<Optimizer>> Create(const OptimizerConfig& config,
                                                           std::vector<Parameter*> parameters,
                                                           const MeshRanks* ranks = nullptr,
                                                           const OptimizerKernels& kernels = {});
  virtual ~Optimizer() = default;

  // step counts from 0 out of total_steps (for the schedule; ValidateSchedule says beforehand
  // whether the two fit). Updates every parameter's value in place; gradients are only read.
  virtual StepReport Step(std::int64_t step, std::int64_t total_steps, ThreadPool& pool) = 0;

  // In the order in which the parameters were given.
  virtual const std::vector<ParameterAssignment>& assignments() const = 0;

  // Everything that a later step depends on, sorted by name; writing into it (loading a checkpoint)
  // is allowed between steps:
  //   "adamw.m/<parameter>", "adamw.v/<parameter>"   F32, the parameter's shape
  //   "adamw.updates"                                I64 [1], steps not skipped
  //   "momentum/<parameter>"                         F32 [rows, columns]; experts [E out, in]
  // On ranks these are the shares, with the layout of the value: Assemble() makes the whole,
  // LocalShare() cuts it (core/parallel/comm/tensor_steps.h). Momentum then has the parameter's
  // shape, experts [E, out, in] too: the same elements in the same order. "adamw.updates" has no
  // layout and is the same on every rank.
  virtual std::vector<NamedTensor> State() const = 0;
};

}  // namespace headwise

#endif  // HEADWISE_OPTIM_OPTIMIZER_H_
