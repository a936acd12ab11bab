// Other composites of the forms that multimodal_families.cc makes in full: a text model's attention
// and its tower's.
#include "optim/architectures/testing/builder.h"
#include "optim/architectures/testing/families.h"

namespace headwise {
namespace {

using nlohmann::json;

Numbers Vision(Numbers n) {
  n.heads = n.kv_heads = n.vision_heads;
  n.head_dim = n.vision_head_dim;
  return n;
}
std::int64_t VisionWidth(const Numbers& n) { return n.vision_heads * n.vision_head_dim; }

// A composite whose sections leave their types to it, as most do.
json Sections(const std::string& model_type, json text, json vision) {
  text.erase("model_type");
  return {{"model_type", model_type},
          {"text_config", std::move(text)},
          {"vision_config", std::move(vision)}};
}

// What differs between composites of separate projections.
struct Tower {
  const char* vision_type;  // in its section, where the composite does not imply it; or null
  const char* text_type;    // the same
  const char* module;       // of the tower's attention
  const char* heads = "num_attention_heads";
};

TestCheckpoint TextAndTower(const std::string& model_type, const Numbers& n, const Tower& tower) {
  const bool derived = model_type == "mllama";  // its text model does not read head_dim
  const std::int64_t width = derived ? n.heads * n.head_dim : n.width;
  json vision = {{"hidden_size", VisionWidth(n)}, {tower.heads, n.vision_heads}};
  if (tower.vision_type != nullptr) vision["model_type"] = tower.vision_type;
  json config = Sections(model_type, LlamaFields("", width, n), vision);
  if (tower.text_type != nullptr) config["text_config"]["model_type"] = tower.text_type;
  CheckpointBuilder builder(config);
  builder.Separate("language_model.model.layers.0.self_attn", width, n)
      .Separate(tower.module, VisionWidth(n), Vision(n));
  return builder.Done();
}

constexpr char kSiglipModule[] = "vision_tower.vision_model.encoder.layers.0.self_attn";

TestCheckpoint Gemma3(const std::string& model_type, const Numbers& n) {
  TestCheckpoint checkpoint = TextAndTower(model_type, n, {nullptr, nullptr, kSiglipModule});
  // The pooling head is torch's MultiheadAttention.
  CheckpointBuilder pooling{json::object()};
  pooling.Fused("vision_tower.vision_model.head.attention.in_proj_weight", "sectioned",
                n.vision_heads, n.vision_head_dim);
  checkpoint.weights.push_back(pooling.Done().weights[0]);
  return checkpoint;
}
TestCheckpoint PaliGemma(const std::string& model_type, const Numbers& n) {
  return TextAndTower(model_type, n, {"siglip_vision_model", "gemma", kSiglipModule});
}
TestCheckpoint LlavaNext(const std::string& model_type, const Numbers& n) {
  return TextAndTower(
      model_type, n,
      {"clip_vision_model", "mistral", "vision_tower.vision_model.encoder.layers.0.self_attn"});
}
TestCheckpoint Mistral3(const std::string& model_type, const Numbers& n) {
  return TextAndTower(model_type, n,
                      {"pixtral", "mistral", "vision_tower.transformer.layers.0.attention"});
}
TestCheckpoint Mllama(const std::string& model_type, const Numbers& n) {
  return TextAndTower(
      model_type, n,
      {nullptr, nullptr, "vision_model.transformer.layers.0.self_attn", "attention_heads"});
}
TestCheckpoint Llama4(const std::string& model_type, const Numbers& n) {
  return TextAndTower(model_type, n, {nullptr, nullptr, "vision_model.model.layers.0.self_attn"});
}

TestCheckpoint MuseSpark(const std::string& model_type, const Numbers& n) {
  return CheckpointBuilder(
             Sections(model_type, LlamaFields("", n.width, n),
                      {{"hidden_size", VisionWidth(n)}, {"num_attention_heads", n.vision_heads}}))
      .Gated("model.language_model.layers.0", n)
      .Separate("model.vision_tower.layers.0.attn", VisionWidth(n), Vision(n))
      .Done();
}

// The older ones have the text model's fields at the top, or a section; qwen2_vl calls its tower's
// width embed_dim.
TestCheckpoint QwenVl(const std::string& model_type, const Numbers& n) {
  const bool second = model_type == "qwen2_vl" || model_type == "qwen2_5_vl";
  const std::int64_t width = second ? n.heads * n.head_dim : n.width;
  CheckpointBuilder builder(
      Sections(model_type, LlamaFields("", width, n),
               {{model_type == "qwen2_vl" ? "embed_dim" : "hidden_size", VisionWidth(n)},
                {"num_heads", n.vision_heads}}));
  builder.Separate("model.language_model.layers.0.self_attn", width, n);
  builder.Fused("model.visual.blocks.0.attn.qkv.weight", "sectioned", n.vision_heads,
                n.vision_head_dim);
  return builder.Done();
}

TestCheckpoint Qwen35Vl(const std::string& model_type, const Numbers& n) {
  CheckpointBuilder builder(
      Sections(model_type, LlamaFields("", n.width, n),
               {{"hidden_size", VisionWidth(n)}, {"num_heads", n.vision_heads}}));
  const std::string module = "model.language_model.layers.3.self_attn";
  builder.Heads(module + ".q_proj.weight", {2 * n.heads * n.head_dim, n.width}, "gated_query",
                {{HeadRole::kQuery, n.heads, n.head_dim}, {HeadRole::kGate, n.heads, n.head_dim}});
  builder.Fused("model.visual.blocks.0.attn.qkv.weight", "sectioned", n.vision_heads,
                n.vision_head_dim);
  return builder.Done();
}

}  // namespace

std::vector<TestFamily> MultimodalKinTestFamilies() {
  return {{"gemma3", Gemma3, "gemma3", {}},
          {"paligemma", PaliGemma, "paligemma", {}},
          {"llava_next", LlavaNext, "llava_next", {}},
          {"mistral3", Mistral3, "mistral3", {}},
          {"mllama", Mllama, "mllama", {}},
          {"llama4", Llama4, "llama4", {}},
          {"muse_spark", MuseSpark, "muse_spark", {}},
          {"qwen2_vl", QwenVl, "qwen2_vl", {}},
          {"qwen2_5_vl", QwenVl, "qwen2_5_vl", {}},
          {"qwen3_vl", QwenVl, "qwen3_vl", {}},
          {"qwen3_vl_moe", QwenVl, "qwen3_vl_moe", {}},
          {"qwen3_5", Qwen35Vl, "qwen3_5", {}},
          {"qwen3_5_moe", Qwen35Vl, "qwen3_5_moe", {}}};
}

}  // namespace headwise
