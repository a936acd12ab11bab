#include "model/config.h"

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "model/test_config.h"

namespace headwise {
namespace {

TEST(ConfigTest, TestConfigsAreValidOpenAndResolved) {
  for (const ModelConfig& config : AllTestConfigs()) {
    EXPECT_TRUE(ValidateModelConfig(config).ok()) << ValidateModelConfig(config);
    EXPECT_TRUE(ValidateModelConfig(ResolveModelConfig(config)).ok());
  }
}

// Each mistake, and the whole line that the user reads.
TEST(ConfigTest, NamesTheFirstWrongFieldItsValueAndWhatItMustBe) {
  struct Case {
    std::function<void(ModelConfig&)> mistake;
    std::string message;
  };
  const std::vector<Case> cases = {
      {[](ModelConfig& c) { c.set_vocab_size(0); },
       "model.vocab_size: 0 is out of range; it must be from 1 to 2147483648"},
      {[](ModelConfig& c) { c.set_dim(-3); },
       "model.dim: -3 is out of range; it must be from 1 to 2147483648"},
      {[](ModelConfig& c) { c.clear_num_layers(); },
       "model.num_layers: 0 is out of range; it must be from 1 to 2147483648"},
      {[](ModelConfig& c) { c.mutable_attention()->set_num_kv_heads(3); },
       "model.attention.num_kv_heads: 3 does not divide num_query_heads 4"},
      {[](ModelConfig& c) { c.mutable_attention()->set_num_kv_heads(0); },
       "model.attention.num_kv_heads: 0 is out of range; it must be from 1 to 2147483648"},
      {[](ModelConfig& c) { c.mutable_attention()->set_head_dim(7); },
       "model.attention.head_dim: 7 must be even and from 2 to 512"},
      {[](ModelConfig& c) { c.mutable_attention()->set_head_dim(514); },
       "model.attention.head_dim: 514 must be even and from 2 to 512"},
      {[](ModelConfig& c) { c.mutable_attention()->mutable_rope()->set_rotary_dim(10); },
       "model.attention.rope.rotary_dim: 10 must be even and from 0 (all) to head_dim 8"},
      {[](ModelConfig& c) { c.mutable_attention()->mutable_rope()->set_rotary_dim(5); },
       "model.attention.rope.rotary_dim: 5 must be even and from 0 (all) to head_dim 8"},
      {[](ModelConfig& c) { c.mutable_attention()->mutable_rope()->set_theta(0); },
       "model.attention.rope.theta: 0 must be a finite number > 0"},
      {[](ModelConfig& c) { c.mutable_attention()->mutable_rope()->set_nope_every(-1); },
       "model.attention.rope.nope_every: -1 must be >= 0; 0: every layer rotates"},
      {[](ModelConfig& c) { c.mutable_attention()->set_head_norm(HEAD_NORM_NONE); },
       "model.attention.query_scale: 1.5 needs a head norm: with head_norm HEAD_NORM_NONE it must "
       "be 1"},
      {[](ModelConfig& c) { c.mutable_attention()->set_head_norm_epsilon(0); },
       "model.attention.head_norm_epsilon: 0 must be > 0 and < 1, e.g. 1e-6"},
      {[](ModelConfig& c) { c.mutable_attention()->set_window_pattern(1, -5); },
       "model.attention.window_pattern[1]: -5 must be >= 0; 0: every key"},
      {[](ModelConfig& c) { c.mutable_attention()->set_packing(static_cast<QkvPacking>(9)); },
       "model.attention.packing: 9 is not a QkvPacking"},
      {[](ModelConfig& c) { c.mutable_ffn()->set_hidden_dim(0); },
       "model.ffn.hidden_dim: 0 is out of range; it must be from 1 to 2147483648"},
      // Experts are wanted, but not how many.
      {[](ModelConfig& c) {
         c.mutable_ffn()->set_hidden_dim(0);
         c.mutable_ffn()->mutable_moe()->set_expert_dim(8);
       },
       "model.ffn.moe.num_experts: 0 is out of range; it must be from 1 to 2147483648"},
      {[](ModelConfig& c) { c.mutable_ffn_norm()->set_epsilon(-1e-5); },
       "model.ffn_norm.epsilon: -1e-05 must be > 0 and < 1, e.g. 1e-5"},
      {[](ModelConfig& c) { c.mutable_final_norm()->set_epsilon(1e-60); },
       "model.final_norm.epsilon: 1e-60 must be > 0 and < 1, e.g. 1e-5"},
      {[](ModelConfig& c) { c.set_logit_cap(-1); },
       "model.logit_cap: -1 must be a finite number >= 0"},
      {[](ModelConfig& c) { c.set_logit_cap(1e-300); },
       "model.logit_cap: 1e-300 is nothing in single precision; it must be 0, or larger"},
      {[](ModelConfig& c) { c.set_logit_multiplier(std::numeric_limits<double>::quiet_NaN()); },
       "model.logit_multiplier: nan must be a finite number >= 0"},
      {[](ModelConfig& c) { c.mutable_init()->set_linear_std(-0.02); },
       "model.init.linear_std: -0.02 must be a finite number >= 0"},
      {[](ModelConfig& c) { c.set_max_sequence_length(0); },
       "model.max_sequence_length: 0 is out of range; it must be from 1 to 2147483648"},
      // Two mistakes: the first in the order of the proto.
      {[](ModelConfig& c) {
         c.set_logit_cap(-1);
         c.set_dim(0);
       },
       "model.dim: 0 is out of range; it must be from 1 to 2147483648"},
  };
  for (const Case& c : cases) {
    ModelConfig config = EverythingConfig();
    c.mistake(config);
    const absl::Status status = ValidateModelConfig(config);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(std::string(status.message()), c.message);
  }
}

TEST(ConfigTest, AnAbsentNormNeedsNoEpsilon) {
  ModelConfig config = EverythingConfig();
  config.mutable_ffn_norm()->set_style(NORM_ABSENT);
  config.mutable_ffn_norm()->set_epsilon(0);
  EXPECT_TRUE(ValidateModelConfig(config).ok());
}

TEST(ConfigTest, ResolvingFillsInDefaultsOnceAndChangesNothingElse) {
  ModelConfig open = PlainConfig();
  open.mutable_attention()->set_query_scale(0);
  open.mutable_attention()->mutable_rope()->set_rotary_dim(0);
  open.set_logit_multiplier(0);
  const ModelConfig resolved = ResolveModelConfig(open);
  EXPECT_EQ(resolved.attention().query_scale(), 1);
  EXPECT_EQ(resolved.attention().rope().rotary_dim(), 8);
  ASSERT_EQ(resolved.attention().window_pattern_size(), 1);
  EXPECT_EQ(resolved.attention().window_pattern(0), 0);
  EXPECT_EQ(resolved.logit_multiplier(), 1);
  EXPECT_DOUBLE_EQ(resolved.init().head_std(), 1 / std::sqrt(24.0));
  EXPECT_EQ(ResolveModelConfig(resolved).SerializeAsString(), resolved.SerializeAsString());
  EXPECT_EQ(resolved.dim(), open.dim());
}

std::vector<bool> Rotating(const ModelConfig& config) {
  std::vector<bool> rope;
  for (std::int64_t l = 0; l < config.num_layers(); ++l) rope.push_back(LayerUsesRope(config, l));
  return rope;
}

std::vector<std::int64_t> Windows(const ModelConfig& config) {
  std::vector<std::int64_t> windows;
  for (std::int64_t l = 0; l < config.num_layers(); ++l) windows.push_back(LayerWindow(config, l));
  return windows;
}

ModelConfig Pattern(std::int64_t layers, std::int64_t nope_every,
                    const std::vector<std::int64_t>& windows) {
  ModelConfig config;
  config.set_num_layers(layers);
  config.mutable_attention()->mutable_rope()->set_nope_every(nope_every);
  for (const std::int64_t w : windows) config.mutable_attention()->add_window_pattern(w);
  return config;
}

TEST(ConfigTest, TheLayerPatternIsCountedFromTheLastLayer) {
  using Flags = std::vector<bool>;
  using Sizes = std::vector<std::int64_t>;
  const ModelConfig even = Pattern(8, 4, {128, 128, 128, 0});
  EXPECT_EQ(Rotating(even), (Flags{true, true, true, false, true, true, true, false}));
  EXPECT_EQ(Windows(even), (Sizes{128, 128, 128, 0, 128, 128, 128, 0}));
  // 6 layers do not divide by 4: the last is still NoPE and global, the remainder is at the front.
  const ModelConfig odd = Pattern(6, 4, {7, 8, 9, 0});
  EXPECT_EQ(Rotating(odd), (Flags{true, false, true, true, true, false}));
  EXPECT_EQ(Windows(odd), (Sizes{9, 0, 7, 8, 9, 0}));
  const ModelConfig all = Pattern(3, 0, {5, 6});
  EXPECT_EQ(Rotating(all), (Flags{true, true, true}));
  EXPECT_EQ(Windows(all), (Sizes{5, 6, 5}));
  EXPECT_EQ(Windows(Pattern(2, 4, {})), (Sizes{0, 0}));
}

}  // namespace
}  // namespace headwise
