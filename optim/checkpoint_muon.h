// MuonPlan: Muon for the weights of an outside checkpoint, without our model: names, shapes and a
// config.json in; out come which weights Muon takes, cut into which blocks, and parameters for
// optim/muon.h.
//
//   absl::StatusOr<MuonPlan> plan = MuonPlan::Create(config_json, names_and_shapes, {});
//   std::vector<MuonParameter> parameters;
//   for (const PlannedWeight& weight : plan->weights()) {
//     if (weight.group == OptimizerGroup::kAdamW) continue;   // yours
//     parameters.push_back(*plan->Parameter(weight.layout.name, values[...], gradients[...]));
//   }
//   absl::StatusOr<Muon> muon = Muon::Create({.learning_rate = 0.02}, std::move(parameters));
//   ... muon->Step(pool) after each backward pass ...
//
// Give every weight of the checkpoint, not only those to train: a rule confirms a whole attention
// module or declines it (optim/architectures/resolve.h). tests/external/train_checkpoint.cc is a
// program that does all of this.
#ifndef HEADWISE_OPTIM_CHECKPOINT_MUON_H_
#define HEADWISE_OPTIM_CHECKPOINT_MUON_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/heads/head_blocks.h"
#include "optim/architectures/resolve.h"
#include "optim/groups.h"
#include "optim/muon.h"

namespace headwise {

struct MuonPlanOptions {
  // Of the weights that have head blocks; the others are one block each.
  Granularity granularity = Granularity::kHead;
  std::int64_t head_group_size = 1;  // kHeadGroup only
  ResolveOptions resolve = {};
};

struct PlannedWeight {
  WeightLayout layout;  // name, shape, head blocks or the reason why there are none
  // Muon's are the hidden matrices by role, experts [E, out, in] included. Everything else is
  // AdamW's: embeddings, the output head, norms, biases, routers, convolutions, and weights of which
  // no rule knows the role.
  OptimizerGroup group = OptimizerGroup::kAdamW;
  // Muon's: what Newton-Schulz sees, at the granularity asked for. For experts, of [E out, in].
  std::optional<HeadBlocks> blocks;
};

class MuonPlan {
 public:
  // kInvalidArgument: config_json is no JSON object; a weight without a name, or two of one name; a
  // granularity or head_group_size that does not fit some weight's heads, which is named.
  // kFailedPrecondition: a granularity finer than the whole matrix, but no weight has head blocks;
  // the reasons are counted.
  static absl::StatusOr<MuonPlan> Create(absl::string_view config_json,
                                         absl::Span<const WeightShape> weights,
                                         const MuonPlanOptions& options);

  const std::string& model_type() const { return model_type_; }
  // In the order given.
  const std::vector<PlannedWeight>& weights() const { return weights_; }

  // A weight of Muon's, as Muon::Create takes it. value and gradient: row-major fp32, as many
  // elements as the weight, as the checkpoint stores it; not owned. kNotFound, with the nearest name,
  // if there is no such weight; kInvalidArgument if it is AdamW's.
  absl::StatusOr<MuonParameter> Parameter(absl::string_view name, float* value,
                                          const float* gradient) const;

 private:
  MuonPlan() = default;

  std::string model_type_;
  std::vector<PlannedWeight> weights_;
};

}  // namespace headwise

#endif  // HEADWISE_OPTIM_CHECKPOINT_MUON_H_
