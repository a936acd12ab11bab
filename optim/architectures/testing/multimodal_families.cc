// Models of several parts, each with its own geometry.
#include "optim/architectures/testing/builder.h"
#include "optim/architectures/testing/families.h"

namespace headwise {
namespace {

using nlohmann::json;

json TextConfig(const Numbers& n) {
  return {{"hidden_size", n.width},
          {"num_attention_heads", n.heads},
          {"num_key_value_heads", n.kv_heads},
          {"head_dim", n.head_dim}};
}

Numbers VisionNumbers(const Numbers& n) {
  Numbers vision = n;
  vision.heads = vision.kv_heads = n.vision_heads;
  vision.head_dim = n.vision_head_dim;
  return vision;
}

json With(json config, const std::string& key, const json& value) {
  config[key] = value;
  return config;
}

// A CLIP tower beside a Mistral, under the names of published checkpoints.
TestCheckpoint Llava(const std::string& model_type, const Numbers& n) {
  const Numbers vision = VisionNumbers(n);
  const std::int64_t vision_width = vision.heads * vision.head_dim;
  const json config = {{"model_type", model_type},
                       {"text_config", With(TextConfig(n), "model_type", "mistral")},
                       {"vision_config",
                        {{"model_type", "clip_vision_model"},
                         {"hidden_size", vision_width},
                         {"num_attention_heads", vision.heads}}}};
  return CheckpointBuilder(config)
      .Separate("language_model.model.layers.0.self_attn", n.width, n)
      .Separate("vision_tower.vision_model.encoder.layers.0.self_attn", vision_width, vision)
      .Whole("vision_tower.vision_model.encoder.layers.0.self_attn.out_proj.weight",
             {vision_width, vision_width})
      .Whole("multi_modal_projector.linear_1.weight", {n.width, vision_width})
      .Whole("language_model.lm_head.weight", {128, n.width})
      .Done();
}

// The attention gate has the queries' heads; the feed-forward layer's gate_proj is none of them,
// though it has as many rows.
TestCheckpoint MuseGlimmer(const std::string& model_type, const Numbers& n) {
  const Numbers vision = VisionNumbers(n);
  const std::int64_t vision_width = vision.heads * vision.head_dim;
  const std::string layer = "model.language_model.layers.0";
  const std::int64_t rows = n.heads * n.head_dim;
  return CheckpointBuilder({{"model_type", model_type},
                            {"text_config", With(TextConfig(n), "model_type", "muse_glimmer_text")},
                            {"vision_config",
                             {{"model_type", "muse_glimmer_vision"},
                              {"hidden_size", vision_width},
                              {"num_attention_heads", vision.heads}}}})
      .Separate(layer + ".self_attn", n.width, n)
      .Heads(layer + ".self_attn.gate_proj.weight", {rows, n.width}, "separate",
             {{HeadRole::kGate, n.heads, n.head_dim}})
      .Whole(layer + ".self_attn.o_proj.weight", {n.width, rows})
      .Whole(layer + ".mlp.gate_proj.weight", {rows, n.width})
      .Separate("model.vision_tower.layers.0.attn", vision_width, vision)
      .Whole("model.vision_projection.weight", {n.width, vision_width})
      .Done();
}

// The text model's fields stand at the top, as in checkpoints before sections.
TestCheckpoint QwenVlFlat(const std::string& model_type, const Numbers& n) {
  const Numbers vision = VisionNumbers(n);
  const std::int64_t width = n.heads * n.head_dim;
  const std::int64_t vision_width = vision.heads * vision.head_dim;
  return CheckpointBuilder({{"model_type", model_type},
                            {"hidden_size", width},
                            {"num_attention_heads", n.heads},
                            {"num_key_value_heads", n.kv_heads},
                            {"vision_config",
                             {{"model_type", model_type},
                              {"hidden_size", vision_width},
                              {"num_heads", vision.heads}}}})
      .Separate("model.layers.0.self_attn", width, n)
      .Heads("visual.blocks.0.attn.qkv.weight", {3 * vision_width, vision_width}, "sectioned",
             {{HeadRole::kQuery, vision.heads, vision.head_dim},
              {HeadRole::kKey, vision.heads, vision.head_dim},
              {HeadRole::kValue, vision.heads, vision.head_dim}})
      .Whole("visual.blocks.0.attn.proj.weight", {vision_width, vision_width})
      .Done();
}

Numbers Published(std::int64_t width, std::int64_t heads, std::int64_t kv_heads,
                  std::int64_t head_dim, std::int64_t vision_heads, std::int64_t vision_head_dim) {
  Numbers n;
  n.width = width;
  n.heads = heads;
  n.kv_heads = kv_heads;
  n.head_dim = head_dim;
  n.vision_heads = vision_heads;
  n.vision_head_dim = vision_head_dim;
  return n;
}

}  // namespace

std::vector<TestFamily> MultimodalTestFamilies() {
  return {
      // 16 vision heads of 64 are as many rows as 8 text heads of 128.
      {"llava", Llava, "llava", {Published(4096, 32, 8, 128, 16, 64)}},
      {"muse_glimmer", MuseGlimmer, "muse_glimmer", {Published(6656, 32, 2, 128, 16, 96)}},
      {"qwen2_5_vl, flat", QwenVlFlat, "qwen2_5_vl", {Published(0, 28, 4, 128, 16, 80)}},
  };
}

}  // namespace headwise
