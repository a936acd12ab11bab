#include "tools/head_blocks/headwise_checkpoint.h"

#include <map>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/proto/checkpoint.pb.h"
#include "core/proto/message_fields.h"
#include "model/decoder.h"

namespace headwise {
namespace {

WeightLayout Declared(const WeightShape& weight, const Parameter& parameter) {
  WeightLayout layout{.name = weight.name, .shape = weight.shape, .role = parameter.role};
  if (parameter.head_blocks.has_value()) {
    layout.blocks = parameter.head_blocks;
    layout.layout = "declared";
    layout.explanation = "declared by the model";
  } else if (weight.shape.size() != 2) {
    layout.declined = DeclineReason::kNotTwoDimensional;
    layout.explanation = absl::StrCat(weight.shape.size(), " dimensions");
  } else {
    layout.declined = DeclineReason::kNotAttention;
    layout.explanation = "the model declares no heads";
  }
  return layout;
}

}  // namespace

absl::StatusOr<CheckpointLayout> HeadwiseLayout(const std::string& path,
                                                const std::string& state_text,
                                                absl::Span<const WeightShape> weights) {
  CheckpointState state;
  if (const absl::Status status = ParseTextProto(path, state_text, &state); !status.ok()) {
    return absl::DataLossError(status.message());
  }
  absl::StatusOr<std::unique_ptr<Decoder>> decoder =
      Decoder::Create(state.config().model(), {.device = Device::kMeta});
  if (!decoder.ok()) {
    return absl::DataLossError(absl::StrCat(path, ": ", decoder.status().message()));
  }
  std::map<std::string, const Parameter*> parameters;
  for (const Parameter* parameter : (*decoder)->parameters()) {
    parameters[parameter->name] = parameter;
  }
  CheckpointLayout layout{.model_type = "headwise", .weights = {}};
  for (const WeightShape& weight : weights) {
    const auto it = parameters.find(weight.name);
    if (it == parameters.end()) {
      return absl::DataLossError(
          absl::StrCat(path, ": its model has no tensor ", weight.name, ", the weights do"));
    }
    if (it->second->value.shape() != weight.shape) {
      return absl::DataLossError(absl::StrCat(path, ": expected ", weight.name, " of shape ",
                                              ToString(it->second->value.shape()), ", found ",
                                              ToString(weight.shape)));
    }
    layout.weights.push_back(Declared(weight, *it->second));
    parameters.erase(it);
  }
  if (!parameters.empty()) {
    return absl::DataLossError(
        absl::StrCat(path, ": expected a tensor ", parameters.begin()->first, ", found none"));
  }
  return layout;
}

}  // namespace headwise
