#include "optim/parameter.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace headwise {

const char* Name(ParameterRole role) {
  switch (role) {
    case ParameterRole::kEmbedding:
      return "embedding";
    case ParameterRole::kOutputHead:
      return "output_head";
    case ParameterRole::kNorm:
      return "norm";
    case ParameterRole::kBias:
      return "bias";
    case ParameterRole::kRouter:
      return "router";
    case ParameterRole::kBalancingBias:
      return "balancing_bias";
    case ParameterRole::kPackedQkv:
      return "packed_qkv";
    case ParameterRole::kQuery:
      return "query";
    case ParameterRole::kKey:
      return "key";
    case ParameterRole::kValue:
      return "value";
    case ParameterRole::kAttentionGate:
      return "attention_gate";
    case ParameterRole::kAttentionOutput:
      return "attention_output";
    case ParameterRole::kMlp:
      return "mlp";
    case ParameterRole::kExpert:
      return "expert";
  }
  return "?";
}

absl::Status ValidateTensors(const Parameter& parameter, Device device) {
  for (const auto& [what, tensor] :
       {std::pair("value", &parameter.value), std::pair("gradient", &parameter.gradient)}) {
    if (!tensor->defined()) {
      return absl::InvalidArgumentError(
          absl::StrCat("parameter ", parameter.name, " has no ", what,
                       tensor == &parameter.gradient ? ", as in a model for inference" : ""));
    }
    if (tensor->dtype() != DType::kF32 || tensor->device() != device) {
      return absl::InvalidArgumentError(absl::StrCat(
          "parameter ", parameter.name, ": the ", what, " must be F32 on ", Name(device),
          ", found ", Name(tensor->dtype()), " on ", Name(tensor->device())));
    }
  }
  if (parameter.gradient.shape() != parameter.value.shape()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "parameter ", parameter.name, ": value has shape ", ToString(parameter.value.shape()),
        ", gradient ", ToString(parameter.gradient.shape())));
  }
  return absl::OkStatus();
}

}  // namespace headwise
