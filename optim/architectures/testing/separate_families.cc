// Query, key and value projections stored apart.
#include "optim/architectures/testing/builder.h"
#include "optim/architectures/testing/families.h"

namespace headwise {
namespace {

using nlohmann::json;

json GroupedConfig(const std::string& model_type, std::int64_t width, const Numbers& n) {
  return {{"architectures", {"AForCausalLM"}},
          {"model_type", model_type},
          {"hidden_size", width},
          {"num_attention_heads", n.heads},
          {"num_key_value_heads", n.kv_heads},
          {"num_hidden_layers", 1}};
}

// head_dim is a field of its own.
TestCheckpoint GivenHeadDim(const std::string& model_type, const Numbers& n) {
  json config = GroupedConfig(model_type, n.width, n);
  config["head_dim"] = n.head_dim;
  const std::string module = "model.layers.0.self_attn";
  return CheckpointBuilder(config)
      .Separate(module, n.width, n)
      .Whole(module + ".o_proj.weight", {n.width, n.heads * n.head_dim})
      .Surroundings("model.", "model.layers.0", n.width)
      .Done();
}

// head_dim is hidden_size / heads, because the field is absent.
TestCheckpoint DerivedHeadDim(const std::string& model_type, const Numbers& n) {
  const std::int64_t width = n.heads * n.head_dim;
  const std::string module = "model.layers.0.self_attn";
  return CheckpointBuilder(GroupedConfig(model_type, width, n))
      .Separate(module, width, n)
      .Whole(module + ".o_proj.weight", {width, width})
      .Surroundings("model.", "model.layers.0", width)
      .Done();
}

// num_key_value_heads and head_dim are null: as many as query heads, hidden_size / heads.
TestCheckpoint NullFields(const std::string& model_type, const Numbers& n) {
  Numbers multi_head = n;
  multi_head.kv_heads = n.heads;
  json config = GroupedConfig(model_type, n.heads * n.head_dim, n);
  config["num_key_value_heads"] = nullptr;
  config["head_dim"] = nullptr;
  return CheckpointBuilder(config)
      .Separate("model.layers.0.self_attn", n.heads * n.head_dim, multi_head)
      .Done();
}

// The 2-D expert biases are no matrices with heads, and each head has a sink.
TestCheckpoint GptOss(const std::string& model_type, const Numbers& n) {
  json config = GroupedConfig(model_type, n.width, n);
  config["head_dim"] = n.head_dim;
  const std::string module = "model.layers.0.self_attn";
  return CheckpointBuilder(config)
      .Separate(module, n.width, n)
      .Vector(module + ".q_proj.bias", n.heads * n.head_dim)
      .Whole(module + ".o_proj.weight", {n.width, n.heads * n.head_dim})
      .Vector(module + ".sinks", n.heads)
      .Whole("model.layers.0.mlp.router.weight", {32, n.width})
      .Whole("model.layers.0.mlp.experts.gate_up_proj_bias", {32, 2 * n.width})
      .Whole("model.layers.0.mlp.experts.down_proj_bias", {32, n.width})
      .Whole("model.layers.0.mlp.experts.down_proj", {32, n.width, n.width},
             DeclineReason::kNotTwoDimensional)
      .Done();
}

TestCheckpoint Phi(const std::string& model_type, const Numbers& n) {
  const std::int64_t width = n.heads * n.head_dim;
  return CheckpointBuilder(GroupedConfig(model_type, width, n))
      .Separate("model.layers.0.self_attn", width, n)
      .Whole("model.layers.0.self_attn.dense.weight", {width, width})
      .Done();
}

TestCheckpoint MultiHead(json config, const std::string& module, const Numbers& n,
                         const std::string& output) {
  Numbers multi_head = n;
  multi_head.kv_heads = n.heads;
  const std::int64_t width = n.heads * n.head_dim;
  return CheckpointBuilder(std::move(config))
      .Separate(module, width, multi_head)
      .Vector(module + ".q_proj.bias", width)
      .Whole(module + output, {width, width})
      .Done();
}

TestCheckpoint Opt(const std::string& model_type, const Numbers& n) {
  return MultiHead({{"model_type", model_type},
                    {"hidden_size", n.heads * n.head_dim},
                    {"num_attention_heads", n.heads},
                    {"word_embed_proj_dim", 99}},
                   "model.decoder.layers.0.self_attn", n, ".out_proj.weight");
}

TestCheckpoint GptJ(const std::string& model_type, const Numbers& n) {
  return MultiHead({{"model_type", model_type},
                    {"n_embd", n.heads * n.head_dim},
                    {"n_head", n.heads},
                    {"rotary_dim", 64},
                    {"n_inner", nullptr}},
                   "transformer.h.0.attn", n, ".out_proj.weight");
}

TestCheckpoint GptNeo(const std::string& model_type, const Numbers& n) {
  return MultiHead(
      {{"model_type", model_type}, {"hidden_size", n.heads * n.head_dim}, {"num_heads", n.heads}},
      "transformer.h.0.attn.attention", n, ".out_proj.weight");
}

// Each layer has its own number of query heads.
TestCheckpoint Laguna(const std::string& model_type, const Numbers& n) {
  Numbers more = n;
  more.heads = 2 * n.heads;
  json config = GroupedConfig(model_type, n.width, n);
  config["head_dim"] = n.head_dim;
  config["num_attention_heads_per_layer"] = {n.heads, more.heads};
  config["gating"] = "elementwise";
  CheckpointBuilder builder(config);
  for (const auto& [layer, numbers] : {std::pair("0", n), std::pair("1", more)}) {
    const std::string module = std::string("model.layers.") + layer + ".self_attn";
    builder.Separate(module, n.width, numbers)
        .Heads(module + ".g_proj.weight", {numbers.heads * n.head_dim, n.width}, "separate",
               {{HeadRole::kGate, numbers.heads, n.head_dim}})
        .Vector(module + ".q_norm.weight", n.head_dim);
  }
  return builder.Done();
}

// Sliding layers have twice the key/value heads, and values have a width of their own.
TestCheckpoint MiMo(const std::string& model_type, const Numbers& n) {
  Numbers even = n;
  even.heads = 2 * n.heads;
  json config = GroupedConfig(model_type, n.width, even);
  config["head_dim"] = n.head_dim;
  config["v_head_dim"] = n.value_dim;
  config["layer_types"] = {"full_attention", "sliding_attention"};
  CheckpointBuilder builder(config);
  for (const std::int64_t layer : {0, 1}) {
    const std::string module = "model.layers." + std::to_string(layer) + ".self_attn";
    const std::int64_t kv_heads = n.kv_heads * (1 + layer);
    builder
        .Heads(module + ".q_proj.weight", {even.heads * n.head_dim, n.width}, "separate",
               {{HeadRole::kQuery, even.heads, n.head_dim}})
        .Heads(module + ".k_proj.weight", {kv_heads * n.head_dim, n.width}, "separate",
               {{HeadRole::kKey, kv_heads, n.head_dim}})
        .Heads(module + ".v_proj.weight", {kv_heads * n.value_dim, n.width}, "separate",
               {{HeadRole::kValue, kv_heads, n.value_dim}});
  }
  return builder.Vector("model.layers.1.self_attn.attention_sink_bias", even.heads).Done();
}

Numbers Published(std::int64_t width, std::int64_t heads, std::int64_t kv_heads,
                  std::int64_t head_dim) {
  Numbers n;
  n.width = width;
  n.heads = heads;
  n.kv_heads = kv_heads;
  n.head_dim = head_dim;
  return n;
}

}  // namespace

std::vector<TestFamily> SeparateTestFamilies() {
  std::vector<TestFamily> families = {
      {"llama", DerivedHeadDim, "llama", {Published(0, 32, 8, 128), Published(0, 128, 8, 128)}},
      {"llama, null fields", NullFields, "llama", {Published(0, 32, 0, 128)}},
      {"llama, head_dim given", GivenHeadDim, "llama", {Published(2048, 32, 8, 64)}},
      {"mistral", GivenHeadDim, "mistral", {Published(5120, 32, 8, 128)}},
      {"mixtral", DerivedHeadDim, "mixtral", {Published(0, 32, 8, 128)}},
      {"qwen2", DerivedHeadDim, "qwen2", {Published(0, 28, 4, 128)}},
      {"qwen3", GivenHeadDim, "qwen3", {Published(5120, 64, 8, 128)}},
      {"gemma", GivenHeadDim, "gemma", {Published(3072, 16, 16, 256)}},
      {"gemma2", GivenHeadDim, "gemma2", {Published(4608, 32, 16, 128)}},
      {"gemma3_text", GivenHeadDim, "gemma3_text", {Published(1152, 4, 1, 256)}},
      {"phi", Phi, "phi", {Published(0, 32, 32, 80)}},
      {"gpt_oss", GptOss, "gpt_oss", {Published(2880, 64, 8, 64)}},
      {"opt", Opt, "opt", {Published(0, 32, 0, 128)}},
      {"gptj", GptJ, "gptj", {Published(0, 16, 0, 256)}},
      {"gpt_neo", GptNeo, "gpt_neo", {Published(0, 20, 0, 128)}},
      {"laguna", Laguna, "laguna", {Published(2048, 48, 8, 128)}},
      {"mimo_v2_flash", MiMo, "mimo_v2_flash", {Published(4096, 32, 4, 192)}},
  };
  // More of the same kind, with published numbers of one of their checkpoints.
  for (const auto& [type, numbers] : {std::pair("cohere", Published(8192, 64, 8, 128)),
                                      {"glm4", Published(4096, 32, 2, 128)},
                                      {"granite", Published(4096, 32, 8, 128)},
                                      {"olmo2", Published(4096, 32, 32, 128)},
                                      {"qwen3_moe", Published(4096, 64, 4, 128)},
                                      {"seed_oss", Published(5120, 80, 8, 128)},
                                      {"smollm3", Published(2048, 16, 4, 128)},
                                      {"starcoder2", Published(6144, 48, 4, 128)},
                                      {"minimax_m2", Published(3072, 48, 8, 128)},
                                      {"nemotron", Published(6144, 48, 8, 128)},
                                      {"ernie4_5", Published(1024, 16, 2, 128)},
                                      {"glm4_moe", Published(5120, 96, 8, 128)}}) {
    families.push_back({type, GivenHeadDim, type, {numbers}});
  }
  return families;
}

}  // namespace headwise
