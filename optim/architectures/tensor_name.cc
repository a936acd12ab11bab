#include "optim/architectures/tensor_name.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace headwise {
namespace {

template <std::size_t N>
bool IsOneOf(absl::string_view word, const absl::string_view (&words)[N]) {
  return std::find(std::begin(words), std::end(words), word) != std::end(words);
}

std::optional<std::int64_t> ToNumber(absl::string_view text) {
  std::int64_t number;
  if (text.empty() || text.size() > 9 || !absl::SimpleAtoi(text, &number) || text[0] == '-' ||
      text[0] == '+' || text[0] == ' ') {
    return std::nullopt;
  }
  return number;
}

// "q_proj" of "layers.0.self_attn.q_proj.weight"; the last component of a parameter without module.
absl::string_view Leaf(const TensorPath& name) {
  const bool in_module = name.size() > 1 && (name.back() == "weight" || name.back() == "bias");
  return name[name.size() - (in_module ? 2 : 1)];
}

constexpr absl::string_view kQueries[] = {"q_proj", "q_b_proj", "query", "to_q", "q_attn",
                                          "q_lin",  "wq",       "wq_b",  "q"};
constexpr absl::string_view kKeys[] = {"k_proj", "key", "to_k", "k_lin", "wk", "k"};
constexpr absl::string_view kValues[] = {"v_proj", "value", "to_v", "v_lin", "wv", "v"};
constexpr absl::string_view kPacked[] = {
    "qkv_proj",       "qkv",       "query_key_value", "c_attn",      "Wqkv",
    "wqkv",           "W_pack",    "att_proj",        "in_proj_qkv", "in_proj_qkvz",
    "in_proj_weight", "kv_b_proj", "qkv_lin",         "wkv_b"};
constexpr absl::string_view kEmbeddings[] = {"embed_tokens",
                                             "wte",
                                             "wpe",
                                             "word_embeddings",
                                             "word_embedding",
                                             "tok_embeddings",
                                             "embed_in",
                                             "embeddings",
                                             "embedding",
                                             "embed_positions",
                                             "position_embedding",
                                             "position_embeddings",
                                             "patch_embedding",
                                             "pos_embed",
                                             "position_embedding_table",
                                             "token_type_embeddings"};
constexpr absl::string_view kOutputHeads[] = {"lm_head", "embed_out", "output_layer", "score"};
constexpr absl::string_view kAttentionOutputs[] = {"o_proj", "out_proj", "dense", "wo", "c_proj"};
constexpr absl::string_view kMlp[] = {
    "gate_proj", "up_proj",       "down_proj",     "gate_up_proj", "fc1",       "fc2",
    "fc_in",     "fc_out",        "c_fc",          "c_proj",       "w1",        "w2",
    "w3",        "dense_h_to_4h", "dense_4h_to_h", "linear_fc1",   "linear_fc2"};
constexpr absl::string_view kAttentionOwners[] = {"self_attn",  "self_attention", "attention",
                                                  "attn",       "crossattention", "cross_attn",
                                                  "linear_attn"};
constexpr absl::string_view kFeedForward[] = {
    "mlp", "ffn", "feed_forward", "block_sparse_moe", "moe", "shared_expert", "shared_experts"};

bool Holds(const TensorPath& name, absl::string_view component) {
  return std::find(name.begin(), name.end(), component) != name.end();
}

template <std::size_t N>
bool HoldsOneOf(const TensorPath& name, const absl::string_view (&words)[N]) {
  return std::any_of(name.begin(), name.end(),
                     [&](absl::string_view component) { return IsOneOf(component, words); });
}

}  // namespace

TensorPath SplitTensorName(absl::string_view name) { return absl::StrSplit(name, '.'); }

std::optional<ModuleMatch> MatchModule(absl::string_view module_path, const TensorPath& name) {
  ModuleMatch match;
  for (const absl::string_view expected : absl::StrSplit(module_path, '.')) {
    if (match.components + 1 >= name.size()) return std::nullopt;
    const absl::string_view found = name[match.components++];
    if (expected != "*") {
      if (found != expected) return std::nullopt;
      continue;
    }
    const std::optional<std::int64_t> number = ToNumber(found);
    if (!number.has_value()) return std::nullopt;
    if (match.layer < 0) match.layer = *number;
  }
  return match;
}

bool LooksLikeProjection(const TensorPath& name) {
  const absl::string_view leaf = Leaf(name);
  return IsOneOf(leaf, kQueries) || IsOneOf(leaf, kKeys) || IsOneOf(leaf, kValues) ||
         IsOneOf(leaf, kPacked);
}

std::optional<ParameterRole> UsualRole(const TensorPath& name, std::size_t rank) {
  const absl::string_view leaf = Leaf(name);
  if (rank < 2) {
    const bool norm = name.back() == "weight" &&
                      (absl::StrContains(leaf, "norm") || absl::StartsWith(leaf, "ln_"));
    return norm ? ParameterRole::kNorm : ParameterRole::kBias;
  }
  if (absl::EndsWith(leaf, "_bias")) return ParameterRole::kBias;
  if (IsOneOf(leaf, kEmbeddings)) return ParameterRole::kEmbedding;
  if (IsOneOf(leaf, kOutputHeads)) return ParameterRole::kOutputHead;
  if (Holds(name, "experts")) return ParameterRole::kExpert;
  if (leaf == "router" || (leaf == "gate" && HoldsOneOf(name, kFeedForward))) {
    return ParameterRole::kRouter;
  }
  if (HoldsOneOf(name, kAttentionOwners)) {
    if (IsOneOf(leaf, kQueries)) return ParameterRole::kQuery;
    if (IsOneOf(leaf, kKeys)) return ParameterRole::kKey;
    if (IsOneOf(leaf, kValues)) return ParameterRole::kValue;
    if (IsOneOf(leaf, kPacked)) return ParameterRole::kPackedQkv;
    if (IsOneOf(leaf, kAttentionOutputs)) return ParameterRole::kAttentionOutput;
    return std::nullopt;
  }
  if (IsOneOf(leaf, kMlp)) return ParameterRole::kMlp;
  return std::nullopt;
}

}  // namespace headwise
