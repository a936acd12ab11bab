#include "model/train/training_data.h"

#include <cmath>
#include <fstream>
#include <numeric>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "model/train/token_windows.h"

namespace headwise {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::int32_t> Counting(int n) {
  std::vector<std::int32_t> tokens(n);
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

DataConfig Config(double validation_fraction = 0.1, std::int64_t separator = -1) {
  DataConfig data;
  data.set_validation_fraction(validation_fraction);
  data.set_document_separator(separator);
  return data;
}

// Writes the tokens to a file of 32-bit tokens and loads it.
absl::StatusOr<TrainingData> Load(const std::vector<std::int32_t>& tokens, DataConfig data,
                                  std::int64_t sequence_length = 8) {
  data.set_path(testing::TempDir() + "/tokens");
  data.set_format(UINT32);
  std::ofstream(data.path(), std::ios::binary)
      .write(reinterpret_cast<const char*>(tokens.data()),
             static_cast<std::streamsize>(4 * tokens.size()));
  return TrainingData::Load(data, 1 << 20, sequence_length);
}

TEST(TrainingData, EveryEpochVisitsEveryWindowOnceInAnotherOrder) {
  const TrainingData data = *Load(Counting(1000), Config());
  ASSERT_EQ(data.training_tokens(), 900);
  const std::int64_t windows = data.training_windows();
  ASSERT_EQ(windows, 112);
  std::vector<std::int32_t> starts[2];
  for (int epoch = 0; epoch < 2; ++epoch) {
    std::set<std::int32_t> seen;
    for (std::int64_t i = 0; i < windows; ++i) {
      const TokenBatch batch = data.TrainingBatch(3, epoch * windows + i, 1);
      starts[epoch].push_back(batch.inputs[0]);
      seen.insert(batch.inputs[0]);
      for (int k = 0; k < 8; ++k) {
        EXPECT_EQ(batch.targets[k], batch.inputs[k] + 1);
        EXPECT_EQ(batch.positions[k], k);
      }
      EXPECT_LT(batch.targets[7], 900) << "a training window reads validation tokens";
    }
    EXPECT_EQ(seen.size(), static_cast<std::size_t>(windows));
  }
  EXPECT_NE(starts[0], starts[1]);
}

TEST(TrainingData, BatchesAreTheConcatenationOfTheirSequences) {
  const TrainingData data = *Load(Counting(1000), Config());
  const TokenBatch all = data.TrainingBatch(9, 5, 4);
  ASSERT_EQ(all.inputs.size(), 32u);
  ASSERT_EQ(all.segments.size(), 4u);
  for (int i = 0; i < 4; ++i) {
    const TokenBatch one = data.TrainingBatch(9, 5 + i, 1);
    EXPECT_TRUE(std::equal(one.inputs.begin(), one.inputs.end(), all.inputs.begin() + 8 * i));
    EXPECT_EQ(all.segments[i].query_begin, 8 * i);
    EXPECT_EQ(all.segments[i].num_keys, 8);
  }
}

TEST(TrainingData, ValidationIsTheEndOfTheFileInOrder) {
  const TrainingData data = *Load(Counting(1000), Config());
  const std::int64_t windows = data.validation_windows();
  ASSERT_EQ(windows, 12);
  EXPECT_EQ(data.ValidationBatch(0, 1).inputs[0], 900);
  EXPECT_EQ(data.ValidationBatch(10, 2).inputs[8], 988);
}

TEST(TrainingData, SeparatorsEndDocuments) {
  std::vector<std::int32_t> tokens = {5, 6, 0, 7, 8, 9, 0, 5, 6, 7, 8, 5, 6, 7, 8, 9, 5, 6, 7, 8};
  const TrainingData data = *Load(tokens, Config(0.5, 0));
  const TokenBatch batch = data.TrainingBatch(0, 0, 1);
  EXPECT_THAT(batch.positions, ElementsAre(0, 1, 2, 0, 1, 2, 3, 0));
  EXPECT_THAT(batch.targets, ElementsAre(6, 0, kIgnoredTarget, 8, 9, 0, kIgnoredTarget, 6));
  ASSERT_EQ(batch.segments.size(), 3u);
  EXPECT_EQ(batch.segments[1].query_begin, 3);
  EXPECT_EQ(batch.segments[1].num_queries, 4);
  EXPECT_EQ(NumTargets(batch), 6);
}

TEST(TrainingData, ErrorsSayHowManyTokensAreNeeded) {
  const absl::Status status = Load(Counting(50), Config()).status();
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("each split needs at least training.sequence_length + 1 = 9"));
}

TEST(TrainingData, BigramEntropyOfKnownTexts) {
  std::vector<std::int32_t> alternating, coin;
  std::uint64_t state = 1;
  for (int i = 0; i < 100000; ++i) {
    alternating.push_back(i % 2);
    state = state * 6364136223846793005u + 1442695040888963407u;
    coin.push_back(static_cast<std::int32_t>(state >> 63));
  }
  EXPECT_EQ(Load(alternating, Config())->BigramEntropy(), 0);
  EXPECT_NEAR(Load(coin, Config())->BigramEntropy(), 1, 1e-3);
}

}  // namespace
}  // namespace headwise
