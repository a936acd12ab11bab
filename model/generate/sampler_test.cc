#include "model/generate/sampler.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headwise {
namespace {

using testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<int> Histogram(const SamplerOptions& options, const std::vector<float>& logits,
                           int draws) {
  Sampler sampler(options);
  std::vector<int> counts(logits.size());
  for (int i = 0; i < draws; ++i) ++counts[*sampler.Draw(logits)];
  return counts;
}

TEST(Sampler, ZeroTemperatureIsGreedyAndTakesTheFirstOfEquals) {
  Sampler sampler({.temperature = 0});
  EXPECT_EQ(*sampler.Draw({1.0f, 3.0f, 3.0f, 2.0f}), 1);
}

TEST(Sampler, FrequenciesFollowTheSoftmax) {
  const std::vector<float> logits = {0.0f, 1.0f, -1.0f, 2.0f};
  const int draws = 200000;
  const std::vector<int> counts = Histogram({.temperature = 0.5}, logits, draws);
  double total = 0;
  for (float x : logits) total += std::exp(x / 0.5);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double p = std::exp(logits[i] / 0.5) / total;
    EXPECT_NEAR(counts[i], draws * p, 5 * std::sqrt(draws * p * (1 - p))) << i;
  }
}

TEST(Sampler, FiltersKeepExactlyTheirTokens) {
  const std::vector<float> logits = {std::log(0.1f), std::log(0.5f), std::log(0.3f),
                                     std::log(0.1f)};
  const std::vector<int> top_k = Histogram({.temperature = 1, .top_k = 2}, logits, 2000);
  EXPECT_THAT(top_k, testing::ElementsAre(0, testing::Gt(0), testing::Gt(0), 0));
  const std::vector<int> top_p = Histogram({.temperature = 1, .top_p = 0.6}, logits, 2000);
  EXPECT_THAT(top_p, testing::ElementsAre(0, testing::Gt(0), testing::Gt(0), 0));
  const std::vector<int> one = Histogram({.temperature = 1, .top_p = 0.4}, logits, 2000);
  EXPECT_THAT(one, testing::ElementsAre(0, 2000, 0, 0));
  const std::vector<int> min_p = Histogram({.temperature = 1, .min_p = 0.5}, logits, 2000);
  EXPECT_THAT(min_p, testing::ElementsAre(0, testing::Gt(0), testing::Gt(0), 0));
}

TEST(Sampler, SameSeedSameDraws) {
  const std::vector<float> logits(100, 0.0f);
  Sampler a({.temperature = 1, .seed = 5}), b({.temperature = 1, .seed = 5}),
      c({.temperature = 1, .seed = 6});
  int differ = 0;
  for (int i = 0; i < 50; ++i) {
    const int x = *a.Draw(logits);
    EXPECT_EQ(x, *b.Draw(logits));
    differ += x != *c.Draw(logits);
  }
  EXPECT_GT(differ, 30);
}

TEST(Sampler, InfinitiesAreProbabilitiesAndNansAreErrors) {
  Sampler sampler({.temperature = 1});
  EXPECT_EQ(*sampler.Draw({-kInfinity, 1.0f, -kInfinity}), 1);
  EXPECT_EQ(*sampler.Draw({0.0f, kInfinity}), 1);
  EXPECT_THAT(std::string(sampler.Draw({0.0f, NAN}).status().message()),
              HasSubstr("token 1 is NaN"));
  EXPECT_FALSE(sampler.Draw({-kInfinity, -kInfinity}).ok());
  EXPECT_FALSE(sampler.Draw({}).ok());
}

TEST(SamplerOptions, OutOfRangeValuesAreNamed) {
  EXPECT_TRUE(ValidateSamplerOptions({}).ok());
  EXPECT_THAT(std::string(ValidateSamplerOptions({.temperature = -1}).message()),
              HasSubstr("temperature"));
  EXPECT_THAT(std::string(ValidateSamplerOptions({.temperature = NAN}).message()),
              HasSubstr("temperature"));
  EXPECT_THAT(std::string(ValidateSamplerOptions({.top_k = -1}).message()), HasSubstr("top-k"));
  EXPECT_THAT(std::string(ValidateSamplerOptions({.top_p = 0}).message()), HasSubstr("top-p"));
  EXPECT_THAT(std::string(ValidateSamplerOptions({.min_p = 2}).message()), HasSubstr("min-p"));
}

}  // namespace
}  // namespace headwise
