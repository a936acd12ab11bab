// What must not change a bit of the loss or of any gradient: the number of threads, fused or
// separate QKV kernels, and other documents in the batch.
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "model/decoder.h"
#include "model/test_config.h"
#include "model/test_decoder.h"

namespace headwise {
namespace {

struct Result {
  double loss;
  std::vector<std::string> gradients;
  bool operator==(const Result&) const = default;
};

Result Step(const ModelConfig& config, const DecoderOptions& options, const TokenBatch& batch,
            int threads) {
  const std::unique_ptr<Decoder> decoder = RandomDecoder(config, options);
  ThreadPool pool(threads);
  const double loss = decoder->ForwardBackward(batch, 1.0 / 64, pool);
  return {loss, GradientBits(*decoder)};
}

std::vector<DecoderOptions> AllOptions() {
  std::vector<DecoderOptions> all;
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    for (const GemmBackend gemm : {GemmBackend::kContract, GemmBackend::kOneDnn}) {
      all.push_back({.compute = compute, .gemm = gemm});
    }
  }
  return all;
}

// Larger than the other test models: several tiles and panels in every product.
ModelConfig Wide(ModelConfig config) {
  config.set_dim(136);
  config.mutable_ffn()->set_hidden_dim(200);
  config.mutable_attention()->set_head_dim(32);
  return config;
}

TEST(DecoderBitsTest, OneTwoAndThreeThreads) {
  for (const ModelConfig& config : {Wide(EverythingConfig()), Wide(PlainConfig())}) {
    const TokenBatch batch = RandomBatch({64, 7, 64, 33}, config.vocab_size());
    for (const DecoderOptions& options : AllOptions()) {
      const Result one = Step(config, options, batch, 1);
      EXPECT_TRUE(one == Step(config, options, batch, 2)) << config.name();
      EXPECT_TRUE(one == Step(config, options, batch, 3)) << config.name();
    }
  }
}

TEST(DecoderBitsTest, FusedAndUnfusedQkv) {
  for (ModelConfig config : AllTestConfigs()) {
    const TokenBatch batch = RandomBatch({40, 5, 23}, config.vocab_size());
    for (const QkvRounding rounding : {AFTER_WEIGHT, BEFORE_WEIGHT, ONLY_AT_END}) {
      config.mutable_attention()->set_rounding(rounding);
      for (const DecoderOptions& options : AllOptions()) {
        config.mutable_attention()->set_unfused_qkv(false);
        const Result fused = Step(config, options, batch, 2);
        config.mutable_attention()->set_unfused_qkv(true);
        EXPECT_TRUE(fused == Step(config, options, batch, 2)) << config.name();
      }
    }
  }
}

TEST(DecoderBitsTest, ADocumentsLossesDoNotDependOnItsNeighbours) {
  const ModelConfig config = EverythingConfig();
  const TokenBatch batch = RandomBatch({20, 3, 11}, config.vocab_size());
  ThreadPool pool(2);
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    const std::unique_ptr<Decoder> decoder =
        RandomDecoder(config, {.compute = compute, .gemm = GemmBackend::kContract});
    for (std::size_t d = 0; d < batch.segments.size(); ++d) {
      const TokenBatch alone = OneDocument(batch, d);
      for (std::int64_t t = 0; t < batch.segments[d].num_queries; ++t) {
        EXPECT_EQ(decoder->Loss(OnlyTarget(batch, batch.segments[d].query_begin + t), pool),
                  decoder->Loss(OnlyTarget(alone, t), pool))
            << "document " << d << ", token " << t;
      }
    }
  }
}

TEST(DecoderBitsTest, RunningTwiceGivesTheSameBits) {
  const ModelConfig config = EverythingConfig();
  const TokenBatch batch = RandomBatch({31, 9}, config.vocab_size());
  const TokenBatch other = RandomBatch({17}, config.vocab_size(), 5);
  const std::unique_ptr<Decoder> decoder = RandomDecoder(config, {});
  ThreadPool pool(2);
  const double first = decoder->ForwardBackward(batch, 1, pool);
  const std::vector<std::string> gradients = GradientBits(*decoder);
  decoder->ForwardBackward(other, 1, pool);
  EXPECT_EQ(decoder->ForwardBackward(batch, 1, pool), first);
  EXPECT_TRUE(GradientBits(*decoder) == gradients);
}

}  // namespace
}  // namespace headwise
