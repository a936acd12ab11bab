#include "model/random.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "gtest/gtest.h"

namespace headwise {
namespace {

double NormalCdf(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

TEST(RandomTest, InverseNormalCdfInvertsTheNormalCdf) {
  for (double x = -8; x <= 0; x += 1.0 / 64) {
    // The lower half, where p has full relative precision; all three regions of the approximation.
    EXPECT_NEAR(InverseNormalCdf(NormalCdf(x)), x, 2e-15 * (1 + std::fabs(x))) << x;
  }
  EXPECT_EQ(InverseNormalCdf(0.5), 0.0);
  EXPECT_EQ(InverseNormalCdf(0.984375), -InverseNormalCdf(0.015625));
}

TEST(RandomTest, StreamsAreFixedForEver) {
  // Changing these changes every initial weight.
  EXPECT_EQ(RandomKey(1, "layers.0.ffn.w1"), 2834042984158582189u);
  EXPECT_EQ(Uniform(42, 0), 0x1.7bae644c5fd6ep-1);
  EXPECT_EQ(Uniform(42, 7), 0x1.99ec6bdd3d3c6p-1);
  EXPECT_EQ(Normal(42, 7), 0x1.b01117354176cp-1);
  EXPECT_EQ(Normal(42, 66), 0x1.1bf17de7c5009p+1);  // by way of the logarithm
}

TEST(RandomTest, KeysDifferBySeedAndByName) {
  EXPECT_NE(RandomKey(1, "a"), RandomKey(2, "a"));
  EXPECT_NE(RandomKey(1, "a"), RandomKey(1, "b"));
  EXPECT_NE(Uniform(RandomKey(1, "a"), 0), Uniform(RandomKey(1, "b"), 0));
}

struct Moments {
  double mean = 0, variance = 0, fourth = 0, largest = 0;
};

template <typename Draw>
Moments MomentsOf(Draw draw, int n) {
  Moments m;
  double sum = 0, square = 0, fourth = 0;
  for (int i = 0; i < n; ++i) {
    const double x = draw(i);
    sum += x;
    square += x * x;
    fourth += x * x * x * x;
    m.largest = std::max(m.largest, std::fabs(x));
  }
  m.mean = sum / n;
  m.variance = square / n - m.mean * m.mean;
  m.fourth = fourth / n;
  return m;
}

// Tolerances are five standard errors of the estimate.
TEST(RandomTest, NormalHasTheMomentsOfANormal) {
  constexpr int n = 1 << 20;
  const Moments m = MomentsOf([](int i) { return Normal(RandomKey(3, "x"), i); }, n);
  EXPECT_NEAR(m.mean, 0, 5 / std::sqrt(n));
  EXPECT_NEAR(m.variance, 1, 5 * std::sqrt(2.0 / n));
  EXPECT_NEAR(m.fourth, 3, 5 * std::sqrt(96.0 / n));
  EXPECT_GT(m.largest, 4);
}

TEST(RandomTest, TruncatedNormalStaysWithinThreeSigma) {
  constexpr int n = 1 << 20;
  const Moments m = MomentsOf([](int i) { return TruncatedNormal(RandomKey(4, "x"), i); }, n);
  EXPECT_NEAR(m.mean, 0, 5 / std::sqrt(n));
  EXPECT_NEAR(m.variance, 0.98658 * 0.98658, 5 * std::sqrt(2.0 / n));
  EXPECT_LE(m.largest, 3.0);
  EXPECT_GT(m.largest, 2.99);
}

TEST(RandomTest, NeighboursAreUncorrelated) {
  constexpr int n = 1 << 18;
  double along = 0, across = 0;
  for (int i = 0; i < n; ++i) {
    along += Normal(5, i) * Normal(5, i + 1);
    across += Normal(5, i) * Normal(6, i);  // keys that differ in few bits
  }
  EXPECT_NEAR(along / n, 0, 5 / std::sqrt(n));
  EXPECT_NEAR(across / n, 0, 5 / std::sqrt(n));
}

}  // namespace
}  // namespace headwise
