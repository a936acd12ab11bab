#include "model/train/run_config.h"

#include <cstdint>

#include "core/proto/message_fields.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/config.h"
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
  EXPECT_THAT(
      error([](RunConfig* c) { c->mutable_training()->set_batch_size(std::int64_t{1} << 40); }),
      HasSubstr("training.batch_size: expected at most"));
  EXPECT_THAT(error([](RunConfig* c) { c->mutable_training()->set_steps(std::int64_t{1} << 40); }),
              HasSubstr("training.steps: expected at most"));
  EXPECT_THAT(error([](RunConfig* c) { c->mutable_training()->set_sample_tokens(1 << 20); }),
              HasSubstr("training.sample_tokens: expected at most"));
  EXPECT_THAT(error([](RunConfig* c) { c->mutable_data()->set_document_separator(256); }),
              HasSubstr("data.document_separator: expected a token below model.vocab_size = 256"));
  for (const char* name : {"", "../x", "a/b", ".hidden"}) {
    EXPECT_THAT(error([&](RunConfig* c) { c->mutable_model()->set_name(name); }),
                HasSubstr("model.name"));
  }
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
  changed.clear();
  wanted.mutable_optimizer()->mutable_muon()->set_compute_mode(TENSOR_CORE);
  ASSERT_TRUE(CheckResumable(wanted, Valid(), &changed).ok());
  EXPECT_THAT(changed, ElementsAre("training.steps: 500 -> 120",
                                   "optimizer.muon.compute_mode: TENSOR_CORE -> CONTRACT_FP32"));
  wanted.mutable_optimizer()->mutable_muon()->set_learning_rate(0.5);
  const absl::Status status = CheckResumable(Valid(), wanted, &changed);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("optimizer.muon.learning_rate"));
}

TEST(SetSteps, ScalesTheScheduleAndStaysValid) {
  RunConfig config = Valid();
  ASSERT_EQ(config.training().steps(), 120);
  ASSERT_EQ(config.optimizer().schedule().decay_steps(), 40);
  for (const std::int64_t steps : {1, 2, 7, 12, 119, 1200}) {
    RunConfig other = config;
    SetSteps(steps, &other);
    EXPECT_TRUE(ValidateRunConfig(other).ok())
        << steps << ": " << ValidateRunConfig(other).message();
    EXPECT_EQ(other.training().steps(), steps);
    EXPECT_EQ(other.optimizer().schedule().decay_steps(), std::max<std::int64_t>(1, steps / 3))
        << steps;
  }
  config.mutable_training()->set_steps(20);
  EXPECT_THAT(std::string(ValidateRunConfig(config).message()), HasSubstr("optimizer.schedule"));
}

TEST(ResolveRunConfig, IsIdempotent) {
  EXPECT_EQ(ResolveRunConfig(Valid()).SerializeAsString(), Valid().SerializeAsString());
}

// What `muse train --print-config` prints, `--config` reads: groups that are printed with zeros
// only, as `moe` of a model without experts, mean what their absence does.
TEST(ResolveRunConfig, WhatIsPrintedOfAPresetIsReadBack) {
  for (const Preset& preset : ListPresets()) {
    const RunConfig config = ResolveRunConfig(*LoadPreset(preset.name));
    RunConfig read;
    ASSERT_TRUE(ParseTextProto(preset.name, PrintAllFields(config), &read).ok());
    EXPECT_TRUE(ValidateRunConfig(read).ok()) << preset.name << ": " << ValidateRunConfig(read);
    const RunConfig resolved = ResolveRunConfig(read);
    EXPECT_TRUE(ValidateRunConfig(resolved).ok()) << preset.name;
    EXPECT_EQ(FieldValues(resolved), FieldValues(config)) << preset.name;
    EXPECT_EQ(resolved.model().ffn().has_moe(), config.model().ffn().has_moe()) << preset.name;
    for (std::int64_t l = 0; l < config.model().num_layers(); ++l) {
      EXPECT_EQ(LayerHasExperts(read.model(), l), LayerHasExperts(config.model(), l))
          << preset.name << ", layer " << l;
    }
  }
}

}  // namespace
}  // namespace headwise
