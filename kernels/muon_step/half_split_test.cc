// The error bounds that half_split.h states, on every exponent and on sums that cancel; and that one
// half, or a low half without its factor, would break them.
#include "kernels/muon_step/half_split.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace headwise::muon_step {
namespace {

// Numbers with random digits and signs, exponents uniform in [least, most).
std::vector<float> Numbers(std::int64_t count, int least, int most, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<float> numbers(count);
  for (float& x : numbers) {
    const auto digits = static_cast<float>((random() >> 40) | (1u << 23));  // 24 bits
    const int exponent = least + static_cast<int>(random() % (most - least));
    x = std::ldexp(digits, exponent - 23) * (random() % 2 == 0 ? 1.0f : -1.0f);
  }
  return numbers;
}

double Tolerance(float x) {
  return std::max(double{kSplitRelative} * std::abs(double{x}), double{kSplitAbsolute});
}

TEST(HalfSplit, KeepsTwentyTwoDigitsAtEveryExponent) {
  for (int exponent = -60; exponent < 15; ++exponent) {
    for (const float x : Numbers(2000, exponent, exponent + 1, exponent + 100)) {
      ASSERT_LE(std::abs(Value(SplitHalf(x)) - double{x}), Tolerance(x)) << x;
    }
  }
}

// Ties, and the numbers next to powers of two.
TEST(HalfSplit, KeepsThemAtTheCorners) {
  for (int exponent = -40; exponent < 15; ++exponent) {
    const float power = std::ldexp(1.0f, exponent);
    for (const float x : {power, std::nextafter(power, 0.0f), std::nextafter(power, 2 * power),
                          power * (1 + 0x1p-11f), power * (1 + 0x1p-11f + 0x1p-23f),
                          power * (2 - 0x1p-11f), power * (1 + 0x1p-11f + 0x1p-12f)}) {
      if (x >= 0x1p15f) continue;
      ASSERT_LE(std::abs(Value(SplitHalf(x)) - double{x}), Tolerance(x)) << x;
      ASSERT_EQ(Value(SplitHalf(-x)), -Value(SplitHalf(x))) << x;
    }
  }
  EXPECT_EQ(Value(SplitHalf(0.0f)), 0.0);
}

TEST(HalfSplit, ReachesHalfOfItsBoundSoItIsNoLooserThanItNeedsToBe) {
  double worst = 0;
  for (const float x : Numbers(100000, 0, 1, 1)) {
    worst = std::max(worst, std::abs(Value(SplitHalf(x)) - double{x}) / Tolerance(x));
  }
  EXPECT_GT(worst, 0.25);
}

// Without the factor the low half underflows long before the number does.
TEST(HalfSplit, NeedsItsFactor) {
  int broken = 0;
  for (const float x : Numbers(1000, -14, -12, 2)) {
    const float high = Float16ToFloat(RoundToFloat16(x));
    const float low = Float16ToFloat(RoundToFloat16(x - high));
    broken += std::abs(double{high} + double{low} - double{x}) > Tolerance(x);
  }
  EXPECT_GT(broken, 500);
}

TEST(HalfSplit, OneHalfKeepsElevenDigits) {
  for (int exponent = -40; exponent < 15; ++exponent) {
    for (const float x : Numbers(500, exponent, exponent + 1, exponent + 100)) {
      const double error = std::abs(double{Float16ToFloat(RoundToFloat16(x))} - double{x});
      ASSERT_LE(error, std::max(0x1p-11 * std::abs(double{x}), 0x1p-25)) << x;
    }
  }
}

TEST(HalfScale, BringsTheLargestMagnitudeBelow2To15) {
  for (int exponent = -113; exponent < 128; ++exponent) {
    for (const float largest : {std::ldexp(1.0f, exponent), std::ldexp(1.9999999f, exponent)}) {
      const float scaled = largest * HalfScale(largest);
      EXPECT_GE(scaled, 0x1p14f) << largest;
      EXPECT_LT(scaled, 0x1p15f) << largest;
      EXPECT_EQ(scaled / HalfScale(largest), largest) << largest;  // exact both ways
    }
  }
  EXPECT_EQ(HalfScale(0x1p-126f), 0x1p127f);  // as near as one float comes
}

struct Sums {
  double exact = 0, magnitudes = 0;
};

Sums ExactDot(const std::vector<float>& a, const std::vector<float>& b) {
  Sums sums;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sums.exact += double{a[i]} * double{b[i]};  // a double has room for the product
    sums.magnitudes += std::abs(double{a[i]} * double{b[i]});
  }
  return sums;
}

TEST(SplitDot, StaysWithinItsBound) {
  for (const std::int64_t terms : {1, 16, 64, 128, 1024}) {
    for (std::uint64_t seed = 1; seed <= 50; ++seed) {
      const std::vector<float> a = Numbers(terms, -14, 0, seed);
      std::vector<float> b = Numbers(terms, -10, 4, seed + 1000);
      if (seed % 2 == 0) {  // the second half cancels the first, nearly
        for (std::int64_t i = terms / 2; i < terms; ++i) {
          b[i] = a[i] == 0 ? b[i] : -b[i - terms / 2] * a[i - terms / 2] / a[i];
          if (std::abs(b[i]) >= 0x1p15f || std::abs(b[i]) < kSplitFloor) b[i] = 1.0f;
        }
      }
      const Sums sums = ExactDot(a, b);
      EXPECT_LE(std::abs(double{SplitDot(a, b)} - sums.exact),
                SplitDotBound(terms) * sums.magnitudes)
          << terms << " terms, seed " << seed;
    }
  }
}

// The bound also holds for accumulators that chop, and not for one product of halves.
float Chopped(double exact) {
  const auto rounded = static_cast<float>(exact);
  return std::abs(double{rounded}) > std::abs(exact) ? std::nextafter(rounded, 0.0f) : rounded;
}

TEST(SplitDot, StaysWithinItsBoundWhereAdditionsChop) {
  for (const std::int64_t terms : {64, 128, 1024}) {
    const std::vector<float> a = Numbers(terms, -3, 0, terms), b = Numbers(terms, -3, 0, terms + 1);
    float main = 0, cross = 0, halves = 0;
    for (std::int64_t i = 0; i < terms; ++i) {
      const HalfPair x = SplitHalf(a[i]), y = SplitHalf(b[i]);
      const double xh = Float16ToFloat(x.high), xl = Float16ToFloat(x.low);
      const double yh = Float16ToFloat(y.high), yl = Float16ToFloat(y.low);
      main = Chopped(double{main} + xh * yh);
      cross = Chopped(double{cross} + xh * yl);
      cross = Chopped(double{cross} + xl * yh);
      halves += static_cast<float>(xh * yh);
    }
    const double sum = Chopped(double{main} + double{cross} / double{kLowScale});
    const Sums sums = ExactDot(a, b);
    EXPECT_LE(std::abs(sum - sums.exact), SplitDotBound(terms) * sums.magnitudes) << terms;
    if (terms == 64) {
      EXPECT_GT(std::abs(double{halves} - sums.exact), SplitDotBound(terms) * sums.magnitudes);
    }
  }
}

}  // namespace
}  // namespace headwise::muon_step
