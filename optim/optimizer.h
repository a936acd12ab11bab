// Optimizer: one step for all parameters of a model. Muon for two-dimensional hidden matrices (per head where a parameter
// declares head blocks), AdamW for the rest.
//
//   auto optimizer = *Optimizer::Create(config, parameters);
//   for (int64_t step = 0; step < steps; ++step) {
//     ... backward fills every parameter's gradient ...
//     const StepReport report = optimizer->Step(step, steps, pool);
//   }
//
// Does not own the parameters; they must outlive it. Not thread-safe.
#ifndef HEADWISE_OPTIM_OPTIMIZER_H_
#define HEADWISE_OPTIM_OPTIMIZER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/proto/config.pb.h"
#include "core/tensor/tensor.h"
#include "kernels/common/thread_pool.h"
#include "optim/parameter.h"

namespace headwise {

// Which update rule a parameter gets.
enum class OptimizerGroup { kMuonPerHead, kMuon, kAdamW };

const char* Name(OptimizerGroup group);

// For the table printed at start.
struct ParameterAssignment {
  std::string name;
  ParameterRole role;
  OptimizerGroup group;
  std::int64_t elements;
  std::int64_t blocks;  // matrices that Newton-Schulz sees; 0 for AdamW
};

struct StepReport {
  double gradient_norm = 0;  // of all parameters, before clipping
  double schedule = 0;       // the factor that multiplied the learning rates
  double clip_factor = 1;    // what multiplied the clipped gradients
  bool skipped = false;      // a gradient was not finite or >= 2^96: no state changed
  std::string non_finite;    // then: the first such parameter, by name
};

// A tensor of optimizer state under a stable name ("momentum/layers.0.attention.wqkv", "adamw.m/...", "adamw.v/...").
struct NamedTensor {
  std::string name;
  Tensor tensor;  // shares storage with the optimizer
};

class Optimizer {
 public:
  // kInvalidArgument: a setting out of range (names field, value and range), a granularity that does not fit a parameter's
  // blocks, per-head granularity when no parameter declares head blocks, or two parameters with one name.
  static absl::StatusOr<std::unique_ptr<Optimizer>> Create(const OptimizerConfig& config,
                                                           std::vector<Parameter*> parameters);
  virtual ~Optimizer() = default;

  // step counts from 0 out of total_steps (for the schedule). Updates every parameter's value in place; gradients are only read.
  virtual StepReport Step(std::int64_t step, std::int64_t total_steps, ThreadPool& pool) = 0;

  virtual const std::vector<ParameterAssignment>& assignments() const = 0;
  // Momentum and moments, sorted by name; writing into them (loading a checkpoint) is allowed between steps.
  virtual std::vector<NamedTensor> State() const = 0;
};

// The schedule's factor for a step, in [0, 1].
double ScheduleFactor(const ScheduleConfig& schedule, std::int64_t step, std::int64_t total_steps);

}  // namespace headwise

#endif  // HEADWISE_OPTIM_OPTIMIZER_H_
