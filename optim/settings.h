// settings: an OptimizerConfig checked and turned into what the update rules take.
#ifndef HEADWISE_OPTIM_SETTINGS_H_
#define HEADWISE_OPTIM_SETTINGS_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/heads/head_blocks.h"
#include "core/proto/config.pb.h"
#include "kernels/adamw/adamw.h"
#include "kernels/muon_step/cuda.h"
#include "kernels/muon_step/muon_step.h"

namespace headwise {

struct OptimizerSettings {
  MuonHyperparameters muon;  // peak learning rate
  // What muon.coefficients points to, where it is no named set.
  std::shared_ptr<const NewtonSchulzCoefficients> custom_coefficients;
  Granularity granularity = Granularity::kHead;
  std::int64_t head_group_size = 0;
  MuonMode muon_mode = MuonMode::kContract;
  AdamWHyperparameters adamw;  // peak learning rate
  ScheduleConfig schedule;
  double clip_norm = 0;
  ClipScope clip_scope = CLIP_ADAMW;
  double balancing_rate = 0;
};

// An unset field counts as 0 (or the enum's first value), which is then checked like any other: a
// learning rate of 0 and a clip_norm of 0 (no clipping) are legal, an epsilon of 0 is not.
// kInvalidArgument names the field by its path in RunConfig
// ("optimizer.muon.momentum"), its value and its range.
absl::StatusOr<OptimizerSettings> ResolveSettings(const OptimizerConfig& config);

// Whether Muon can be computed as optimizer.muon.compute_mode asks for: on `ranks`, 1 or more, by
// kernels of which there are such for tensor cores or not. kInvalidArgument says what to try.
absl::Status CheckComputeMode(const OptimizerConfig& config, bool tensor_cores, std::int64_t ranks);

}  // namespace headwise

#endif  // HEADWISE_OPTIM_SETTINGS_H_
