// The literals come from the formulas evaluated in Python's doubles, one scalar at a time.
#include "core/rope/rotary_scaling.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/rope/rotary_table.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headwise {
namespace {

using ::testing::HasSubstr;

constexpr Llama3Scaling kLlama31 = {
    .factor = 8, .low_freq_factor = 1, .high_freq_factor = 4, .original_max_position = 8192};
constexpr YarnScaling kGptOss = {.factor = 32, .original_max_position = 4096, .truncate = false};
constexpr YarnScaling kDeepSeek = {.factor = 40, .original_max_position = 4096};

using Expected = std::vector<std::pair<int, double>>;  // pair, frequency

void ExpectFrequencies(const RotaryScaling& scaling, double theta, std::int64_t rotary_dim,
                       double attention_factor, const Expected& expected) {
  const auto f = ScaledFrequencies(scaling, theta, rotary_dim);
  ASSERT_TRUE(f.ok()) << f.status();
  ASSERT_EQ(f->inv_freq.size(), rotary_dim / 2);
  EXPECT_NEAR(f->attention_factor, attention_factor, 1e-14);
  for (const auto& [pair, frequency] : expected) {
    EXPECT_NEAR(f->inv_freq[pair], frequency, 1e-13 * frequency) << "pair " << pair;
  }
}

TEST(RotaryScaling, None) {
  ExpectFrequencies(NoScaling(), 10000, 64, 1, {{0, 1}, {8, 0.1}, {16, 0.01}, {24, 0.001}});
}

TEST(RotaryScaling, Linear) {
  ExpectFrequencies(LinearScaling{.factor = 4}, 10000, 64, 1,
                    {{0, 0.25}, {1, 0.187473552333114}, {31, 3.33380358040831e-05}});
}

// Kept up to pair 28, divided from 35 on, blended between.
TEST(RotaryScaling, Llama31) {
  ExpectFrequencies(kLlama31, 500000, 128, 1,
                    {{0, 1},
                     {28, 0.00321144599475259},
                     {29, 0.00216657076350336},
                     {32, 0.000524846160992955},
                     {35, 9.55621235396468e-05},
                     {36, 7.78465527393245e-05},
                     {63, 3.06892598891451e-07}});
}

// The ramp runs from 8.09 to 17.40, not from 8 to 18.
TEST(RotaryScaling, YarnOfGptOss) {
  ExpectFrequencies(kGptOss, 150000, 64, 1.3465735902799727,
                    {{0, 1},
                     {8, 0.0508132748154615},
                     {9, 0.0317056961846638},
                     {12, 0.00679495948973222},
                     {17, 0.000129318701245063},
                     {18, 3.83088123737534e-05},
                     {31, 3.02351142811921e-07}});
}

TEST(RotaryScaling, YarnOfDeepSeekRoundsTheRampOutwards) {
  ExpectFrequencies(kDeepSeek, 10000, 64, 1.3688879454113936,
                    {{0, 1},
                     {10, 0.0562341325190349},
                     {11, 0.0390069265671439},
                     {16, 0.0055},
                     {22, 0.000177827941003892},
                     {23, 3.33380358040831e-05},
                     {24, 2.5e-05},
                     {31, 3.33380358040831e-06}});
}

TEST(RotaryScaling, YarnRampOfNoLengthIsAStep) {
  ExpectFrequencies(
      YarnScaling{.factor = 4,
                  .original_max_position = 4096,
                  .beta_fast = 1,
                  .beta_slow = 1,
                  .truncate = false},
      10000, 64, 1.1386294361119891,
      {{20, 0.00316227766016838}, {22, 0.00177827941003892}, {23, 0.00033338035804083}});
}

TEST(RotaryScaling, YarnAttentionFactorIsTheFirstThatIsGiven) {
  const auto factor = [](YarnScaling s) {
    return ScaledFrequencies(s, 10000, 64)->attention_factor;
  };
  YarnScaling s = kDeepSeek;
  s.mscale = 0.707;
  EXPECT_NEAR(factor(s), 1.3688879454113936, 1e-14);  // one alone is not used
  s.mscale_all_dim = 1;
  EXPECT_NEAR(factor(s), 0.9210423553163399, 1e-14);
  s.attention_factor = 1.25;
  EXPECT_EQ(factor(s), 1.25);
}

TEST(RotaryScaling, TheTableTurnsAtTheScaledFrequencies) {
  const RotaryTable table =
      *RotaryTable::Create({.length = 4001, .rotary_dim = 64, .theta = 150000, .scaling = kGptOss});
  // Pair 0 at position 1 turns by one radian; cos and sin carry the attention factor.
  EXPECT_FLOAT_EQ(table.Cos(1)[0], 0.7275568158494089f);
  EXPECT_FLOAT_EQ(table.Sin(1)[0], 1.1331026051291935f);
  for (const int pair : {8, 12, 31}) {
    const RotaryFrequencies f = *ScaledFrequencies(kGptOss, 150000, 64);
    EXPECT_EQ(table.Cos(4000)[pair],
              static_cast<float>(std::cos(4000 * f.inv_freq[pair]) * f.attention_factor));
    EXPECT_EQ(table.Sin(4000)[pair],
              static_cast<float>(std::sin(4000 * f.inv_freq[pair]) * f.attention_factor));
  }
}

// What a checkpoint compares: without a scaling, and with one by 1, the hash of the plain formula.
TEST(RotaryScaling, WithoutScalingTheHashIsThatOfTheFormula) {
  std::vector<float> cos, sin;
  for (int position = 0; position < 300; ++position) {
    for (int i = 0; i < 32; ++i) {
      const double angle = position * std::pow(500000.0, -2.0 * i / 64.0);
      cos.push_back(static_cast<float>(std::cos(angle)));
      sin.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  const std::uint64_t expected =
      RotaryTable::FromValues(300, 64, RotaryPairing::kHalf, cos, sin)->Hash();
  const auto hash = [](const RotaryScaling& scaling) {
    return RotaryTable::Create(
               {.length = 300, .rotary_dim = 64, .theta = 500000, .scaling = scaling})
        ->Hash();
  };
  EXPECT_EQ(hash(NoScaling()), expected);
  EXPECT_EQ(hash(LinearScaling{.factor = 1}), expected);
  EXPECT_NE(hash(kLlama31), expected);
  EXPECT_NE(hash(kGptOss), expected);
}

TEST(RotaryScaling, NumbersAreChecked) {
  const double infinity = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto message = [](const RotaryScaling& scaling, double theta = 10000) {
    const auto table =
        RotaryTable::Create({.length = 1, .rotary_dim = 4, .theta = theta, .scaling = scaling});
    EXPECT_EQ(table.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(table.status().message());
  };
  for (const double factor : {0.5, -8.0, 0.0, infinity, nan}) {
    EXPECT_THAT(message(LinearScaling{.factor = factor}), HasSubstr("factor must be"));
    Llama3Scaling llama = kLlama31;
    llama.factor = factor;
    EXPECT_THAT(message(llama), HasSubstr("factor must be"));
    YarnScaling yarn = kGptOss;
    yarn.factor = factor;
    EXPECT_THAT(message(yarn), HasSubstr("factor must be"));
  }
  const auto llama = [&](auto change) {
    Llama3Scaling s = kLlama31;
    change(s);
    return message(s);
  };
  EXPECT_THAT(llama([](auto& s) { s.original_max_position = 0; }),
              HasSubstr("original_max_position must be at least 1, found 0"));
  EXPECT_THAT(llama([](auto& s) { s.low_freq_factor = 0; }), HasSubstr("low_freq_factor"));
  EXPECT_THAT(llama([](auto& s) { s.high_freq_factor = 1; }), HasSubstr("high_freq_factor"));
  EXPECT_THAT(llama([&](auto& s) { s.high_freq_factor = infinity; }),
              HasSubstr("high_freq_factor"));
  const auto yarn = [&](auto change) {
    YarnScaling s = kGptOss;
    change(s);
    return message(s);
  };
  EXPECT_THAT(yarn([](auto& s) { s.original_max_position = -4; }), HasSubstr("found -4"));
  EXPECT_THAT(yarn([](auto& s) { s.beta_slow = 0; }), HasSubstr("beta_slow"));
  EXPECT_THAT(yarn([](auto& s) { s.beta_fast = 0.5; }), HasSubstr("beta_fast"));
  EXPECT_THAT(yarn([&](auto& s) { s.beta_fast = nan; }), HasSubstr("beta_fast"));
  EXPECT_THAT(yarn([](auto& s) { s.attention_factor = 0; }), HasSubstr("attention_factor"));
  EXPECT_THAT(yarn([](auto& s) { s.mscale = -1; }), HasSubstr("mscale must be"));
  EXPECT_THAT(yarn([](auto& s) { s.mscale_all_dim = 0; }), HasSubstr("mscale_all_dim"));
  EXPECT_THAT(message(kGptOss, 1.0), HasSubstr("rope_theta under yarn must be greater than 1"));
}

TEST(RotaryScaling, TablesWithoutPairs) {
  EXPECT_EQ(RotaryTable::Create({.length = 9, .rotary_dim = 0, .scaling = kGptOss})->rotary_dim(),
            0);
}

}  // namespace
}  // namespace headwise
