#include "optim/parameter.h"

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

}  // namespace headwise
