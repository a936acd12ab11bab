// Prefill and decode compute what a full forward pass computes. With the contract GEMM: bit for
// bit, whatever the chunking and whatever else is in the batch.
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "model/decoder.h"
#include "model/kv_cache.h"
#include "model/test_config.h"
#include "model/test_decoder.h"

namespace headwise {
namespace {

using Tokens = std::vector<std::int32_t>;

Tokens RandomTokens(std::int64_t count, std::uint64_t seed) {
  return RandomBatch({count}, EverythingConfig().vocab_size(), seed).inputs;
}

std::string Row(const Tensor& logits, std::int64_t row) {
  const Tensor slice = logits.Slice(row, 1);
  return std::string(static_cast<const char*>(slice.raw_data()),
                     static_cast<std::size_t>(slice.bytes()));
}

std::unique_ptr<KvCache> Cache(const Decoder& decoder, std::int64_t rows, std::int64_t tokens) {
  auto cache = decoder.NewCache(rows, tokens);
  HW_CHECK(cache.ok()) << cache.status();
  return *std::move(cache);
}

// Logits after tokens[0 .. count), all given at once to a fresh cache of one row.
std::string FullForward(Decoder& decoder, const Tokens& tokens, std::int64_t count,
                        ThreadPool& pool) {
  const auto cache = Cache(decoder, 1, count);
  return Row(decoder.Extend(*cache, {{Tokens(tokens.begin(), tokens.begin() + count)}}, pool), 0);
}

class DecoderExtendTest : public testing::TestWithParam<DType> {
 protected:
  std::unique_ptr<Decoder> Contract(const ModelConfig& config) {
    return RandomDecoder(config, {.compute = GetParam(), .gemm = GemmBackend::kContract});
  }
  ThreadPool pool_{2};
};

TEST_P(DecoderExtendTest, AnyChunkingGivesTheBitsOfAFullForward) {
  for (const ModelConfig& config : AllTestConfigs()) {
    const auto decoder = Contract(config);
    const Tokens tokens = RandomTokens(40, 3);
    for (const std::vector<std::int64_t>& chunks : std::vector<std::vector<std::int64_t>>{
             std::vector<std::int64_t>(40, 1), {7, 1, 1, 20, 2, 9}, {39, 1}}) {
      const auto cache = Cache(*decoder, 1, 40);
      std::int64_t seen = 0;
      for (const std::int64_t chunk : chunks) {
        const Tensor logits = decoder->Extend(
            *cache, {{Tokens(tokens.begin() + seen, tokens.begin() + seen + chunk)}}, pool_);
        seen += chunk;
        EXPECT_EQ(cache->length(0), seen);
        EXPECT_TRUE(Row(logits, 0) == FullForward(*decoder, tokens, seen, pool_))
            << config.name() << " after " << seen;
      }
    }
  }
}

TEST_P(DecoderExtendTest, RowsOfDifferentLengthsDoNotDisturbEachOther) {
  const ModelConfig config = EverythingConfig();
  const auto decoder = Contract(config);
  const Tokens a = RandomTokens(30, 4), b = RandomTokens(30, 5), c = RandomTokens(30, 6);
  const auto cut = [](const Tokens& t, int begin, int end) {
    return Tokens(t.begin() + begin, t.begin() + end);
  };
  const auto cache = Cache(*decoder, 3, 30);
  decoder->Extend(*cache, {{cut(a, 0, 12), cut(b, 0, 3), {}}}, pool_);
  Tensor logits = decoder->Extend(*cache, {{cut(a, 12, 13), {}, cut(c, 0, 8)}}, pool_);
  EXPECT_TRUE(Row(logits, 0) == FullForward(*decoder, a, 13, pool_));
  EXPECT_TRUE(Row(logits, 2) == FullForward(*decoder, c, 8, pool_));
  // The row that got nothing is zero.
  EXPECT_EQ(Row(logits, 1), std::string(Row(logits, 1).size(), '\0'));
  logits = decoder->Extend(*cache, {{cut(a, 13, 14), cut(b, 3, 20), cut(c, 8, 9)}}, pool_);
  EXPECT_TRUE(Row(logits, 0) == FullForward(*decoder, a, 14, pool_));
  EXPECT_TRUE(Row(logits, 1) == FullForward(*decoder, b, 20, pool_));
  EXPECT_TRUE(Row(logits, 2) == FullForward(*decoder, c, 9, pool_));

  cache->ResetRow(0);
  EXPECT_EQ(cache->length(0), 0);
  logits = decoder->Extend(*cache, {{cut(c, 0, 5), cut(b, 20, 21), {}}}, pool_);
  EXPECT_TRUE(Row(logits, 0) == FullForward(*decoder, c, 5, pool_));
  EXPECT_TRUE(Row(logits, 1) == FullForward(*decoder, b, 21, pool_));
}

// The loss of one target given already transformed logits.
double LossOf(const Tensor& logits, std::int32_t target, ThreadPool& pool) {
  float loss = 0;
  CrossEntropy<float>({}, logits.Slice(0, 1).Rows<const float>(), {&target, 1}, 1,
                      absl::MakeSpan(&loss, 1), {}, pool);
  return loss;
}

TEST_P(DecoderExtendTest, LogitsGiveTheLossesOfTheTrainingForward) {
  for (const ModelConfig& config : AllTestConfigs()) {
    const auto decoder = Contract(config);
    const TokenBatch batch = RandomBatch({25}, config.vocab_size());
    const auto cache = Cache(*decoder, 1, 25);
    for (std::int64_t t = 0; t < 25; ++t) {
      const Tensor logits = decoder->Extend(*cache, {{{batch.inputs[t]}}}, pool_);
      if (batch.targets[t] == kIgnoredTarget) continue;
      EXPECT_EQ(decoder->Loss(OnlyTarget(batch, t), pool_), LossOf(logits, batch.targets[t], pool_))
          << config.name() << ", token " << t;
    }
  }
}

TEST_P(DecoderExtendTest, InferenceHasTheLossesAndLogitsOfTraining) {
  for (const ModelConfig& config : AllTestConfigs()) {
    const auto training = RandomDecoder(config, {.compute = GetParam()});
    const auto inference =
        RandomDecoder(config, {.compute = GetParam(), .mode = DecoderMode::kInference});
    const TokenBatch batch = RandomBatch({14, 11}, config.vocab_size());
    const double loss = training->ForwardBackward(batch, 1, pool_);
    EXPECT_EQ(inference->Loss(batch, pool_), loss) << config.name();
    const Tokens tokens = RandomTokens(25, 3);
    EXPECT_TRUE(FullForward(*inference, tokens, 25, pool_) ==
                FullForward(*training, tokens, 25, pool_))
        << config.name();
  }
}

// Against the training forward, which has no cache; chunks end where no internal one does.
TEST_P(DecoderExtendTest, EvictionAndInternalChunksChangeNothing) {
  ModelConfig config = EverythingConfig();
  config.set_max_sequence_length(3 * kExtendChunk);
  const auto decoder = Contract(config);
  const std::vector<std::int64_t> chunks = {5, 200, kExtendChunk, 100, 1, 1, 2 * kExtendChunk / 3};
  const std::int64_t total = std::accumulate(chunks.begin(), chunks.end(), std::int64_t{0});
  const TokenBatch batch = RandomBatch({total}, config.vocab_size());

  const auto cache = Cache(*decoder, 1, total), at_once = Cache(*decoder, 1, total);
  std::int64_t seen = 0;
  for (const std::int64_t chunk : chunks) {
    const auto begin = batch.inputs.begin() + seen;
    const Tensor logits = decoder->Extend(*cache, {{Tokens(begin, begin + chunk)}}, pool_);
    seen += chunk;
    EXPECT_EQ(LossOf(logits, batch.targets[seen - 1], pool_),
              decoder->Loss(OnlyTarget(batch, seen - 1), pool_))
        << "after " << seen;
  }
  const Tensor logits = decoder->Extend(*at_once, {{batch.inputs}}, pool_);
  EXPECT_EQ(LossOf(logits, batch.targets[total - 1], pool_),
            decoder->Loss(OnlyTarget(batch, total - 1), pool_));
  // Layers 1 and 2 have windows of 3 and 5 and hold no more than they need; 0 and 3 hold all.
  const std::int64_t width = 2 * 8 * SizeOf(GetParam());
  EXPECT_EQ(cache->bytes(), 2 * width * (2 * total + 2 + kExtendChunk + 4 + kExtendChunk));
}

TEST_P(DecoderExtendTest, OneDnnAgreesToWithinRounding) {
  const ModelConfig config = EverythingConfig();
  const auto exact = Contract(config);
  const auto decoder = RandomDecoder(config, {.compute = GetParam(), .gemm = GemmBackend::kOneDnn});
  const Tokens tokens = RandomTokens(20, 9);
  const auto a = Cache(*exact, 1, 20), b = Cache(*decoder, 1, 20);
  const Tensor x = exact->Extend(*a, {{tokens}}, pool_), y = decoder->Extend(*b, {{tokens}}, pool_);
  for (std::int64_t v = 0; v < config.vocab_size(); ++v) {
    EXPECT_NEAR(x.data<float>()[v], y.data<float>()[v], GetParam() == DType::kBF16 ? 0.2 : 1e-4);
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, DecoderExtendTest, testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& info) { return Name(info.param); });

TEST(NewCacheTest, SaysWhatIsWrong) {
  const auto decoder = RandomDecoder(EverythingConfig(), {});
  EXPECT_EQ(std::string(decoder->NewCache(1, 65).status().message()),
            "a cache of 65 tokens per row: must be from 1 to model.max_sequence_length 64");
  EXPECT_EQ(std::string(decoder->NewCache(0, 5).status().message()), "a cache needs rows, not 0");
  EXPECT_TRUE(decoder->NewCache(3, 64).ok());
}

TEST(ExtendDeathTest, AFullRowIsAProgrammersError) {
  const auto decoder = RandomDecoder(EverythingConfig(), {});
  const auto cache = Cache(*decoder, 1, 4);
  ThreadPool pool(1);
  EXPECT_DEATH(decoder->Extend(*cache, {{Tokens(5, 1)}}, pool), "row 0 of the cache");
}

}  // namespace
}  // namespace headwise
