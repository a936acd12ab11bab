// Parameter: a named weight of a model, its gradient, its role, and, where it holds attention heads, its head blocks.
#ifndef HEADWISE_OPTIM_PARAMETER_H_
#define HEADWISE_OPTIM_PARAMETER_H_

#include <optional>
#include <string>

#include "core/heads/head_blocks.h"
#include "core/tensor/tensor.h"

namespace headwise {

// What a parameter is in its model; decides its optimizer group.
enum class ParameterRole {
  kEmbedding,
  kOutputHead,
  kNorm,
  kBias,
  kRouter,
  kPackedQkv,
  kQuery,
  kKey,
  kValue,
  kAttentionGate,
  kAttentionOutput,
  kMlp,
  kExpert,
};

const char* Name(ParameterRole role);

struct Parameter {
  std::string name;                      // unique in the model, e.g. "layers.3.attention.wqkv"
  ParameterRole role = ParameterRole::kMlp;
  Tensor value;                          // fp32 master weight; [out_features, in_features] for matrices
  Tensor gradient;                       // fp32, value's shape; written by the backward pass
  std::optional<HeadBlocks> head_blocks; // one block per head, declared when the parameter is created
};

}  // namespace headwise

#endif  // HEADWISE_OPTIM_PARAMETER_H_
