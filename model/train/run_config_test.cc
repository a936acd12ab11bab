#include "model/train/run_config.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/presets/presets.h"

namespace headwise {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

RunConfig Valid() { return ResolveRunConfig(*LoadPreset("muse_17m")); }

TEST(ValidateRunConfig, EveryPresetIsValid) {
  for (const Preset& preset : ListPresets()) {
    EXPECT_TRUE(ValidateRunConfig(ResolveRunConfig(*LoadPreset(preset.name))).ok()) << preset.name;
  }
}

TEST(ValidateRunConfig, NamesTheFieldTheValueAndTheRange) {
  const auto error = [](auto edit) {
    RunConfig config = Valid();
    edit(&config);
    return std::string(ValidateRunConfig(config).message());
  };
  EXPECT_THAT(error([](RunConfig* c) { c->mutable_training()->set_steps(0); }),
              HasSubstr("training.steps: expected an integer >= 1, found 0"));
  EXPECT_THAT(error([](RunConfig* c) { c->mutable_training()->set_micro_batches(3); }),
              HasSubstr("training.micro_batches: expected a power of two that divides"));
  EXPECT_THAT(error([](RunConfig* c) { c->mutable_training()->set_sequence_length(1 << 30); }),
              HasSubstr("training.sequence_length: expected at most model.max_sequence_length"));
  EXPECT_THAT(error([](RunConfig* c) { c->mutable_data()->set_validation_fraction(0); }),
              HasSubstr("data.validation_fraction"));
  EXPECT_THAT(
      error([](RunConfig* c) { c->mutable_model()->mutable_attention()->set_num_kv_heads(3); }),
      HasSubstr("num_kv_heads"));
}

TEST(CheckResumable, LengthAndReportsMayChangeTheRunMayNot) {
  RunConfig wanted = Valid();
  std::vector<std::string> changed;
  EXPECT_TRUE(CheckResumable(Valid(), wanted, &changed).ok());
  EXPECT_TRUE(changed.empty());
  wanted.mutable_training()->set_steps(500);
  ASSERT_TRUE(CheckResumable(Valid(), wanted, &changed).ok());
  EXPECT_THAT(changed, ElementsAre("training.steps: 120 -> 500"));
  wanted.mutable_optimizer()->mutable_muon()->set_learning_rate(0.5);
  const absl::Status status = CheckResumable(Valid(), wanted, &changed);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("optimizer.muon.learning_rate"));
}

TEST(ResolveRunConfig, IsIdempotent) {
  EXPECT_EQ(ResolveRunConfig(Valid()).SerializeAsString(), Valid().SerializeAsString());
}

}  // namespace
}  // namespace headwise
