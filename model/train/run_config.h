// run_config: the training half of a RunConfig, resolved, checked, and compared when a run is
// resumed.
#ifndef HEADWISE_MODEL_TRAIN_RUN_CONFIG_H_
#define HEADWISE_MODEL_TRAIN_RUN_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/proto/config.pb.h"
#include "model/decoder.h"

namespace headwise {

// Fills in what a zero means (model defaults, one micro-batch) so that the printed config says
// everything. Idempotent.
RunConfig ResolveRunConfig(RunConfig config);

// Makes the run `steps` long (>= 1), and its schedule's warm-up and decay longer or shorter in
// proportion.
void SetSteps(std::int64_t steps, RunConfig* config);

// kInvalidArgument names the first field that is wrong, its value and what it must be. Covers
// model, training and data; the optimizer's settings are checked by Optimizer::Create.
absl::Status ValidateRunConfig(const RunConfig& config);

// The decoder's options that the settings name.
DecoderOptions DecoderOptionsOf(const TrainingConfig& training);

// Settings that may change when a run is resumed: how long it goes on, with the schedule's steps,
// what it reports and keeps, and Muon's compute mode, so that it can go on without tensor cores.
// Anything else would make it another run: kInvalidArgument names the first such field with both
// values. `changed` gets a line for each allowed change.
absl::Status CheckResumable(const RunConfig& checkpoint, const RunConfig& wanted,
                            std::vector<std::string>* changed);

}  // namespace headwise

#endif  // HEADWISE_MODEL_TRAIN_RUN_CONFIG_H_
