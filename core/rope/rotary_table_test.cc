#include "core/rope/rotary_table.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headwise {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

double HalfUlp(float x) {
  return 0.5 * (static_cast<double>(std::nextafter(std::fabs(x), 2.0f)) - std::fabs(x));
}

// A table computed in float, or rounded on the way, is off by far more than half an ulp at high
// positions.
TEST(RotaryTable, EntriesAreTheNearestFloatsToTheFormula) {
  for (const double theta : {10000.0, 500000.0}) {
    for (const std::int64_t rotary_dim : {2, 10, 64, 128}) {
      const RotaryTable table =
          *RotaryTable::Create({.length = 5000, .rotary_dim = rotary_dim, .theta = theta});
      for (std::int64_t position = 0; position < table.length(); position += 7) {
        for (std::int64_t i = 0; i < rotary_dim / 2; ++i) {
          const long double angle =
              position * std::pow(static_cast<long double>(theta),
                                  -2.0L * static_cast<long double>(i) / rotary_dim);
          const float c = table.Cos(position)[i];
          const float s = table.Sin(position)[i];
          // Double arithmetic moves an angle of 5000 by at most 5000 * 2^-51.
          EXPECT_LE(std::fabs(c - std::cos(angle)), HalfUlp(c) + 3e-12) << position << " " << i;
          EXPECT_LE(std::fabs(s - std::sin(angle)), HalfUlp(s) + 3e-12) << position << " " << i;
        }
      }
    }
  }
}

TEST(RotaryTable, PositionZeroIsTheIdentityAndPairZeroTurnsByOneRadian) {
  const RotaryTable table = *RotaryTable::Create({.length = 2, .rotary_dim = 16});
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(table.Cos(0)[i], 1.0f);
    EXPECT_EQ(table.Sin(0)[i], 0.0f);
  }
  EXPECT_FLOAT_EQ(table.Cos(1)[0], 0.54030230586f);
  EXPECT_FLOAT_EQ(table.Sin(1)[0], 0.84147098480f);
  EXPECT_FLOAT_EQ(table.Sin(1)[4], 0.00999983333f);  // 10000^(-8/16) = 1/100
}

TEST(RotaryTable, EmptyTables) {
  EXPECT_EQ(RotaryTable::Create({.length = 0, .rotary_dim = 64})->length(), 0);
  EXPECT_EQ(RotaryTable::Create({.length = 9, .rotary_dim = 0})->rotary_dim(), 0);
}

TEST(RotaryTable, FromValuesKeepsValuesAndChecksSizes) {
  const RotaryTable table =
      *RotaryTable::FromValues(2, 4, RotaryPairing::kInterleaved, {1, 2, 3, 4}, {5, 6, 7, 8});
  EXPECT_EQ(table.Cos(1)[0], 3);
  EXPECT_EQ(table.Sin(1)[1], 8);
  EXPECT_EQ(table.pairing(), RotaryPairing::kInterleaved);

  const auto message = [](std::int64_t length, std::int64_t rotary_dim, std::size_t cos,
                          std::size_t sin) {
    return std::string(RotaryTable::FromValues(length, rotary_dim, RotaryPairing::kHalf,
                                               std::vector<float>(cos), std::vector<float>(sin))
                           .status()
                           .message());
  };
  EXPECT_THAT(message(2, 4, 3, 4), AllOf(HasSubstr("4 values each"), HasSubstr("found 3 and 4")));
  EXPECT_THAT(message(2, 4, 4, 5), HasSubstr("found 4 and 5"));
  EXPECT_THAT(message(2, 3, 4, 4), HasSubstr("rotary_dim must be even"));
  EXPECT_THAT(message(-2, 4, 4, 4), HasSubstr("found -2"));
  EXPECT_THAT(message(std::numeric_limits<std::int64_t>::max(), 4, 4, 4), HasSubstr("exceeds"));
}

TEST(RotaryTable, OptionsAreChecked) {
  const auto message = [](RotaryTable::Options options) {
    return std::string(RotaryTable::Create(options).status().message());
  };
  EXPECT_THAT(message({.length = -1, .rotary_dim = 2}),
              HasSubstr("must not be negative, found -1"));
  EXPECT_THAT(message({.length = 1, .rotary_dim = 7}), HasSubstr("must be even"));
  EXPECT_THAT(message({.length = 1, .rotary_dim = -2}), HasSubstr("found -2"));
  for (const double theta : {0.0, -1.0, std::numeric_limits<double>::infinity(),
                             std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THAT(message({.length = 1, .rotary_dim = 2, .theta = theta}), HasSubstr("rope_theta"));
  }
  EXPECT_THAT(message({.length = std::int64_t{1} << 40, .rotary_dim = 64}), HasSubstr("exceeds"));
}

TEST(RotaryTable, HashSeesEveryField) {
  std::set<std::uint64_t> hashes;
  const auto add = [&](RotaryTable table) { EXPECT_TRUE(hashes.insert(table.Hash()).second); };
  add(*RotaryTable::Create({.length = 8, .rotary_dim = 4}));
  add(*RotaryTable::Create({.length = 9, .rotary_dim = 4}));
  add(*RotaryTable::Create({.length = 8, .rotary_dim = 6}));
  add(*RotaryTable::Create({.length = 8, .rotary_dim = 4, .theta = 10001.0}));
  add(*RotaryTable::Create({.length = 8, .rotary_dim = 4, .pairing = RotaryPairing::kInterleaved}));
  // Tables without values differ in their shape.
  add(*RotaryTable::Create({.length = 0, .rotary_dim = 4}));
  add(*RotaryTable::Create({.length = 0, .rotary_dim = 6}));
  add(*RotaryTable::Create({.length = 7, .rotary_dim = 0}));
  add(*RotaryTable::Create({.length = 8, .rotary_dim = 0}));
  // Shapes of equal size, and single bits: -0 is not 0.
  const std::vector<float> zeros(4);
  add(*RotaryTable::FromValues(2, 4, RotaryPairing::kHalf, zeros, zeros));
  add(*RotaryTable::FromValues(4, 2, RotaryPairing::kHalf, zeros, zeros));
  add(*RotaryTable::FromValues(2, 4, RotaryPairing::kHalf, {0, 0, 0, -0.0f}, zeros));
  add(*RotaryTable::FromValues(2, 4, RotaryPairing::kHalf, zeros, {0, 0, 0, -0.0f}));
  EXPECT_EQ(RotaryTable::Create({.length = 8, .rotary_dim = 4})->Hash(),
            RotaryTable::Create({.length = 8, .rotary_dim = 4})->Hash());
}

}  // namespace
}  // namespace headwise
