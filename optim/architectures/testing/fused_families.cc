// One projection for queries, keys and values.
#include "optim/architectures/testing/builder.h"
#include "optim/architectures/testing/families.h"

namespace headwise {
namespace {

using nlohmann::json;

std::vector<ExpectedHeads> Qkv(std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim) {
  return {{HeadRole::kQuery, heads, head_dim},
          {HeadRole::kKey, kv_heads, head_dim},
          {HeadRole::kValue, kv_heads, head_dim}};
}

// A module of one fused projection and an output.
TestCheckpoint Fused(json config, const std::string& name, const std::string& output,
                     const Numbers& n, std::int64_t width, const std::string& layout) {
  const std::string module = name.substr(0, name.rfind('.'));
  const std::int64_t rows = (n.heads + 2 * n.kv_heads) * n.head_dim;
  return CheckpointBuilder(std::move(config))
      .Heads(name + ".weight", {rows, width}, layout, Qkv(n.heads, n.kv_heads, n.head_dim))
      .Vector(name + ".bias", rows)
      .Whole(module + output, {width, n.heads * n.head_dim})
      .Done();
}

Numbers WithKvHeads(Numbers n, std::int64_t kv_heads) {
  n.kv_heads = kv_heads;
  return n;
}

json FalconConfig(const std::string& model_type, const Numbers& n) {
  return {{"model_type", model_type},
          {"architectures", {"FalconForCausalLM"}},
          {"hidden_size", n.heads * n.head_dim},
          {"num_attention_heads", n.heads}};
}

constexpr char kFalconQkv[] = "transformer.h.0.self_attention.query_key_value";

TestCheckpoint FalconNew(const std::string& model_type, const Numbers& n) {
  json config = FalconConfig(model_type, n);
  config["num_kv_heads"] = n.kv_heads;
  config["new_decoder_architecture"] = true;
  config["multi_query"] = true;  // as published; not read
  return Fused(config, kFalconQkv, ".dense.weight", n, n.heads * n.head_dim, "interleaved");
}

TestCheckpoint FalconMultiQuery(const std::string& model_type, const Numbers& n) {
  json config = FalconConfig(model_type, n);
  config["num_kv_heads"] = n.heads;  // as published: it contradicts multi_query, and is not read
  config["new_decoder_architecture"] = false;
  config["multi_query"] = true;
  return Fused(config, kFalconQkv, ".dense.weight", WithKvHeads(n, 1), n.heads * n.head_dim,
               "sectioned");
}

TestCheckpoint FalconNeither(const std::string& model_type, const Numbers& n) {
  json config = FalconConfig(model_type, n);
  config["multi_query"] = false;
  return Fused(config, kFalconQkv, ".dense.weight", WithKvHeads(n, n.heads), n.heads * n.head_dim,
               "per_head_qkv");
}

TestCheckpoint GptNeoX(const std::string& model_type, const Numbers& n) {
  return Fused({{"model_type", model_type},
                {"hidden_size", n.heads * n.head_dim},
                {"num_attention_heads", n.heads}},
               "gpt_neox.layers.0.attention.query_key_value", ".dense.weight",
               WithKvHeads(n, n.heads), n.heads * n.head_dim, "per_head_qkv");
}

TestCheckpoint Bloom(const std::string& model_type, const Numbers& n) {
  return Fused({{"model_type", model_type},
                {"n_embed", n.heads * n.head_dim},
                {"num_attention_heads", n.heads},
                {"n_inner", nullptr}},
               "h.0.self_attention.query_key_value", ".dense.weight", WithKvHeads(n, n.heads),
               n.heads * n.head_dim, "per_head_qkv");
}

TestCheckpoint Persimmon(const std::string& model_type, const Numbers& n) {
  return Fused({{"model_type", model_type},
                {"hidden_size", n.heads * n.head_dim},
                {"num_attention_heads", n.heads}},
               "model.layers.0.self_attn.query_key_value", ".dense.weight", WithKvHeads(n, n.heads),
               n.heads * n.head_dim, "per_head_qkv");
}

// Stored [in, out]: the heads lie on the columns.
TestCheckpoint Gpt2(const std::string& model_type, const Numbers& n) {
  const std::int64_t width = n.heads * n.head_dim;
  const std::string layer = "transformer.h.0";
  return CheckpointBuilder({{"model_type", model_type}, {"n_embd", width}, {"n_head", n.heads}})
      .Heads(layer + ".attn.c_attn.weight", {width, 3 * width}, "sectioned",
             Qkv(n.heads, n.heads, n.head_dim))
      .OnColumns()
      .Vector(layer + ".attn.c_attn.bias", 3 * width)
      .Whole(layer + ".attn.c_proj.weight", {width, width})
      .Whole(layer + ".attn.bias", {1, 1, 8, 8}, DeclineReason::kNotTwoDimensional)
      .Heads(layer + ".crossattention.c_attn.weight", {width, 2 * width}, "sectioned",
             {{HeadRole::kKey, n.heads, n.head_dim}, {HeadRole::kValue, n.heads, n.head_dim}})
      .OnColumns()
      .Heads(layer + ".crossattention.q_attn.weight", {width, width}, "separate",
             {{HeadRole::kQuery, n.heads, n.head_dim}})
      .OnColumns()
      .Whole(layer + ".mlp.c_fc.weight", {width, 4 * width})
      .Whole("transformer.wte.weight", {128, width})
      .Done();
}

json BigCodeConfig(const std::string& model_type, const Numbers& n, bool multi_query) {
  return {{"model_type", model_type},
          {"n_embd", n.heads * n.head_dim},
          {"n_head", n.heads},
          {"multi_query", multi_query}};
}

TestCheckpoint BigCode(const std::string& model_type, const Numbers& n) {
  return Fused(BigCodeConfig(model_type, n, true), "transformer.h.0.attn.c_attn", ".c_proj.weight",
               WithKvHeads(n, 1), n.heads * n.head_dim, "sectioned");
}

TestCheckpoint BigCodeMultiHead(const std::string& model_type, const Numbers& n) {
  return Fused(BigCodeConfig(model_type, n, false), "transformer.h.0.attn.c_attn", ".c_proj.weight",
               WithKvHeads(n, n.heads), n.heads * n.head_dim, "per_head_qkv");
}

TestCheckpoint CodeGen(const std::string& model_type, const Numbers& numbers) {
  Numbers n = numbers;
  n.heads = (n.heads + 3) / 4 * 4;
  return Fused({{"model_type", model_type},
                {"n_embd", n.heads * n.head_dim},
                {"n_head", n.heads},
                {"n_inner", nullptr}},
               "transformer.h.0.attn.qkv_proj", ".out_proj.weight", WithKvHeads(n, n.heads),
               n.heads * n.head_dim, "four_block");
}

TestCheckpoint Mpt(const std::string& model_type, const Numbers& n) {
  return Fused({{"model_type", model_type},
                {"d_model", n.heads * n.head_dim},
                {"n_heads", n.heads},
                {"attn_config", {{"attn_type", "multihead_attention"}}}},
               "transformer.blocks.0.attn.Wqkv", ".out_proj.weight", WithKvHeads(n, n.heads),
               n.heads * n.head_dim, "sectioned");
}

TestCheckpoint Dbrx(const std::string& model_type, const Numbers& n) {
  return Fused({{"model_type", model_type},
                {"d_model", n.heads * n.head_dim},
                {"n_heads", n.heads},
                {"attn_config", {{"kv_n_heads", n.kv_heads}, {"clip_qkv", 8}}}},
               "transformer.blocks.0.norm_attn_norm.attn.Wqkv", ".out_proj.weight", n,
               n.heads * n.head_dim, "sectioned");
}

TestCheckpoint Phi3(const std::string& model_type, const Numbers& n) {
  return Fused({{"model_type", model_type},
                {"hidden_size", n.heads * n.head_dim},
                {"num_attention_heads", n.heads},
                {"num_key_value_heads", n.kv_heads}},
               "model.layers.0.self_attn.qkv_proj", ".o_proj.weight", n, n.heads * n.head_dim,
               "sectioned");
}

TestCheckpoint ChatGlm(const std::string& model_type, const Numbers& n) {
  return Fused({{"model_type", model_type},
                {"hidden_size", n.width},
                {"num_attention_heads", n.heads},
                {"kv_channels", n.head_dim},
                {"multi_query_attention", true},
                {"multi_query_group_num", n.kv_heads}},
               "transformer.encoder.layers.0.self_attention.query_key_value", ".dense.weight", n,
               n.width, "sectioned");
}

TestCheckpoint ChatGlmMultiHead(const std::string& model_type, const Numbers& n) {
  return Fused({{"model_type", model_type},
                {"hidden_size", n.width},
                {"num_attention_heads", n.heads},
                {"kv_channels", n.head_dim},
                {"multi_query_attention", false},
                {"multi_query_group_num", 1}},
               "transformer.encoder.layers.0.self_attention.query_key_value", ".dense.weight",
               WithKvHeads(n, n.heads), n.width, "per_head_qkv");
}

TestCheckpoint InternLm2(const std::string& model_type, const Numbers& n) {
  return Fused({{"model_type", model_type},
                {"hidden_size", n.heads * n.head_dim},
                {"num_attention_heads", n.heads},
                {"num_key_value_heads", n.kv_heads}},
               "model.layers.0.attention.wqkv", ".wo.weight", n, n.heads * n.head_dim,
               "interleaved");
}

TestCheckpoint Baichuan(const std::string& model_type, const Numbers& n) {
  return Fused({{"model_type", model_type},
                {"hidden_size", n.heads * n.head_dim},
                {"num_attention_heads", n.heads}},
               "model.layers.0.self_attn.W_pack", ".o_proj.weight", WithKvHeads(n, n.heads),
               n.heads * n.head_dim, "sectioned");
}

TestCheckpoint Qwen(const std::string& model_type, const Numbers& n) {
  return Fused({{"model_type", model_type},
                {"hidden_size", n.width},
                {"num_attention_heads", n.heads},
                {"kv_channels", n.head_dim}},
               "transformer.h.0.attn.c_attn", ".c_proj.weight", WithKvHeads(n, n.heads), n.width,
               "sectioned");
}

Numbers Published(std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim,
                  std::int64_t width = 0) {
  Numbers n;
  n.width = width;
  n.heads = heads;
  n.kv_heads = kv_heads;
  n.head_dim = head_dim;
  return n;
}

}  // namespace

std::vector<TestFamily> FusedTestFamilies() {
  return {
      // 40B and 180B.
      {"falcon, new_decoder_architecture",
       FalconNew,
       "falcon",
       {Published(128, 8, 64), Published(232, 8, 64)}},
      {"falcon, multi_query", FalconMultiQuery, "falcon", {Published(71, 1, 64)}},
      {"falcon, neither", FalconNeither, "falcon", {Published(32, 0, 64)}},
      {"gpt_neox", GptNeoX, "gpt_neox", {Published(64, 0, 96)}},
      {"bloom", Bloom, "bloom", {Published(112, 0, 128)}},
      {"persimmon", Persimmon, "persimmon", {Published(64, 0, 64)}},
      {"gpt2", Gpt2, "gpt2", {Published(12, 0, 64), Published(25, 0, 64)}},
      {"gpt_bigcode, multi_query", BigCode, "gpt_bigcode", {Published(48, 1, 128)}},
      {"gpt_bigcode, multi-head", BigCodeMultiHead, "gpt_bigcode", {Published(16, 0, 128)}},
      {"codegen", CodeGen, "codegen", {Published(24, 0, 256)}},
      {"mpt", Mpt, "mpt", {Published(32, 0, 128)}},
      {"dbrx", Dbrx, "dbrx", {Published(48, 8, 128)}},
      {"phi3", Phi3, "phi3", {Published(32, 32, 96), Published(40, 10, 128)}},
      {"chatglm, multi_query_attention", ChatGlm, "chatglm", {Published(32, 2, 128, 4096)}},
      {"chatglm, multi-head", ChatGlmMultiHead, "chatglm", {Published(32, 0, 128, 4096)}},
      {"internlm2", InternLm2, "internlm2", {Published(32, 8, 128), Published(48, 8, 128)}},
      {"baichuan", Baichuan, "baichuan", {Published(32, 0, 128), Published(40, 0, 128)}},
      {"qwen", Qwen, "qwen", {Published(32, 0, 128, 4096)}},
  };
}

}  // namespace headwise
