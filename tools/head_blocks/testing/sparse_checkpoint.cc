#include "tools/head_blocks/testing/sparse_checkpoint.h"

#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "core/io/safetensors_writer.h"
#include "nlohmann/json.hpp"

namespace headwise {

absl::Status WriteSparseSafetensors(const std::string& path,
                                    const std::vector<WeightShape>& weights) {
  std::vector<SafetensorsEntry> entries;
  std::int64_t bytes = 0;
  for (const WeightShape& weight : weights) {
    entries.push_back({weight.name, DType::kBF16, weight.shape});
    bytes += NumElements(weight.shape) * SizeOf(DType::kBF16);
  }
  HW_ASSIGN_OR_RETURN(const std::string header, SafetensorsHeaderBytes(entries, {}));
  std::ofstream(path, std::ios::binary) << header;
  std::error_code error;
  std::filesystem::resize_file(path, header.size() + static_cast<std::uintmax_t>(bytes), error);
  return error ? absl::UnavailableError(absl::StrCat(path, ": ", error.message()))
               : absl::OkStatus();
}

absl::Status WriteSparseShards(const std::string& directory,
                               const std::vector<WeightShape>& weights, int shards) {
  nlohmann::json index;
  const std::size_t per_shard =
      (weights.size() + static_cast<std::size_t>(shards) - 1) / static_cast<std::size_t>(shards);
  for (std::size_t begin = 0, shard = 1; begin < weights.size(); begin += per_shard, ++shard) {
    const std::string file = absl::StrFormat("model-%05d-of-%05d.safetensors", shard, shards);
    const std::vector<WeightShape> part(
        weights.begin() + static_cast<std::ptrdiff_t>(begin),
        weights.begin() + static_cast<std::ptrdiff_t>(std::min(begin + per_shard, weights.size())));
    HW_RETURN_IF_ERROR(WriteSparseSafetensors(absl::StrCat(directory, "/", file), part));
    for (const WeightShape& weight : part) index["weight_map"][weight.name] = file;
  }
  std::ofstream(absl::StrCat(directory, "/model.safetensors.index.json")) << index.dump(1);
  return absl::OkStatus();
}

std::string Llama405BConfig() {
  return R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 16384,
             "num_attention_heads": 128, "num_key_value_heads": 8, "num_hidden_layers": 126,
             "intermediate_size": 53248, "vocab_size": 128256})";
}

std::vector<WeightShape> Llama405BWeights() {
  constexpr std::int64_t kWidth = 16384, kKeys = 1024, kFfn = 53248, kVocab = 128256;
  std::vector<WeightShape> weights = {{"model.embed_tokens.weight", {kVocab, kWidth}}};
  for (int layer = 0; layer < 126; ++layer) {
    const std::string prefix = absl::StrCat("model.layers.", layer, ".");
    for (const auto& [name, shape] :
         std::vector<std::pair<const char*, Shape>>{{"self_attn.q_proj", {kWidth, kWidth}},
                                                    {"self_attn.k_proj", {kKeys, kWidth}},
                                                    {"self_attn.v_proj", {kKeys, kWidth}},
                                                    {"self_attn.o_proj", {kWidth, kWidth}},
                                                    {"mlp.gate_proj", {kFfn, kWidth}},
                                                    {"mlp.up_proj", {kFfn, kWidth}},
                                                    {"mlp.down_proj", {kWidth, kFfn}},
                                                    {"input_layernorm", {kWidth}},
                                                    {"post_attention_layernorm", {kWidth}}}) {
      weights.push_back({absl::StrCat(prefix, name, ".weight"), shape});
    }
  }
  weights.push_back({"model.norm.weight", {kWidth}});
  weights.push_back({"lm_head.weight", {kVocab, kWidth}});
  return weights;
}

}  // namespace headwise
