// config.json of every family, both ways, and everything that can be wrong with one.
#include "model/config.h"

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "core/base/check.h"
#include "core/io/file_system.h"
#include "core/rope/rotary_scaling.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/hf/hf_config.h"
#include "model/hf/layer_pattern.h"
#include "model/presets/presets.h"
#include "nlohmann/json.hpp"

namespace headwise {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

constexpr const char* kGolden[] = {"llama3",       "llama3_scaled", "llama_bf16",   "mistral",
                                   "qwen3",        "qwen3_window",  "qwen3_moe",    "gpt_oss",
                                   "muse_glimmer", "muse_spark",    "llama_sharded"};

std::string GoldenText(const std::string& name) {
  const absl::StatusOr<std::string> text =
      ReadWholeFile("tests/golden/data/" + name + "/config.json");
  HW_CHECK(text.ok()) << text.status();
  return *text;
}

json Golden(const std::string& name) { return json::parse(GoldenText(name)); }

ModelConfig Parsed(const json& config) {
  const absl::StatusOr<HfModel> hf = ParseHfConfig(config.dump());
  HW_CHECK(hf.ok()) << hf.status();
  return hf->model;
}

// Sets fields, in objects that are there already; null is a value.
void Set(const json& changes, json* config) {
  for (const auto& [field, value] : changes.items()) {
    json& old = (*config)[field];
    if (value.is_object() && old.is_object()) {
      Set(value, &old);
    } else {
      old = value;
    }
  }
}

// The error of a family's configuration with some fields set.
std::string ErrorOf(const std::string& name, const json& changes) {
  json config = Golden(name);
  Set(changes, &config);
  const absl::StatusOr<HfModel> hf = ParseHfConfig(config.dump());
  if (hf.ok()) return "accepted";
  EXPECT_EQ(hf.status().code(), absl::StatusCode::kDataLoss);
  return std::string(hf.status().message());
}

TEST(HfConfigTest, EveryFamilyIsReadFieldByField) {
  const ModelConfig llama = Parsed(Golden("llama3"));
  EXPECT_EQ(llama.name(), "llama");
  EXPECT_EQ(llama.vocab_size(), 160);
  EXPECT_EQ(llama.dim(), 64);
  EXPECT_EQ(llama.num_layers(), 6);
  EXPECT_EQ(llama.attention().num_query_heads(), 4);
  EXPECT_EQ(llama.attention().num_kv_heads(), 2);
  EXPECT_EQ(llama.attention().head_dim(), 16);
  EXPECT_EQ(llama.attention().packing(), INTERLEAVED_PER_KV_GROUP);
  EXPECT_EQ(llama.attention().rope().theta(), 500);
  EXPECT_EQ(llama.attention().rope().pairing(), HALF);
  EXPECT_EQ(llama.ffn().hidden_dim(), 32);
  EXPECT_EQ(llama.ffn_norm().epsilon(), 0.01);
  EXPECT_EQ(llama.max_sequence_length(), 512);
  EXPECT_FALSE(llama.tied_head());

  const ModelConfig scaled = Parsed(Golden("llama3_scaled"));
  EXPECT_TRUE(scaled.tied_head());
  EXPECT_EQ(scaled.attention().rope().scaling().kind(), ROPE_LLAMA3);

  const ModelConfig mistral = Parsed(Golden("mistral"));
  for (std::int64_t l = 0; l < 6; ++l) EXPECT_EQ(LayerWindow(mistral, l), 8);

  const ModelConfig qwen = Parsed(Golden("qwen3_window"));
  EXPECT_EQ(qwen.attention().head_norm(), HEAD_NORM_WEIGHTED);
  EXPECT_EQ(qwen.attention().head_norm_epsilon(), 0.01);
  EXPECT_EQ(qwen.attention().rounding(), BEFORE_WEIGHT);
  EXPECT_THAT(qwen.attention().window_pattern(), ElementsAre(0, 8));
  EXPECT_THAT(Parsed(Golden("qwen3")).attention().window_pattern(), ElementsAre(0));

  const ModelConfig moe = Parsed(Golden("qwen3_moe"));
  EXPECT_EQ(moe.ffn().hidden_dim(), 0);
  EXPECT_EQ(moe.ffn().moe().num_experts(), 4);
  EXPECT_EQ(moe.ffn().moe().experts_per_token(), 2);
  EXPECT_EQ(moe.ffn().moe().expert_dim(), 12);
  EXPECT_TRUE(moe.ffn().moe().normalize());
  EXPECT_EQ(moe.ffn().moe().balancing(), BALANCING_NONE);

  const ModelConfig oss = Parsed(Golden("gpt_oss"));
  EXPECT_TRUE(oss.attention().sinks());
  EXPECT_TRUE(oss.attention().qkv_bias());
  EXPECT_TRUE(oss.attention().output_bias());
  EXPECT_TRUE(oss.ffn().bias());
  EXPECT_TRUE(oss.ffn().moe().router_bias());
  EXPECT_EQ(oss.ffn().activation(), CLAMPED_SWIGLU);
  EXPECT_THAT(oss.attention().window_pattern(), ElementsAre(8, 0));
  EXPECT_EQ(oss.attention().rope().scaling().kind(), ROPE_YARN);
  EXPECT_TRUE(oss.attention().rope().scaling().exact_ramp());

  const ModelConfig muse = Parsed(Golden("muse_glimmer"));
  EXPECT_EQ(muse.attention().rope().nope_every(), 4);
  EXPECT_THAT(muse.attention().window_pattern(), ElementsAre(8, 8, 8, 0));
  EXPECT_EQ(muse.attention().query_scale(), 1.7);
  EXPECT_TRUE(muse.attention().output_gate());
  EXPECT_EQ(muse.post_attention_norm().epsilon(), 0.03);
  EXPECT_EQ(muse.attention_norm().style(), RMS_GAIN_CENTERED);
  EXPECT_EQ(muse.final_norm().style(), RMS);
  EXPECT_EQ(muse.embedding_norm().style(), RMS_SCALELESS);
  EXPECT_EQ(muse.logit_multiplier(), 0.7);
  EXPECT_EQ(muse.logit_cap(), 20);
}

TEST(HfConfigTest, WrittenAgainItIsTheSameModel) {
  for (const char* name : kGolden) {
    const ModelConfig model = Parsed(Golden(name));
    const absl::StatusOr<std::string> text = HfConfigOf(model);
    ASSERT_TRUE(text.ok()) << name << ": " << text.status();
    EXPECT_EQ(ModelDifference(Parsed(json::parse(*text)), model), "") << name;
    // Of the first family that can say it; these are the first.
    EXPECT_EQ(json::parse(*text)["model_type"], Golden(name)["model_type"]) << name;
  }
}

TEST(HfConfigTest, AnUpdateKeepsWhatIsNotTheDecoders) {
  for (const char* name : kGolden) {
    const std::string text = GoldenText(name);
    ModelConfig model = Parsed(json::parse(text));
    EXPECT_EQ(*UpdateHfConfig(text, model), text) << name;
    model.set_vocab_size(168);
    model.mutable_attention()->mutable_rope()->set_theta(700);
    const absl::StatusOr<std::string> updated = UpdateHfConfig(text, model);
    ASSERT_TRUE(updated.ok()) << updated.status();
    const json before = json::parse(text), after = json::parse(*updated);
    EXPECT_EQ(ModelDifference(Parsed(after), model), "") << name;
    for (const auto& [field, value] : before.items()) {
      if (field != "text_config" && field != "vocab_size" && field.rfind("rope_", 0) != 0) {
        EXPECT_EQ(after.value(field, json()), value) << name << " " << field;
      }
    }
  }
  ModelConfig gated = Parsed(Golden("llama3"));
  gated.mutable_attention()->set_output_gate(true);
  EXPECT_THAT(std::string(UpdateHfConfig(GoldenText("llama3"), gated).status().message()),
              HasSubstr("llama cannot say model.attention.output_gate: true and false"));
}

TEST(HfConfigTest, PresetsBecomeTheFirstFamilyThatSaysThem) {
  const auto type_of = [](const char* preset) {
    const absl::StatusOr<std::string> text = HfConfigOf(LoadPreset(preset)->model());
    if (!text.ok()) return std::string(text.status().message());
    return json::parse(*text)["model_type"].get<std::string>();
  };
  EXPECT_EQ(type_of("muse_17m"), "llama");
  EXPECT_EQ(type_of("llama3_tiny"), "llama");
  EXPECT_EQ(type_of("qwen3_tiny"), "qwen3");
  EXPECT_EQ(type_of("gpt_oss_tiny"), "gpt_oss");
  EXPECT_EQ(type_of("muse_glimmer_tiny"), "muse_glimmer");
  EXPECT_EQ(type_of("muse_glimmer_30b"), "muse_glimmer");
  EXPECT_EQ(type_of("muse_spark"), "muse_spark");
  // Another epsilon of the head norm than of the other norms.
  EXPECT_THAT(type_of("muse_demo"),
              HasSubstr("the closest, muse_glimmer, differs in model.attention.head_norm_epsilon"));
  ModelConfig partial = LoadPreset("muse_17m")->model();
  partial.mutable_attention()->mutable_rope()->set_rotary_dim(32);
  EXPECT_THAT(
      std::string(HfConfigOf(partial).status().message()),
      HasSubstr("the closest, llama, differs in model.attention.rope.rotary_dim: 32 and 64"));
}

void SetPattern(const std::vector<std::int64_t>& pattern, ModelConfig* model) {
  model->mutable_attention()->mutable_window_pattern()->Assign(pattern.begin(), pattern.end());
}

TEST(HfConfigTest, DifferencesThatAreNone) {
  const ModelConfig model = Parsed(Golden("muse_glimmer"));
  ModelConfig other = model;
  other.set_name("other");
  other.mutable_init()->set_linear_std(0.5);
  other.mutable_attention()->set_packing(SECTIONED);
  other.mutable_attention()->set_rounding(ONLY_AT_END);
  SetPattern({8, 8, 8, 0, 8, 8, 8, 0}, &other);
  EXPECT_EQ(ModelDifference(model, other), "");
  SetPattern({8, 8, 0, 8}, &other);
  EXPECT_THAT(ModelDifference(model, other), StartsWith("attention.window_pattern: "));
}

// RoPE in the forms of both generations of transformers, against tables that it computed.
TEST(HfConfigTest, RotaryParametersInEveryForm) {
  const json tables = json::parse(*ReadWholeFile("tests/golden/data/rope_tables/rope_tables.json"));
  ASSERT_GE(tables.size(), 10u);
  for (const json& table : tables) {
    json config = Golden("llama3");
    config.erase("rope_parameters");
    for (const auto& [field, value] : table["config"].items()) config[field] = value;
    const ModelConfig model = Parsed(config);
    const RopeConfig& rope = model.attention().rope();
    const RopeScaling& s = rope.scaling();
    RotaryScaling scaling;
    if (s.kind() == ROPE_LINEAR) scaling = LinearScaling{.factor = s.factor()};
    if (s.kind() == ROPE_LLAMA3) {
      scaling = Llama3Scaling{.factor = s.factor(),
                              .low_freq_factor = s.low_freq_factor(),
                              .high_freq_factor = s.high_freq_factor(),
                              .original_max_position = s.original_max_position()};
    }
    if (s.kind() == ROPE_YARN) {
      scaling = YarnScaling{.factor = s.factor(),
                            .original_max_position = s.original_max_position(),
                            .beta_fast = s.beta_fast(),
                            .beta_slow = s.beta_slow(),
                            .truncate = !s.exact_ramp(),
                            .attention_factor = s.attention_factor()};
    }
    const auto frequencies = ScaledFrequencies(scaling, rope.theta(), model.attention().head_dim());
    ASSERT_TRUE(frequencies.ok()) << frequencies.status();
    EXPECT_NEAR(frequencies->attention_factor, table["multiplier"].get<double>(), 1e-12);
    ASSERT_EQ(frequencies->inv_freq.size(), table["inv_freq"].size());
    for (std::size_t i = 0; i < frequencies->inv_freq.size(); ++i) {
      const double expected = table["inv_freq"][i].get<double>();
      EXPECT_NEAR(frequencies->inv_freq[i], expected, 1e-5 * expected) << table["config"];
    }
  }
}

// What is absent has the default of the family's class; null is another thing.
TEST(HfConfigTest, AbsentAndNull) {
  json config = Golden("mistral");
  config.erase("sliding_window");
  EXPECT_EQ(LayerWindow(Parsed(config), 0), 4096);
  config["sliding_window"] = nullptr;
  EXPECT_EQ(LayerWindow(Parsed(config), 0), 0);

  config = Golden("qwen3");
  config.erase("head_dim");
  EXPECT_EQ(Parsed(config).attention().head_dim(), 128);
  config["head_dim"] = nullptr;
  EXPECT_EQ(Parsed(config).attention().head_dim(), 16);
  config.erase("num_key_value_heads");
  config["num_attention_heads"] = 64;
  config["head_dim"] = 2;
  EXPECT_EQ(Parsed(config).attention().num_kv_heads(), 32);
  config["num_key_value_heads"] = nullptr;
  EXPECT_EQ(Parsed(config).attention().num_kv_heads(), 64);

  config = Golden("gpt_oss");
  config.erase("rope_parameters");
  EXPECT_EQ(Parsed(config).attention().rope().theta(), 150000);
  EXPECT_EQ(Parsed(config).attention().rope().scaling().factor(), 32);
  config.erase("layer_types");
  EXPECT_THAT(Parsed(config).attention().window_pattern(), ElementsAre(8, 0));

  config = Golden("muse_glimmer");
  for (const char* field : {"layer_types", "layer_rope_theta"}) config["text_config"].erase(field);
  EXPECT_EQ(ModelDifference(Parsed(config), Parsed(Golden("muse_glimmer"))), "");

  config = Golden("qwen3_moe");
  config["mlp_only_layers"] = {0, 1};
  EXPECT_EQ(Parsed(config).ffn().moe().dense_layers(), 2);
  EXPECT_EQ(Parsed(config).ffn().hidden_dim(), 12);
  config["output_router_logits"] = true;
  EXPECT_EQ(Parsed(config).ffn().moe().auxiliary_loss_weight(), 0.001);
}

TEST(HfConfigTest, FieldsThatWeCannotRunAreRefusedByName) {
  EXPECT_THAT(ErrorOf("llama3", {{"attention_dropout", 0.1}}),
              StartsWith("attention_dropout: 0.1 is not supported; expected 0: "));
  EXPECT_THAT(ErrorOf("llama3", {{"hidden_act", "gelu"}}),
              StartsWith("hidden_act: 'gelu' is not supported; expected silu"));
  EXPECT_THAT(ErrorOf("llama3", {{"quantization_config", {{"quant_method", "mxfp4"}}}}),
              StartsWith("quantization_config: quantised weights are not supported"));
  EXPECT_THAT(ErrorOf("muse_glimmer", {{"quantization_config", {{"bits", 8}}}}),
              StartsWith("quantization_config: quantised"));
  EXPECT_THAT(ErrorOf("llama3", {{"sliding_window", 8}}), StartsWith("sliding_window: found 8"));
  EXPECT_THAT(ErrorOf("llama3", {{"num_atention_heads", 4}}),
              AllOf(StartsWith("num_atention_heads: unknown field, found 4"),
                    HasSubstr("did you mean 'num_attention_heads'")));
  EXPECT_THAT(ErrorOf("muse_glimmer", {{"text_config", {{"use_qk_norm", true}}}}),
              StartsWith("text_config.use_qk_norm: is of an early form"));
  EXPECT_THAT(ErrorOf("muse_glimmer", {{"vision_confg", 1}}),
              HasSubstr("did you mean 'vision_config'"));
  EXPECT_THAT(ErrorOf("muse_glimmer", {{"text_config", nullptr}}),
              StartsWith("text_config: expected an object"));
  EXPECT_THAT(ErrorOf("llama3", {{"model_type", "lama"}}),
              AllOf(StartsWith("model_type: 'lama' is not supported; expected one of llama, "),
                    HasSubstr("did you mean 'llama'")));
  EXPECT_THAT(ErrorOf("llama3", {{"model_type", nullptr}}), StartsWith("model_type: expected one"));
  EXPECT_THAT(ErrorOf("mistral", {{"layer_types", {"full_attention"}}}),
              StartsWith("layer_types: found a list of 1, which Mistral does not read"));
}

TEST(HfConfigTest, ContradictionsAreErrors) {
  EXPECT_THAT(ErrorOf("llama3", {{"num_key_value_heads", 3}}),
              StartsWith("num_key_value_heads: 3 does not divide num_attention_heads 4"));
  EXPECT_THAT(ErrorOf("llama3", {{"num_attention_heads", 6}, {"head_dim", nullptr}}),
              StartsWith("num_attention_heads: 6 does not divide hidden_size 64"));
  EXPECT_THAT(ErrorOf("llama3", {{"head_dim", 15}}),
              StartsWith("says model.attention.head_dim: 15 must be even"));
  EXPECT_THAT(ErrorOf("qwen3", {{"layer_types", {"full_attention"}}}),
              StartsWith("layer_types: expected num_hidden_layers = 6 entries, found 1"));
  EXPECT_THAT(ErrorOf("qwen3_window", {{"layer_types", {"full_attention", "chunked"}}}),
              StartsWith("layer_types[1]: 'chunked' is not supported"));
  EXPECT_THAT(ErrorOf("qwen3_window", {{"use_sliding_window", false}}),
              StartsWith("sliding_window: none, but layer 1 is sliding_attention"));
  EXPECT_THAT(ErrorOf("gpt_oss", {{"sliding_window", nullptr}}),
              StartsWith("sliding_window: none, but layer 0"));
  EXPECT_THAT(ErrorOf("gpt_oss", {{"experts_per_token", 3}}),
              StartsWith("experts_per_token: expected num_experts_per_tok = 2, found 3"));
  EXPECT_THAT(ErrorOf("qwen3_moe", {{"num_experts_per_tok", 5}}),
              StartsWith("says model.ffn.moe.experts_per_token: 5 must be from 1 to"));
  EXPECT_THAT(ErrorOf("qwen3_moe", {{"decoder_sparse_step", 2}}),
              StartsWith("decoder_sparse_step: makes layer 2 dense behind layer 1"));
  EXPECT_THAT(ErrorOf("qwen3_moe", {{"mlp_only_layers", {3}}}),
              StartsWith("mlp_only_layers: makes layer 3 dense"));
  EXPECT_THAT(
      ErrorOf("muse_glimmer", {{"text_config", {{"layer_rope_theta", {0, 0, 500, 500, 500, 0}}}}}),
      StartsWith("text_config.layer_rope_theta: layer 0 has no rotation"));
  EXPECT_THAT(ErrorOf("muse_glimmer",
                      {{"text_config", {{"layer_rope_theta", {500, 0, 500, 400, 500, 0}}}}}),
              StartsWith("text_config.layer_rope_theta[3]: 400 is not supported"));
  const auto spark = [](const json& text) {
    return ErrorOf("muse_spark", {{"text_config", text}});
  };
  EXPECT_THAT(spark({{"mlp_layer_types", {"dense", "sparse", "dense", "sparse", "sparse"}}}),
              StartsWith("text_config.mlp_layer_types[2]: is dense behind a sparse layer"));
  EXPECT_THAT(spark({{"mlp_layer_types", {"dense", "moe", "sparse", "sparse", "sparse"}}}),
              StartsWith("text_config.mlp_layer_types[1]: expected dense or sparse, found moe"));
  EXPECT_THAT(spark({{"mlp_layer_types", {"sparse"}}}),
              StartsWith("text_config.mlp_layer_types: expected num_hidden_layers = 5 entries"));
  EXPECT_THAT(spark({{"attention_bias", true}}), StartsWith("text_config.attention_bias: true"));
  EXPECT_THAT(spark({{"tie_word_embeddings", true}}),
              StartsWith("text_config.tie_word_embeddings: this family's head is its own"));
  EXPECT_THAT(spark({{"routed_scaling_factor", 0}}),
              StartsWith("text_config.routed_scaling_factor: "));
  EXPECT_THAT(ErrorOf("muse_glimmer", {{"tie_word_embeddings", true}}),
              StartsWith("tie_word_embeddings: expected that of text_config"));
}

TEST(HfConfigTest, RotaryParametersThatAreWrong) {
  const auto rope = [](const json& parameters) {
    return ErrorOf("llama3", {{"rope_parameters", parameters}});
  };
  EXPECT_THAT(rope({{"rope_type", "dynamic"}}),
              StartsWith("rope_parameters.rope_type: 'dynamic' is not supported"));
  EXPECT_THAT(rope({{"rope_type", "linear"}}),
              StartsWith("rope_parameters.factor: expected a number >= 1, found none"));
  EXPECT_THAT(rope({{"rope_type", "llama3"}, {"factor", 2}}),
              StartsWith("rope_parameters.low_freq_factor: expected a number, found none"));
  EXPECT_THAT(rope({{"partial_rotary_factor", 0.5}}),
              StartsWith("rope_parameters.partial_rotary_factor: 0.5 is not supported"));
  EXPECT_THAT(rope({{"full_attention", {{"rope_type", "default"}}}}),
              StartsWith("rope_parameters.full_attention: rotary parameters by kind of layer"));
  EXPECT_THAT(rope({{"fator", 2}}), StartsWith("rope_parameters.fator: unknown field"));
  EXPECT_THAT(rope({{"rope_theta", 0}}), StartsWith("rope_parameters.rope_theta: expected"));
  EXPECT_THAT(ErrorOf("llama3", {{"rope_theta", 600}}),
              StartsWith("rope_parameters.rope_theta: expected the rope_theta of the top level"));
  EXPECT_THAT(ErrorOf("llama3", {{"rope_scaling", {{"type", "linear"}, {"factor", 2}}}}),
              StartsWith("rope_scaling: found beside rope_parameters"));
}

TEST(HfConfigTest, TextThatIsNoConfiguration) {
  const auto error = [](const std::string& text) {
    return std::string(ParseHfConfig(text).status().message());
  };
  EXPECT_THAT(error(GoldenText("llama3").substr(0, 300)), StartsWith("not valid JSON: "));
  EXPECT_THAT(error("[]"), StartsWith("expected a JSON object"));
  EXPECT_THAT(error("{\"a\":" + std::string(100000, '[')), StartsWith("nested 100001 levels"));
  EXPECT_THAT(ErrorOf("llama3", {{"hidden_size", "big"}}),
              StartsWith("hidden_size: expected an integer from 1 to 2147483648, found "));
  EXPECT_THAT(ErrorOf("llama3", {{"hidden_size", 64.5}}), StartsWith("hidden_size: expected"));
  EXPECT_THAT(ErrorOf("llama3", {{"hidden_size", -64}}), StartsWith("hidden_size: expected"));
  EXPECT_THAT(ErrorOf("llama3", {{"num_hidden_layers", 100000}}),
              StartsWith("num_hidden_layers: expected at most 65536"));
  EXPECT_THAT(ErrorOf("llama3", {{"rms_norm_eps", 0}}),
              StartsWith("says model.attention_norm.epsilon"));
  EXPECT_THAT(ErrorOf("llama3", {{"mlp_bias", 1}}), StartsWith("mlp_bias: expected true or false"));
  // Python writes it so; here it is null.
  std::string text = GoldenText("llama3");
  text.replace(text.find("0.01"), 4, "NaN");
  EXPECT_THAT(error(text), StartsWith("rms_norm_eps: expected a finite number, found null"));
}

// Any windows, and rotation absent from every e-th layer, come back as they were.
TEST(LayerPatternTest, WhatIsSetIsWhatTheModelHas) {
  for (std::int64_t n = 1; n <= 9; ++n) {
    for (std::int64_t every = 0; every <= n + 1; ++every) {
      for (std::int64_t windows = 0; windows<(1 << n); windows += n> 6 ? 7 : 1) {
        std::vector<LayerKind> layers;
        for (std::int64_t l = 0; l < n; ++l) {
          layers.push_back({.rotates = every == 0 || (n - l - 1) % every != 0,
                            .window = (windows >> l & 1) != 0 ? 5 + l % 2 : 0});
        }
        ModelConfig model;
        model.set_num_layers(n);
        ASSERT_TRUE(SetLayers(layers, model.mutable_attention()).ok());
        ASSERT_EQ(LayersOf(model), layers) << n << " " << every << " " << windows;
      }
    }
  }
}

TEST(LayerPatternTest, ThePatternIsTheShortest) {
  ModelConfig model;
  model.set_num_layers(10);
  std::vector<LayerKind> layers(10);
  for (std::size_t l = 0; l < 10; ++l) layers[l] = {.rotates = l % 4 != 1, .window = l % 2 ? 0 : 6};
  ASSERT_TRUE(SetLayers(layers, model.mutable_attention()).ok());
  EXPECT_EQ(model.attention().rope().nope_every(), 4);
  EXPECT_THAT(model.attention().window_pattern(), ElementsAre(6, 0));
  layers[0].rotates = false;
  EXPECT_THAT(std::string(SetLayers(layers, model.mutable_attention()).message()),
              HasSubstr("layer 0 has no rotation"));
}

}  // namespace
}  // namespace headwise
