// A decoder on emulated CUDA kernels has the bits of one on the CPU: losses, gradients, and logits
// of prefill and decode, for every part that a configuration can have.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "model/decoder.h"
#include "model/kv_cache.h"
#include "model/test_config.h"
#include "model/test_decoder.h"

namespace headwise {
namespace {

std::string Bytes(const Tensor& tensor) {
  return std::string(static_cast<const char*>(tensor.raw_data()),
                     static_cast<std::size_t>(tensor.bytes()));
}

class DecoderEmulated : public testing::TestWithParam<DType> {
 protected:
  std::unique_ptr<Decoder> Make(const ModelConfig& config, Kernels kernels) const {
    return RandomDecoder(
        config, {.compute = GetParam(), .gemm = GemmBackend::kContract, .kernels = kernels});
  }
  ThreadPool pool_{2};
};

TEST_P(DecoderEmulated, LossAndGradientsHaveTheBitsOfTheCpu) {
  for (const ModelConfig& config : AllTestConfigs()) {
    const auto cpu = Make(config, Kernels::kCpu);
    const auto emulated = Make(config, Kernels::kCudaEmulated);
    const TokenBatch batch = RandomBatch({23, 1, 11}, config.vocab_size());
    EXPECT_EQ(emulated->ForwardBackward(batch, 0.25, pool_),
              cpu->ForwardBackward(batch, 0.25, pool_))
        << config.name();
    EXPECT_EQ(emulated->auxiliary_loss(), cpu->auxiliary_loss()) << config.name();
    const std::vector<std::string> expected = GradientBits(*cpu), actual = GradientBits(*emulated);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(actual[i] == expected[i])
          << config.name() << ": " << cpu->parameters()[i]->name << " has other bits";
    }
  }
}

TEST_P(DecoderEmulated, PrefillAndDecodeHaveTheBitsOfTheCpu) {
  for (const ModelConfig& config : AllTestConfigs()) {
    const auto cpu = Make(config, Kernels::kCpu);
    const auto emulated = Make(config, Kernels::kCudaEmulated);
    const auto a = *cpu->NewCache(2, 20), b = *emulated->NewCache(2, 20);
    const std::vector<std::int32_t> tokens = RandomBatch({20}, config.vocab_size()).inputs;
    const auto cut = [&](std::int64_t begin, std::int64_t end) {
      return std::vector<std::int32_t>(tokens.begin() + begin, tokens.begin() + end);
    };
    const std::vector<std::vector<std::vector<std::int32_t>>> calls = {
        {cut(0, 12), cut(3, 7)}, {cut(12, 13), {}}, {cut(13, 14), cut(7, 8)}};
    for (std::size_t i = 0; i < calls.size(); ++i) {
      EXPECT_TRUE(Bytes(emulated->Extend(*b, calls[i], pool_)) ==
                  Bytes(cpu->Extend(*a, calls[i], pool_)))
          << config.name() << ", call " << i;
    }
  }
}

TEST_P(DecoderEmulated, UnfusedQkvHasTheBitsOfTheCpuAndOfFused) {
  const ModelConfig config = UnfusedSparkConfig();
  ModelConfig of_fused = config;
  of_fused.mutable_attention()->set_unfused_qkv(false);
  const auto emulated = Make(config, Kernels::kCudaEmulated);
  const TokenBatch batch = RandomBatch({23, 1}, config.vocab_size());
  for (const ModelConfig& other : {config, of_fused}) {
    const auto cpu = Make(other, Kernels::kCpu);
    EXPECT_EQ(emulated->ForwardBackward(batch, 0.25, pool_),
              cpu->ForwardBackward(batch, 0.25, pool_));
    EXPECT_TRUE(GradientBits(*emulated) == GradientBits(*cpu));
    const auto a = *cpu->NewCache(1, 20), b = *emulated->NewCache(1, 20);
    EXPECT_TRUE(Bytes(emulated->Extend(*b, {{1, 2, 3}}, pool_)) ==
                Bytes(cpu->Extend(*a, {{1, 2, 3}}, pool_)));
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, DecoderEmulated, testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& info) { return Name(info.param); });

// The emulated kernels find it, after the launch.
TEST(DecoderEmulatedDeathTest, ATokenOutsideOfTheVocabularyIsNamed) {
  const ModelConfig config = PlainConfig();
  const auto decoder = RandomDecoder(config, {.kernels = Kernels::kCudaEmulated});
  ThreadPool pool(1);
  TokenBatch batch = RandomBatch({5}, config.vocab_size());
  batch.inputs[3] = static_cast<std::int32_t>(config.vocab_size());
  EXPECT_DEATH(decoder->Loss(batch, pool), "Embedding: token 3 is out of range");
  batch.inputs[3] = 0;
  batch.targets[2] = -2;
  EXPECT_DEATH(decoder->Loss(batch, pool), "CrossEntropy: target 2 is out of range");
}

TEST(DecoderEmulatedDeathTest, APositionOutsideOfTheTableIsNamed) {
  const ModelConfig config = UnfusedSparkConfig();
  const auto decoder = RandomDecoder(config, {.kernels = Kernels::kCudaEmulated});
  ThreadPool pool(1);
  TokenBatch batch = RandomBatch({5}, config.vocab_size());
  batch.positions[3] = config.max_sequence_length();
  EXPECT_DEATH(decoder->Loss(batch, pool), "PrepareQkv: position 3 is out of range");
}

TEST(DecoderEmulatedTest, WhatHasNoCudaKernelsIsRefused) {
  const DecoderOptions options = {.kernels = Kernels::kCudaEmulated};
  ModelConfig config = PlainConfig();
  config.mutable_attention()->set_head_dim(258);
  EXPECT_EQ(std::string(Decoder::Create(config, options).status().message()),
            "attention.head_dim: found 258, expected at most 256 with CUDA kernels");
  EXPECT_TRUE(Decoder::Create(config, {}).ok());
}

}  // namespace
}  // namespace headwise
