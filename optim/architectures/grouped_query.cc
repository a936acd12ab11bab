// Separate projections with fields named as Llama's: hidden_size, num_attention_heads,
// num_key_value_heads, head_dim. Each row is one model_type: where its attention modules are, the
// defaults of its configuration class, and what else its module holds.
//
// Source: the attention class of modeling_<model_type>.py and the fields of
// configuration_<model_type>.py in transformers (for sub-models the file of the model they belong
// to). head_dim 0: the class has no such default; the module uses hidden_size /
// num_attention_heads unless the configuration gives head_dim. kv_heads 0: as many as query heads.
#include "optim/architectures/families.h"
#include "optim/architectures/separate.h"

namespace headwise {
namespace {

struct Row {
  const char* model_type;
  GroupedQueryDefaults defaults;  // hidden_size, heads, kv_heads, head_dim
  std::vector<const char*> others = {};
  const char* output = "o_proj";
};

const std::vector<const char*> kQkNorm = {"q_norm", "k_norm"};

std::vector<Row> Rows() {
  return {
      {"apertus", {4096, 32, 0, 0}, kQkNorm},
      {"arcee", {2560, 32, 0, 0}},
      {"bamba", {4096, 32, 8, 0}},
      {"bitnet", {2560, 20, 5, 0}, {"attn_sub_norm"}},
      {"cohere", {8192, 64, 0, 0}, kQkNorm},
      {"cohere2", {8192, 64, 0, 0}},
      {"ernie4_5", {1024, 16, 2, 128}},
      {"ernie4_5_moe", {2560, 20, 4, 0}},
      {"exaone4", {4096, 32, 32, 0}, kQkNorm},
      {"falcon_h1", {4096, 32, 8, 0}},
      {"flex_olmo", {4096, 32, 0, 0}, kQkNorm},
      {"gemma", {3072, 16, 16, 256}},
      {"gemma2", {2304, 8, 4, 256}},
      {"gemma3_text", {2304, 8, 4, 256}, kQkNorm},
      {"gemma3n_text", {2048, 8, 2, 256}, {"q_norm", "k_norm", "v_norm"}},
      {"glm", {4096, 32, 2, 128}},
      {"glm4", {4096, 32, 2, 128}},
      {"glm4_moe", {4096, 96, 8, 0}, kQkNorm},
      {"gpt_oss", {2880, 64, 8, 64}, {"sinks"}},
      {"granite", {4096, 32, 0, 0}},
      {"granitemoe", {4096, 32, 0, 0}},
      {"granitemoehybrid", {4096, 32, 0, 0}},
      {"granitemoeshared", {4096, 32, 0, 0}},
      {"helium", {2560, 20, 20, 128}},
      {"internlm3", {4096, 32, 2, 128}},
      {"jamba", {4096, 32, 8, 0}},
      {"lfm2", {2560, 32, 8, 0}, {"q_layernorm", "k_layernorm"}, "out_proj"},
      {"llama", {4096, 32, 0, 0}},
      {"llama4_text", {5120, 40, 8, 128}, {"qk_norm"}},
      {"minimax_m2", {3072, 48, 8, 128}, kQkNorm},
      {"ministral3", {4096, 32, 8, 128}},
      {"mistral", {4096, 32, 8, 0}},
      {"mixtral", {4096, 32, 8, 0}},
      // The draft model that goes with muse_glimmer, with a configuration of its own.
      {"muse_glimmer_assistant", {6656, 32, 8, 128}, kQkNorm},
      {"nemotron", {6144, 48, 0, 0}},
      {"olmo", {4096, 32, 0, 0}},
      {"olmo2", {4096, 32, 0, 0}, kQkNorm},
      {"olmo3", {4096, 32, 0, 0}, kQkNorm},
      {"olmoe", {2048, 16, 0, 0}, kQkNorm},
      {"phi", {2048, 32, 0, 0}, {"q_layernorm", "k_layernorm"}, "dense"},
      {"phimoe", {4096, 32, 8, 0}},
      {"qwen2", {4096, 32, 32, 0}},
      {"qwen2_5_vl_text", {8192, 64, 8, kHeadDimNotRead}},
      {"qwen2_moe", {2048, 16, 16, 0}},
      {"qwen2_vl_text", {8192, 64, 8, kHeadDimNotRead}},
      {"qwen3", {4096, 32, 32, 128}, kQkNorm},
      {"qwen3_moe", {2048, 32, 4, 0}, kQkNorm},
      {"qwen3_vl_moe_text", {2048, 16, 16, 0}, kQkNorm},
      {"qwen3_vl_text", {4096, 32, 32, 128}, kQkNorm},
      {"seed_oss", {4096, 80, 8, 128}},
      {"smollm3", {2048, 16, 4, 0}},
      {"solar_open", {4096, 64, 8, 128}},
      {"stablelm", {2560, 32, 32, kHeadDimNotRead}, {"q_layernorm", "k_layernorm"}},
      {"starcoder2", {3072, 24, 2, 0}},
  };
}

// mllama's text model: layers of cross-attention to the image between those of self-attention.
ArchitectureRule Mllama() {
  const GeometryFn geometry = GroupedQueryFields({4096, 32, 8, kHeadDimNotRead});
  return {"mllama_text_model",
          {"model."},
          {SeparateModule("layers.*.self_attn", geometry),
           SeparateModule("layers.*.cross_attn", geometry, {}, kQkNorm)}};
}

}  // namespace

std::vector<ArchitectureRule> GroupedQueryRules() {
  std::vector<ArchitectureRule> rules;
  for (const Row& row : Rows()) {
    rules.push_back({row.model_type,
                     {"model."},
                     {SeparateModule("layers.*.self_attn", GroupedQueryFields(row.defaults),
                                     {.output = row.output}, row.others)}});
  }
  rules.push_back(Mllama());
  return rules;
}

}  // namespace headwise
