#include "optim/parameter.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "optim/weight_memory.h"

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

absl::Status ValidateTensors(absl::Span<const Parameter* const> parameters, Device device) {
  std::vector<WeightMemory> memory;
  for (const Parameter* p : parameters) {
    HW_RETURN_IF_ERROR(ValidateTensors(*p, device));
    memory.push_back({p->name, p->value.Rows<const float>(), p->gradient.Rows<const float>()});
  }
  return CheckWeightMemory(memory);
}

}  // namespace headwise
