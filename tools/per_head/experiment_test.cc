// Per-head Muon changes exactly the packed QKV weights, and both arms learn.
#include "tools/per_head/experiment.h"

#include <algorithm>
#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/presets/presets.h"
#include "model/train/run_config.h"

namespace headwise {
namespace {

// muse_17m at its own size, on short batches of the licence's English.
RunConfig Config() {
  RunConfig config = *LoadPreset("muse_17m");
  config.mutable_training()->set_steps(4);
  config.mutable_training()->set_batch_size(4);
  config.mutable_training()->set_sequence_length(128);
  config.mutable_data()->set_path("LICENSE");
  return ResolveRunConfig(config);
}

TEST(PerHeadExperiment, OneStepChangesExactlyThePackedQkvWeights) {
  ThreadPool pool(2);
  PerHeadExperiment experiment = *PerHeadExperiment::Create(Config(), pool);
  experiment.Step(0, pool);
  EXPECT_EQ(experiment.per_head().losses[0], experiment.whole_matrix().losses[0]);
  std::vector<std::string> differing;
  const std::vector<UpdateComparison> comparisons = experiment.CompareFirstUpdate(&differing);
  EXPECT_THAT(differing,
              testing::ElementsAre("layers.0.attention.wqkv", "layers.1.attention.wqkv",
                                   "layers.2.attention.wqkv", "layers.3.attention.wqkv",
                                   "layers.4.attention.wqkv", "layers.5.attention.wqkv"));
  ASSERT_EQ(comparisons.size(), 6u);
  for (const UpdateComparison& c : comparisons) {
    ASSERT_EQ(c.per_head_norms.size(), 12u);
    const auto spread = [](const std::vector<double>& norms) {
      return *std::max_element(norms.begin(), norms.end()) /
             *std::min_element(norms.begin(), norms.end());
    };
    // Every head's update is nearly orthogonal on its own; in the whole matrix large heads leave
    // small ones little.
    EXPECT_LT(spread(c.per_head_norms), spread(c.whole_matrix_norms)) << c.parameter;
    EXPECT_GT(c.relative_difference, 0.1) << c.parameter;
  }
}

TEST(PerHeadExperiment, BothArmsLearn) {
  ThreadPool pool(2);
  RunConfig config = Config();
  PerHeadExperiment experiment = *PerHeadExperiment::Create(config, pool);
  for (std::int64_t step = 0; step < config.training().steps(); ++step) experiment.Step(step, pool);
  for (const ExperimentArm* arm : {&experiment.per_head(), &experiment.whole_matrix()}) {
    ASSERT_EQ(arm->losses.size(), 4u);
    for (const double loss : arm->losses) EXPECT_TRUE(std::isfinite(loss));
    EXPECT_LT(arm->losses.back(), arm->losses.front()) << arm->name;
  }
}

TEST(PerHeadExperiment, ThePackedQkvWeightsCarryTwelveBlocksAndNothingElseIsPerHead) {
  ThreadPool pool(1);
  PerHeadExperiment experiment = *PerHeadExperiment::Create(Config(), pool);
  std::int64_t elements = 0;
  for (const ParameterAssignment& a : experiment.per_head().optimizer->assignments()) {
    elements += a.elements;
    const bool wqkv = a.role == ParameterRole::kPackedQkv;
    EXPECT_EQ(a.group == OptimizerGroup::kMuonPerHead, wqkv) << a.name;
    if (wqkv) {
      EXPECT_EQ(a.blocks, 12) << a.name;
    }
  }
  EXPECT_EQ(elements, 17177088);
}

}  // namespace
}  // namespace headwise
