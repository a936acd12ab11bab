// Every rule on every other family's tensors, its model_type written over theirs: what it accepts
// must be the partition that the right rule finds, block for block. A rule that guesses from a total
// that happens to fit fails here.
#include <random>
#include <string>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "optim/architectures/resolve.h"
#include "optim/architectures/testing/checkpoints.h"

namespace headwise {
namespace {

using nlohmann::json;

// The number of weights that the wrong rule accepts.
std::int64_t ExpectOnlyIdentical(const std::string& config, const TestCheckpoint& checkpoint,
                                 const CheckpointLayout& right, const std::string& rule) {
  SCOPED_TRACE("rule of " + rule + " on " + checkpoint.name + "\n" + checkpoint.config);
  const absl::StatusOr<CheckpointLayout> layout = ResolveHeadBlocks(config, checkpoint.Shapes());
  if (!layout.ok()) {
    ADD_FAILURE() << layout.status();
    return 0;
  }
  std::int64_t accepted = 0;
  for (std::size_t i = 0; i < layout->weights.size(); ++i) {
    const WeightLayout& found = layout->weights[i];
    if (!found.blocks.has_value()) continue;
    ++accepted;
    EXPECT_TRUE(right.weights[i].blocks.has_value())
        << found.name << " is whole, but was cut: " << found.explanation;
    if (!right.weights[i].blocks.has_value()) continue;
    EXPECT_EQ(found.blocks->axis(), right.weights[i].blocks->axis()) << found.name;
    EXPECT_EQ(found.blocks->blocks(), right.weights[i].blocks->blocks())
        << found.name << ": " << found.explanation << "\nright: " << right.weights[i].explanation;
  }
  return accepted;
}

// All rules on one checkpoint; the number of weights that wrong rules accept.
std::int64_t TryAllRules(const TestCheckpoint& checkpoint) {
  std::int64_t accepted = 0;
  const CheckpointLayout right = *ResolveHeadBlocks(checkpoint.config, checkpoint.Shapes());
  const json original = json::parse(checkpoint.config);
  for (const std::string& rule : KnownArchitectures()) {
    if (original["model_type"] == rule) continue;
    json config = original;
    config["model_type"] = rule;
    accepted += ExpectOnlyIdentical(config.dump(), checkpoint, right, rule);
    // The same one level down, in the text model of a composite.
    if (original.contains("text_config")) {
      config = original;
      config["text_config"]["model_type"] = rule;
      accepted += ExpectOnlyIdentical(config.dump(), checkpoint, right, rule);
    }
  }
  return accepted;
}

TEST(CrossFamily, AWrongModelTypeIsAcceptedOnlyWhereThePartitionIsTheSame) {
  std::int64_t accepted = 0;
  for (const TestCheckpoint& checkpoint : AllTestCheckpoints()) {
    accepted += TryAllRules(checkpoint);
    if (HasFailure()) return;
  }
  EXPECT_GT(accepted, 1000);  // kin agree with each other
}

// Powers of two, so that totals of different geometries coincide all the time.
TEST(CrossFamily, AlsoWhereTotalsCoincide) {
  std::mt19937 rng(20261201);
  const auto power = [&](int most) {
    return std::int64_t{1} << std::uniform_int_distribution<int>(0, most)(rng);
  };
  for (const TestFamily& family : TestFamilies()) {
    for (int trial = 0; trial < 8; ++trial) {
      Numbers n;
      n.kv_heads = power(3);
      n.heads = n.kv_heads * power(2);
      n.head_dim = 2 * power(3);
      n.width = n.heads * n.head_dim;
      n.nope = n.rope = n.value_dim = n.head_dim / 2;
      n.q_rank = n.kv_rank = n.width / 2;
      n.linear_key_heads = power(3);
      n.linear_value_heads = n.linear_key_heads * power(2);
      n.linear_key_dim = n.linear_value_dim = 2 * power(3);
      n.vision_heads = power(3);
      n.vision_head_dim = 2 * power(3);
      TryAllRules(Make(family, n, "coinciding"));
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace headwise
