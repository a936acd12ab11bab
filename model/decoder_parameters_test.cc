// What a decoder is made of: names, shapes, roles, head blocks, counts, memory, and the
// distribution of initial weights.
#include <malloc.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "model/config.h"
#include "model/counts.h"
#include "model/decoder.h"
#include "model/presets/presets.h"
#include "model/test_config.h"

namespace headwise {
namespace {

std::unique_ptr<Decoder> Create(const ModelConfig& config, const DecoderOptions& options) {
  auto decoder = Decoder::Create(config, options);
  HW_CHECK(decoder.ok()) << decoder.status();
  return *std::move(decoder);
}

std::unique_ptr<Decoder> OnMeta(const ModelConfig& config) {
  return Create(config, {.device = Device::kMeta});
}

const Parameter& Find(Decoder& decoder, const std::string& name) {
  for (const Parameter* parameter : decoder.parameters()) {
    if (parameter->name == name) return *parameter;
  }
  HW_CHECK(false) << "no parameter " << name;
  return *decoder.parameters()[0];
}

TEST(DecoderParametersTest, NamesShapesAndRolesInDefinitionOrder) {
  ModelConfig config = EverythingConfig();
  config.set_num_layers(1);
  *config.mutable_embedding_norm() = config.final_norm();
  const auto decoder = OnMeta(config);
  std::string listing;
  for (const Parameter* p : decoder->parameters()) {
    listing += p->name + " " + ToString(p->value.shape()) + " " + Name(p->role) +
               (p->head_blocks ? " " + std::to_string(p->head_blocks->size()) + " blocks" : "") +
               "\n";
    EXPECT_EQ(p->gradient.shape(), p->value.shape());
  }
  EXPECT_EQ(listing,
            "embedding.weight [19, 24] embedding\n"
            "embedding_norm.weight [24] norm\n"
            "layers.0.attention_norm.weight [24] norm\n"
            "layers.0.attention.wqkv [64, 24] packed_qkv 8 blocks\n"
            "layers.0.attention.wqkv_bias [64] bias\n"
            "layers.0.attention.q_norm [8] norm\n"
            "layers.0.attention.k_norm [8] norm\n"
            "layers.0.attention.gate [32, 24] attention_gate 4 blocks\n"
            "layers.0.attention.wo [24, 32] attention_output\n"
            "layers.0.post_attention_norm.weight [24] norm\n"
            "layers.0.ffn_norm.weight [24] norm\n"
            "layers.0.ffn.w1 [40, 24] mlp\n"
            "layers.0.ffn.w3 [40, 24] mlp\n"
            "layers.0.ffn.w2 [24, 40] mlp\n"
            "layers.0.post_ffn_norm.weight [24] norm\n"
            "final_norm.weight [24] norm\n"
            "head.weight [19, 24] output_head\n");
  EXPECT_EQ(Find(*decoder, "layers.0.attention.q_norm").per_group_gradient.shape(), (Shape{2, 8}));
  EXPECT_FALSE(Find(*decoder, "final_norm.weight").per_group_gradient.defined());
}

TEST(DecoderParametersTest, InferenceHasTheSameParametersWithoutGradients) {
  for (const Device device : {Device::kMeta, Device::kCpu}) {
    for (const ModelConfig& config : AllTestConfigs()) {
      const auto training = Create(config, {.device = device});
      const auto inference = Create(config, {.device = device, .mode = DecoderMode::kInference});
      ASSERT_EQ(inference->parameters().size(), training->parameters().size());
      for (std::size_t i = 0; i < training->parameters().size(); ++i) {
        const Parameter& p = *inference->parameters()[i];
        const Parameter& expected = *training->parameters()[i];
        EXPECT_EQ(p.name, expected.name);
        EXPECT_EQ(p.value.shape(), expected.value.shape()) << p.name;
        EXPECT_EQ(p.value.dtype(), expected.value.dtype()) << p.name;
        EXPECT_EQ(p.head_blocks.has_value(), expected.head_blocks.has_value()) << p.name;
        EXPECT_TRUE(expected.gradient.defined()) << p.name;
        EXPECT_FALSE(p.gradient.defined()) << p.name;
        EXPECT_FALSE(p.per_group_gradient.defined()) << p.name;
      }
    }
  }
}

#if !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)  // they have their own allocator
// Bytes that a decoder holds, over those of its master weights.
double HeldPerParameterByte(const ModelConfig& config, const DecoderOptions& options) {
  const auto held = [] {
    const struct mallinfo2 info = mallinfo2();
    return static_cast<double>(info.uordblks + info.hblkhd);
  };
  const double before = held();
  const auto decoder = Create(config, options);
  return (held() - before) / (4 * static_cast<double>(CountParameters(config).total));
}

TEST(DecoderParametersTest, InferenceTakesTheMemoryOfTheParametersAndOfTheirCopies) {
  const ModelConfig config = LoadPreset("muse_demo")->model();
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    const double copies = compute == DType::kBF16 ? 0.5 : 0;
    EXPECT_NEAR(HeldPerParameterByte(config, {.compute = compute}), 2 + copies, 0.1);
    EXPECT_NEAR(HeldPerParameterByte(config, {.compute = compute, .mode = DecoderMode::kInference}),
                1 + copies, 0.1);
  }
}
#endif

TEST(DecoderParametersDeathTest, InferenceHasNoBackwardPass) {
  const auto decoder = Create(PlainConfig(), {.mode = DecoderMode::kInference});
  ThreadPool pool(1);
  EXPECT_DEATH(decoder->ForwardBackward(TokenBatch(), 1, pool),
               "DecoderMode::kInference has no gradients: a backward pass needs "
               "DecoderMode::kTraining");
}

TEST(DecoderParametersTest, CountsAgreeWithTheParametersThemselves) {
  std::vector<ModelConfig> configs = AllTestConfigs();
  for (const Preset& preset : ListPresets()) configs.push_back(LoadPreset(preset.name)->model());
  for (const ModelConfig& config : configs) {
    const auto decoder = OnMeta(config);
    std::int64_t total = 0, matmul = 0;
    for (const Parameter* p : decoder->parameters()) {
      total += p->value.size();
      const bool matrix = p->value.rank() >= 2 && p->role != ParameterRole::kBias;
      if (!matrix || (p->role == ParameterRole::kEmbedding && !config.tied_head())) continue;
      const MoeConfig& moe = config.ffn().moe();
      matmul += p->role == ParameterRole::kExpert
                    ? p->value.size() / moe.num_experts() * moe.experts_per_token()
                    : p->value.size();
    }
    EXPECT_EQ(CountParameters(config).total, total) << config.name();
    EXPECT_EQ(CountParameters(config).matmul, matmul) << config.name();
  }
}

TEST(DecoderParametersTest, FlopsPerToken) {
  // 6 per matmul parameter, and 12 H D per visible key: by hand for one global and one windowed
  // layer.
  ModelConfig config = PlainConfig();
  config.set_num_layers(2);
  config.mutable_attention()->add_window_pattern(0);
  config.mutable_attention()->add_window_pattern(3);
  const double global = (1 + 2 + 3 + 4 + 5) / 5.0, windowed = (1 + 2 + 3 + 3 + 3) / 5.0;
  EXPECT_DOUBLE_EQ(TrainingFlopsPerToken(config, 5),
                   6.0 * static_cast<double>(CountParameters(config).matmul) +
                       12.0 * 4 * 8 * (global + windowed));
}

TEST(DecoderParametersTest, Muse17mHas17177088ParametersAndOnlyWqkvIsPerHead) {
  const auto decoder = OnMeta(LoadPreset("muse_17m")->model());
  std::int64_t total = 0;
  int per_head = 0, norms = 0;
  for (const Parameter* p : decoder->parameters()) {
    total += p->value.size();
    if (p->role == ParameterRole::kNorm) ++norms;
    if (!p->head_blocks.has_value()) continue;
    ++per_head;
    EXPECT_EQ(p->role, ParameterRole::kPackedQkv) << p->name;
    std::map<HeadRole, int> roles;
    for (const HeadBlock& block : p->head_blocks->blocks()) {
      ++roles[block.role];
      EXPECT_EQ(block.size(), 64);
    }
    EXPECT_EQ(roles, (std::map<HeadRole, int>{
                         {HeadRole::kQuery, 8}, {HeadRole::kKey, 2}, {HeadRole::kValue, 2}}))
        << p->name;
  }
  EXPECT_EQ(total, 17177088);
  EXPECT_EQ(per_head, 6);
  EXPECT_EQ(norms, 13);
}

struct Statistics {
  double mean = 0, std = 0, largest = 0;
};

Statistics StatisticsOf(const Tensor& value) {
  Statistics s;
  double sum = 0, squares = 0;
  for (std::int64_t i = 0; i < value.size(); ++i) {
    const double x = value.data<float>()[i];
    sum += x;
    squares += x * x;
    s.largest = std::max(s.largest, std::fabs(x));
  }
  const auto n = static_cast<double>(value.size());
  s.mean = sum / n;
  s.std = std::sqrt(squares / n - s.mean * s.mean);
  return s;
}

void ExpectDrawn(const Parameter& parameter, double std, bool truncated) {
  const Statistics s = StatisticsOf(parameter.value);
  const auto n = static_cast<double>(parameter.value.size());
  const double expected = truncated ? 0.98658 * std : std;
  EXPECT_NEAR(s.mean, 0, 5 * std / std::sqrt(n)) << parameter.name;
  EXPECT_NEAR(s.std, expected, 5 * std / std::sqrt(2 * n)) << parameter.name;
  if (truncated) {
    EXPECT_LE(s.largest, 3.0001 * std) << parameter.name;
  } else {
    EXPECT_GT(s.largest, 3.5 * std) << parameter.name;
  }
}

TEST(InitializeTest, EachSiteHasTheConfiguredDistribution) {
  const auto decoder = Create(LoadPreset("muse_demo")->model(), {});
  decoder->Initialize(1);
  ExpectDrawn(Find(*decoder, "embedding.weight"), 1, false);
  ExpectDrawn(Find(*decoder, "head.weight"), 1 / 16.0, true);
  for (const int layer : {0, 5}) {
    const std::string name = "layers." + std::to_string(layer);
    const double residual = 0.02 / std::sqrt(2.0 * (layer + 1));
    ExpectDrawn(Find(*decoder, name + ".attention.wqkv"), 0.02, true);
    ExpectDrawn(Find(*decoder, name + ".attention.gate"), 0.02, true);
    ExpectDrawn(Find(*decoder, name + ".attention.wo"), residual, true);
    ExpectDrawn(Find(*decoder, name + ".ffn.w1"), 0.02, true);
    ExpectDrawn(Find(*decoder, name + ".ffn.w2"), residual, true);
    ExpectDrawn(Find(*decoder, name + ".ffn.w3"), residual, true);
    EXPECT_EQ(StatisticsOf(Find(*decoder, name + ".attention_norm.weight").value).largest, 0);
  }
  EXPECT_EQ(StatisticsOf(Find(*decoder, "final_norm.weight").value).mean, 1);
}

TEST(InitializeTest, WeightedHeadNormsStartAtOneAndGainCentredOnesAtZero) {
  const auto weighted = Create(EverythingConfig(), {}), centred = Create(OtherwiseConfig(), {});
  weighted->Initialize(1);
  centred->Initialize(1);
  EXPECT_EQ(StatisticsOf(Find(*weighted, "layers.2.attention.q_norm").value).mean, 1);
  EXPECT_EQ(StatisticsOf(Find(*centred, "layers.2.attention.k_norm").value).largest, 0);
  EXPECT_EQ(StatisticsOf(Find(*weighted, "layers.2.attention.wqkv_bias").value).largest, 0);
}

TEST(InitializeTest, DependsOnSeedAndNameOnly) {
  ModelConfig shallow = EverythingConfig();
  shallow.mutable_init()->set_scale_residual_by_depth(false);
  ModelConfig deep = shallow;
  deep.set_num_layers(7);
  const auto a = Create(shallow, {}), b = Create(deep, {.compute = DType::kBF16}),
             c = Create(shallow, {});
  a->Initialize(11);
  b->Initialize(11);
  c->Initialize(12);
  for (const Parameter* p : a->parameters()) {
    const Tensor same = Find(*b, p->name).value, other = Find(*c, p->name).value;
    EXPECT_EQ(std::memcmp(p->value.raw_data(), same.raw_data(), p->value.bytes()), 0) << p->name;
    if (p->value.rank() == 2) {
      EXPECT_NE(std::memcmp(p->value.raw_data(), other.raw_data(), p->value.bytes()), 0) << p->name;
    }
  }
}

TEST(CreateTest, RefusesWhatItCannotRun) {
  ModelConfig config = EverythingConfig();
  config.mutable_attention()->set_num_kv_heads(3);
  EXPECT_EQ(std::string(Decoder::Create(config, {}).status().message()),
            "model.attention.num_kv_heads: 3 does not divide num_query_heads 4");
  EXPECT_FALSE(Decoder::Create(EverythingConfig(), {.compute = DType::kF64}).ok());
  EXPECT_FALSE(Decoder::Create(EverythingConfig(), {.compute = DType::kI32}).ok());
  EXPECT_EQ(std::string(
                Decoder::Create(EverythingConfig(), {.device = Device::kCuda}).status().message()),
            "a decoder on cuda needs a GPU and launchers of its kernels (DecoderOptions)");
}

}  // namespace
}  // namespace headwise
