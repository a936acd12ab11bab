// A decoder that is shared out over ranks computes what one rank computes.
#include <string>

#include "gtest/gtest.h"
#include "model/presets/presets.h"
#include "model/test_config.h"
#include "model/test_ranks.h"

namespace headwise {
namespace {

constexpr std::int64_t kLength = 16;  // tokens of a group
// Of sums in double whose order differs.
constexpr double kRoundingOfDoubles = 1e-11;

std::string Check(const ModelConfig& config, const char* mesh_text, bool sequence_parallel) {
  const auto mesh = Mesh::Parse(mesh_text);
  const auto layout = StandardLayout(config, *mesh, {.sequence_parallel = sequence_parallel});
  if (!layout.ok()) return std::string(layout.status().message());
  std::int64_t groups = 1;
  for (const MeshAxis& axis : mesh->Axes(MeshView::kDense)) {
    if (axis.name == "dp") groups = axis.size;
  }
  const TokenBatch batch = GroupedBatch(groups, kLength, config.vocab_size());
  const PassOutcome ranks = PassOnRanks(config, *layout, batch, DType::kF64);
  if (!ranks.mistakes.empty()) return ranks.mistakes[0];
  if (!ranks.failure.empty()) return ranks.failure;
  const Difference difference = LargestDifference(ranks, PassOnOneRank(config, batch, DType::kF64));
  if (difference.size < kRoundingOfDoubles) return "";
  return difference.where + " differs by " + std::to_string(difference.size);
}

TEST(DecoderOnRanks, TinyFamiliesOnTwoAndFourRanks) {
  for (const char* preset :
       {"llama3_tiny", "qwen3_tiny", "gpt_oss_tiny", "muse_glimmer_tiny", "muse_spark_tiny"}) {
    const ModelConfig config = LoadPreset(preset)->model();
    for (const char* mesh : {"dp=2", "cp=2", "tp=2", "tp=2,ep=2", "dp=2,ep=2", "dp=2,tp=2",
                             "cp=2,tp=2", "dp=2,cp=2", "dp=2,tp=2,ep=2", "dp=2,tp=2,ep=4"}) {
      for (const bool sp : {false, true}) {
        EXPECT_EQ(Check(config, mesh, sp), "") << preset << " " << mesh << " sp " << sp;
      }
    }
  }
}

}  // namespace
}  // namespace headwise
