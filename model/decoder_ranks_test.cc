// A decoder that is shared out over ranks computes what one rank computes.
#include <cstdint>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/parallel/mesh.h"
#include "gtest/gtest.h"
#include "model/presets/presets.h"
#include "model/standard_layout.h"
#include "model/test_config.h"
#include "model/test_ranks.h"

namespace headwise {
namespace {

constexpr std::int64_t kLength = 16;  // tokens of a group
// Of sums in double whose order differs.
constexpr double kRoundingOfDoubles = 1e-11;

std::int64_t Groups(const Mesh& mesh) {
  for (const MeshAxis& axis : mesh.Axes(MeshView::kDense)) {
    if (axis.name == "dp") return axis.size;
  }
  return 1;
}

// What one rank computes, once for all meshes.
const PassOutcome& OnOneRank(const ModelConfig& config, std::int64_t groups) {
  static auto& outcomes = *new std::map<std::string, PassOutcome>;
  const auto [it, added] = outcomes.try_emplace(absl::StrCat(groups, config.SerializeAsString()));
  if (added) {
    const TokenBatch batch = GroupedBatch(groups, kLength, config.vocab_size());
    it->second = PassOnOneRank(config, batch, DType::kF64);
  }
  return it->second;
}

// "", or what is wrong with loss or gradients.
std::string Check(const ModelConfig& config, const char* mesh_text, bool sequence_parallel) {
  const Mesh mesh = *Mesh::Parse(mesh_text);
  const auto layout = StandardLayout(config, mesh, {.sequence_parallel = sequence_parallel});
  if (!layout.ok()) return std::string(layout.status().message());
  const TokenBatch batch = GroupedBatch(Groups(mesh), kLength, config.vocab_size());
  const PassOutcome ranks = PassOnRanks(config, *layout, batch, DType::kF64);
  if (!ranks.mistakes.empty()) return ranks.mistakes[0];
  if (!ranks.failure.empty()) return ranks.failure;
  const Difference difference = LargestDifference(ranks, OnOneRank(config, Groups(mesh)));
  if (difference.size < kRoundingOfDoubles) return "";
  return absl::StrCat(difference.where, " differs by ", difference.size);
}

// One sliding or rotating layer and one global or unrotated one are all that layers differ in, and
// widths show in nothing but time.
ModelConfig Small(const std::string& preset) {
  ModelConfig config = LoadPreset(preset)->model();
  config.set_num_layers(2);
  config.set_dim(48);
  config.set_vocab_size(64);
  FfnConfig& ffn = *config.mutable_ffn();
  if (ffn.hidden_dim() != 0) ffn.set_hidden_dim(56);
  if (ffn.has_moe()) {
    ffn.mutable_moe()->set_expert_dim(40);
    if (ffn.moe().expert_width() != 0) ffn.mutable_moe()->set_expert_width(24);
  }
  return config;
}

class Family : public testing::TestWithParam<const char*> {};

TEST_P(Family, OnTwoRanks) {
  const ModelConfig config = Small(GetParam());
  for (const char* mesh : {"dp=2", "cp=2", "tp=2", "tp=2,ep=2", "dp=2,ep=2", "cp=2,ep=2"}) {
    for (const bool sp : {false, true}) {
      EXPECT_EQ(Check(config, mesh, sp), "") << mesh << " sequence parallel " << sp;
    }
  }
}

TEST_P(Family, OnFourRanks) {
  const ModelConfig config = Small(GetParam());
  for (const char* mesh : {"dp=4", "cp=4", "tp=4", "dp=2,tp=2", "cp=2,tp=2", "dp=2,cp=2",
                           "dp=2,tp=2,ep=2", "dp=2,tp=2,ep=4", "cp=2,tp=2,ep=4"}) {
    for (const bool sp : {false, true}) {
      EXPECT_EQ(Check(config, mesh, sp), "") << mesh << " sequence parallel " << sp;
    }
  }
}

TEST_P(Family, UnfusedQkv) {
  ModelConfig config = Small(GetParam());
  config.mutable_attention()->set_unfused_qkv(true);
  EXPECT_EQ(Check(config, "dp=2,tp=2", true), "");
  EXPECT_EQ(Check(config, "tp=2", false), "");
}

INSTANTIATE_TEST_SUITE_P(Tiny, Family,
                         testing::Values("llama3_tiny", "qwen3_tiny", "gpt_oss_tiny",
                                         "muse_glimmer_tiny", "muse_spark_tiny"),
                         [](const auto& info) { return std::string(info.param); });

// What no preset has together: every norm, bias, gate and window; experts with biases, a shared
// expert, a dense layer among them, an auxiliary loss, and a head tied to the embedding.
TEST(TestConfigs, OnRanks) {
  for (ModelConfig config : AllTestConfigs()) {
    if (config.attention().packing() == SECTIONED) continue;  // cannot be shared out over tp
    config.set_vocab_size(20);
    if (config.ffn().has_moe()) config.mutable_ffn()->mutable_moe()->set_num_experts(8);
    for (const char* mesh : {"dp=2", "tp=2", "tp=2,ep=2", "dp=2,tp=2", "dp=2,tp=2,ep=4"}) {
      for (const bool sp : {false, true}) {
        EXPECT_EQ(Check(config, mesh, sp), "") << config.name() << " " << mesh << " " << sp;
      }
    }
  }
}

}  // namespace
}  // namespace headwise
