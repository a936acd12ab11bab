// Parameter: a named weight of a model, its gradient, its role, and, where it holds attention
// heads, its head blocks. Models create them; the optimizer and checkpoints walk them.
//
//   const PackedQkv layout = *PackedQkv::Interleaved({8, 2, 64});
//   Parameter wqkv{.name = "layers.0.attention.wqkv",
//                  .role = ParameterRole::kPackedQkv,
//                  .value = Tensor::Zeros({layout.row_width(), 512}, DType::kF32, Device::kCpu),
//                  .gradient = Tensor::Zeros({layout.row_width(), 512}, DType::kF32, Device::kCpu),
//                  .head_blocks = HeadBlocks::FromPacked(layout)};
//
// Tensors share storage when copied, so a copied Parameter is the same weight. On Device::kMeta a
// parameter has a shape and no elements; optim/groups.h accepts that, Optimizer does not.
#ifndef HEADWISE_OPTIM_PARAMETER_H_
#define HEADWISE_OPTIM_PARAMETER_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
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
  // Of a router's choice (kernels/moe). The loss has no gradient for it: the gradient field holds
  // how often each expert was chosen.
  kBalancingBias,
  kPackedQkv,
  kQuery,
  kKey,
  kValue,
  kAttentionGate,
  kAttentionOutput,
  kMlp,
  kExpert,
};

// "embedding", "output_head", ..., "packed_qkv", ..., "expert".
const char* Name(ParameterRole role);

struct Parameter {
  std::string name;  // unique in the model, e.g. "layers.3.attention.wqkv"
  ParameterRole role = ParameterRole::kMlp;
  Tensor value = {};  // fp32 master weight; [out_features, in_features] for matrices
  // fp32, value's shape; written by the backward pass. Undefined in a model for inference.
  Tensor gradient = {};
  // Norm weights of q and k heads only, else undefined: the gradient before the tree over kv
  // groups, [G, D]. Micro-batches are summed here first (docs/numerics.md).
  Tensor per_group_gradient = {};
  // One block per head, declared at creation.
  std::optional<HeadBlocks> head_blocks = std::nullopt;
};

// Whether value and gradient are there, fp32 on `device` and of one shape: kInvalidArgument names the
// parameter and what is not.
absl::Status ValidateTensors(const Parameter& parameter, Device device);

// The same of every parameter, and that no value shares memory with another value or with a gradient
// (optim/weight_memory.h).
absl::Status ValidateTensors(absl::Span<const Parameter* const> parameters, Device device);

}  // namespace headwise

#endif  // HEADWISE_OPTIM_PARAMETER_H_
