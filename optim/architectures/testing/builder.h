// CheckpointBuilder: one test checkpoint, weight by weight.
#ifndef HEADWISE_OPTIM_ARCHITECTURES_TESTING_BUILDER_H_
#define HEADWISE_OPTIM_ARCHITECTURES_TESTING_BUILDER_H_

#include <string>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"
#include "optim/architectures/testing/checkpoints.h"

namespace headwise {

// A configuration with fields named as Llama's.
inline nlohmann::json LlamaFields(const std::string& model_type, std::int64_t width,
                                  const Numbers& n) {
  return {{"model_type", model_type},
          {"hidden_size", width},
          {"num_attention_heads", n.heads},
          {"num_key_value_heads", n.kv_heads},
          {"head_dim", n.head_dim}};
}

class CheckpointBuilder {
 public:
  explicit CheckpointBuilder(const nlohmann::json& config) { checkpoint_.config = config.dump(1); }

  // A weight that is cut into heads.
  CheckpointBuilder& Heads(const std::string& name, Shape shape, const std::string& layout,
                           std::vector<ExpectedHeads> heads) {
    checkpoint_.weights.push_back(
        {{name, std::move(shape)}, std::nullopt, layout, std::move(heads)});
    return *this;
  }
  // The last weight's heads lie on the columns of transposed storage.
  CheckpointBuilder& OnColumns() {
    checkpoint_.weights.back().axis = BlockAxis::kColumns;
    checkpoint_.weights.back().transposed_storage = true;
    return *this;
  }
  CheckpointBuilder& Whole(const std::string& name, Shape shape,
                           DeclineReason reason = DeclineReason::kNotAttention) {
    checkpoint_.weights.push_back({{name, std::move(shape)}, reason});
    return *this;
  }
  CheckpointBuilder& Vector(const std::string& name, std::int64_t size) {
    return Whole(name, {size}, DeclineReason::kNotTwoDimensional);
  }
  // q, k and v of one module; sizes of heads as given.
  CheckpointBuilder& Separate(const std::string& module, std::int64_t width, const Numbers& n) {
    return Heads(module + ".q_proj.weight", {n.heads * n.head_dim, width}, "separate",
                 {{HeadRole::kQuery, n.heads, n.head_dim}})
        .Heads(module + ".k_proj.weight", {n.kv_heads * n.head_dim, width}, "separate",
               {{HeadRole::kKey, n.kv_heads, n.head_dim}})
        .Heads(module + ".v_proj.weight", {n.kv_heads * n.head_dim, width}, "separate",
               {{HeadRole::kValue, n.kv_heads, n.head_dim}});
  }
  // As many queries as keys and values in one projection, each head_dim wide.
  CheckpointBuilder& Fused(const std::string& name, const std::string& layout, std::int64_t heads,
                           std::int64_t head_dim) {
    return Heads(name, {3 * heads * head_dim, heads * head_dim}, layout,
                 {{HeadRole::kQuery, heads, head_dim},
                  {HeadRole::kKey, heads, head_dim},
                  {HeadRole::kValue, heads, head_dim}});
  }
  // q, k, v and a gate of a row per query element; the feed-forward layer's gate_proj has as many
  // rows, and no heads.
  CheckpointBuilder& Gated(const std::string& layer, const Numbers& n) {
    const std::int64_t rows = n.heads * n.head_dim;
    return Separate(layer + ".self_attn", n.width, n)
        .Heads(layer + ".self_attn.gate_proj.weight", {rows, n.width}, "separate",
               {{HeadRole::kGate, n.heads, n.head_dim}})
        .Whole(layer + ".mlp.gate_proj.weight", {rows, n.width});
  }
  // What every decoder has around its attention.
  CheckpointBuilder& Surroundings(const std::string& base, const std::string& layer,
                                  std::int64_t width) {
    return Whole(base + "embed_tokens.weight", {128, width})
        .Vector(base + "norm.weight", width)
        .Whole(layer + ".mlp.gate_proj.weight", {3 * width, width})
        .Whole(layer + ".mlp.down_proj.weight", {width, 3 * width})
        .Vector(layer + ".input_layernorm.weight", width)
        .Whole("lm_head.weight", {128, width});
  }

  TestCheckpoint Done() { return std::move(checkpoint_); }

 private:
  TestCheckpoint checkpoint_;
};

}  // namespace headwise

#endif  // HEADWISE_OPTIM_ARCHITECTURES_TESTING_BUILDER_H_
