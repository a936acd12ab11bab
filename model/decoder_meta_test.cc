// On Device::kMeta a training step and a decoding step of any size run in no time and touch no
// memory, and wrong shapes are found.
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "model/decoder.h"
#include "model/kv_cache.h"
#include "model/ops.h"
#include "model/presets/presets.h"
#include "model/test_config.h"
#include "model/test_decoder.h"

namespace headwise {
namespace {

std::unique_ptr<Decoder> OnMeta(const ModelConfig& config, DType compute) {
  auto decoder = Decoder::Create(config, {.compute = compute, .device = Device::kMeta});
  HW_CHECK(decoder.ok()) << decoder.status();
  return *std::move(decoder);
}

TEST(DecoderMetaTest, AStepOfThirtyBillionParameters) {
  const auto decoder = OnMeta(LoadPreset("muse_glimmer_30b")->model(), DType::kBF16);
  std::int64_t parameters = 0;
  for (const Parameter* p : decoder->parameters()) {
    parameters += p->value.size();
    EXPECT_EQ(p->value.raw_data(), nullptr);
    EXPECT_EQ(p->gradient.raw_data(), nullptr);
  }
  EXPECT_GT(parameters, 25'000'000'000);
  decoder->Initialize(1);
  ThreadPool pool(1);
  const TokenBatch batch = RandomBatch(std::vector<std::int64_t>(16, 4096), 202048);
  EXPECT_EQ(decoder->ForwardBackward(batch, 1, pool), 0);
  EXPECT_EQ(decoder->Loss(batch, pool), 0);
}

TEST(DecoderMetaTest, ADecodingStep) {
  const auto decoder = OnMeta(LoadPreset("muse_glimmer_30b")->model(), DType::kBF16);
  ThreadPool pool(1);
  auto cache = decoder->NewCache(4, 4096);
  ASSERT_TRUE(cache.ok());
  std::vector<std::vector<std::int32_t>> tokens(4, std::vector<std::int32_t>(1000, 7));
  const Tensor logits = decoder->Extend(**cache, tokens, pool);
  EXPECT_EQ(logits.shape(), (Shape{4, 202048}));
  EXPECT_EQ(logits.device(), Device::kMeta);
  EXPECT_EQ((*cache)->length(3), 1000);
}

// Three sliding layers with RoPE and a global one without, at the published width.
TEST(DecoderMetaTest, AUnitOfMuseSpark) {
  ModelConfig config = LoadPreset("muse_spark")->model();
  config.set_num_layers(4);
  const auto decoder = OnMeta(config, DType::kBF16);
  ThreadPool pool(1);
  const TokenBatch batch = RandomBatch({4096, 4096}, config.vocab_size());
  EXPECT_EQ(decoder->ForwardBackward(batch, 1, pool), 0);
}

TEST(DecoderMetaTest, EveryPresetTakesAStepAndDecodes) {
  ThreadPool pool(1);
  for (const Preset& preset : ListPresets()) {
    const ModelConfig config = LoadPreset(preset.name)->model();
    const auto decoder = OnMeta(config, DType::kBF16);
    EXPECT_EQ(decoder->ForwardBackward(RandomBatch({300, 200}, config.vocab_size()), 1, pool), 0);
    auto cache = decoder->NewCache(1, 300);
    ASSERT_TRUE(cache.ok());
    const std::vector<std::vector<std::int32_t>> tokens(1, std::vector<std::int32_t>(100, 7));
    EXPECT_EQ(decoder->Extend(**cache, tokens, pool).shape(), (Shape{1, config.vocab_size()}));
  }
}

TEST(DecoderMetaTest, EveryTestConfigChecks) {
  ThreadPool pool(1);
  for (const ModelConfig& config : AllTestConfigs()) {
    for (const DType compute : {DType::kF32, DType::kBF16}) {
      OnMeta(config, compute)->ForwardBackward(RandomBatch({5, 3}, config.vocab_size()), 1, pool);
    }
  }
}

// A segment table that does not cover the tokens is found without any data.
TEST(DecoderMetaDeathTest, SegmentsThatLeaveTokensOut) {
  const auto decoder = OnMeta(EverythingConfig(), DType::kF32);
  ThreadPool pool(1);
  TokenBatch batch = RandomBatch({5, 3}, 19);
  batch.segments.pop_back();
  EXPECT_DEATH(decoder->Loss(batch, pool),
               "Attention: the segments' queries has 5 elements, must "
               "have 8");
}

class OpsMetaDeathTest : public testing::Test {
 protected:
  Tensor Make(Shape shape, DType dtype = DType::kF32) const {
    return Tensor::Empty(std::move(shape), dtype, Device::kMeta);
  }
  OpContext ctx_{.device = Device::kMeta};
};

TEST_F(OpsMetaDeathTest, EachOpNamesItsArgumentWhatItIsAndWhatItMustBe) {
  EXPECT_DEATH(ops::Linear(ctx_, Make({5, 4}), Make({7, 3}), {}),
               "Linear: a row of weight has 3 elements, must have 4");
  EXPECT_DEATH(ops::Linear(ctx_, Make({5, 4}, DType::kBF16), Make({7, 4}), {}),
               "Linear: x is BF16 \\[5, 4\\] on meta, must be a F32 matrix on meta");
  EXPECT_DEATH(ops::Linear(ctx_, Make({5, 4}), Make({7, 4}), Make({4})),
               "Linear: bias is F32 \\[4\\] on meta, must be F32 \\[7\\] on meta");
  Tensor transposed = Make({4, 7});
  EXPECT_DEATH(ops::LinearBackwardWeight(ctx_, Make({5, 7}), Make({5, 4}), transposed),
               "dweight is F32 \\[4, 7\\] on meta, must be F32 \\[7, 4\\]");
  EXPECT_DEATH(ops::Add(ctx_, Make({5, 4}), Make({4, 5})), "Add: b is F32 \\[4, 5\\]");
  EXPECT_DEATH(ops::RmsNorm(ctx_, {.style = RmsNormStyle::kScaleless}, Make({5, 4}), Make({4})),
               "RmsNorm: weight is F32 \\[4\\] on meta, must be undefined");
  EXPECT_DEATH(ops::RmsNorm(ctx_, {}, Make({5, 4}), {}),
               "RmsNorm: weight is undefined, must be F32 \\[4\\] on meta");
  EXPECT_DEATH(
      ops::Swiglu(ctx_, {}, Make({5, 4}), Tensor::Zeros({5, 4}, DType::kF32, Device::kCpu)),
      "Swiglu: up is F32 \\[5, 4\\] on cpu, must be F32 \\[5, 4\\] on meta");
  const std::vector<std::int32_t> tokens(5, 0);
  EXPECT_DEATH(
      ops::LinearCrossEntropy(ctx_, {}, Make({6, 4}), Make({9, 4}), {.ids = tokens}, {}, true),
      "LinearCrossEntropy: targets has 5 elements, must have 6");
}

TEST_F(OpsMetaDeathTest, Qkv) {
  const auto layout = PackedQkv::Interleaved({4, 2, 8});
  const QkvPreparation weighted = {.layout = *layout, .norm = HeadNorm::kWeighted};
  const Tensor weight = Make({8});
  EXPECT_DEATH(ops::PrepareQkv(ctx_, {.op = weighted, .q_weight = weight, .k_weight = weight},
                               Make({5, 63})),
               "a row of packed has 63 elements, must have 64");
  EXPECT_DEATH(ops::PrepareQkv(ctx_, {.op = weighted, .q_weight = weight}, Make({5, 64})),
               "PrepareQkv: weight is undefined, must be F32 \\[8\\]");
  const ops::Qkv qkv = ops::PrepareQkv(
      ctx_, {.op = weighted, .q_weight = weight, .k_weight = weight}, Make({5, 64}));
  EXPECT_EQ(qkv.q.shape(), (Shape{5, 32}));
  EXPECT_EQ(qkv.k.shape(), (Shape{5, 16}));
  EXPECT_EQ(qkv.v.shape(), (Shape{5, 16}));
}

}  // namespace
}  // namespace headwise
