// Errors against double libm over a sweep of all floats, edges, lanes against scalars, and golden
// checksums that every instruction set must reproduce.
#include "kernels/common/math.h"

#include <cmath>
#include <limits>

#include "core/io/checksum.h"
#include "gtest/gtest.h"
#include "kernels/common/testing/kernel_testing.h"

namespace headwise {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Function {
  const char* name;
  float (*scalar)(float);
  F16 (*vector)(F16);
  double (*exact)(double);
  double largest_ulps;  // measured over every 11th float, rounded up
  std::uint64_t golden;
};

const Function kFunctions[] = {
    {"Exp", [](float x) { return Exp(x); }, [](F16 x) { return Exp(x); },
     [](double x) { return std::exp(x); }, 1.01, 0x17def7b807f65679},
    {"Log", [](float x) { return Log(x); }, [](F16 x) { return Log(x); },
     [](double x) { return std::log(x); }, 0.85, 0x27a6251a0fffbc8e},
    {"Sigmoid", [](float x) { return Sigmoid(x); }, [](F16 x) { return Sigmoid(x); },
     [](double x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); },
     2.36, 0x426208317a9846f2},
    {"Tanh", [](float x) { return Tanh(x); }, [](F16 x) { return Tanh(x); },
     [](double x) { return std::tanh(x); }, 1.31, 0x949fe299b1665802},
};

void PrintTo(const Function& f, std::ostream* out) { *out << f.name; }

class MathTest : public ::testing::TestWithParam<Function> {};

// Distance in units of the last place of the exact result rounded to fp32.
double Ulps(float y, double exact) {
  const float rounded = static_cast<float>(exact);
  if (std::isinf(rounded) || std::isinf(y)) return y == rounded ? 0 : 1e9;
  const int exponent = rounded == 0 ? -149 : std::max(-149, std::ilogb(rounded) - 23);
  return std::abs(y - exact) / std::ldexp(1.0, exponent);
}

// Calls visit(x[16]) until every `step`-th bit pattern has been seen.
template <typename Visit>
void Sweep(std::uint64_t step, Visit visit) {
  for (std::uint64_t u = 0; u < std::uint64_t{1} << 32; u += kLanes * step) {
    float x[kLanes];
    for (int i = 0; i < kLanes; ++i) x[i] = std::bit_cast<float>(std::uint32_t(u + i * step));
    visit(x);
  }
}

TEST_P(MathTest, ErrorIsWithinItsBound) {
  const Function& f = GetParam();
  double largest = 0;
  Sweep(997, [&](const float* x) {
    for (int i = 0; i < kLanes; ++i) {
      const float y = f.scalar(x[i]);
      const double exact = f.exact(x[i]);
      ASSERT_EQ(std::isnan(y), std::isnan(exact)) << f.name << "(" << x[i] << ") = " << y;
      if (std::isnan(y)) continue;
      const double ulps = Ulps(y, exact);
      ASSERT_LE(ulps, f.largest_ulps) << f.name << "(" << x[i] << ") = " << y;
      largest = std::max(largest, ulps);
    }
  });
  // The bound is what the function does, not a wish.
  EXPECT_GE(largest, 0.85 * f.largest_ulps);
}

TEST_P(MathTest, EveryLaneIsTheScalarFunction) {
  const Function& f = GetParam();
  Sweep(4999, [&](const float* x) {
    float y[kLanes];
    Store(y, f.vector(Load(x)));
    for (int i = 0; i < kLanes; ++i) {
      ASSERT_TRUE(SameBits(y[i], f.scalar(x[i]))) << f.name << "(" << x[i] << ")";
    }
  });
}

// Dense enough that one unit in the last place of any coefficient shows.
TEST_P(MathTest, BitsAreGolden) {
  const Function& f = GetParam();
  Fnv1a64 sum;
  Sweep(199, [&](const float* x) {
    float y[kLanes];
    Store(y, f.vector(Load(x)));
    AddToChecksum(sum, RowSpan<const float>(y, 1, kLanes));
  });
  EXPECT_EQ(sum.value(), f.golden) << f.name << " " << std::hex << sum.value();
}

INSTANTIATE_TEST_SUITE_P(Functions, MathTest, ::testing::ValuesIn(kFunctions),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Math, ExpAtItsEdges) {
  EXPECT_EQ(Exp(0.0f), 1.0f);
  EXPECT_EQ(Exp(-0.0f), 1.0f);
  EXPECT_EQ(Exp(kInfinity), kInfinity);
  EXPECT_EQ(Exp(-kInfinity), 0.0f);
  EXPECT_TRUE(std::isnan(Exp(kNaN)));
  EXPECT_TRUE(std::isnan(Exp(-kNaN)));
  EXPECT_LT(Exp(88.7228317f), kInfinity);  // the last finite one
  EXPECT_EQ(Exp(std::nextafter(88.7228317f, 100.0f)), kInfinity);
  EXPECT_EQ(Exp(std::numeric_limits<float>::max()), kInfinity);
  EXPECT_EQ(Exp(-103.972076f), 0x1p-149f);  // the last that is not zero
  EXPECT_EQ(Exp(std::nextafter(-103.972076f, -200.0f)), 0.0f);
  EXPECT_EQ(Exp(-std::numeric_limits<float>::max()), 0.0f);
  EXPECT_EQ(Exp(-100.0f), static_cast<float>(std::exp(-100.0)));  // subnormal
}

TEST(Math, LogAtItsEdges) {
  EXPECT_EQ(Log(1.0f), 0.0f);
  EXPECT_FALSE(std::signbit(Log(1.0f)));
  EXPECT_EQ(Log(0.0f), -kInfinity);
  EXPECT_EQ(Log(-0.0f), -kInfinity);
  EXPECT_EQ(Log(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(Log(-0x1p-149f)));
  EXPECT_TRUE(std::isnan(Log(-kInfinity)));
  EXPECT_TRUE(std::isnan(Log(kNaN)));
  EXPECT_EQ(Log(0x1p-149f), static_cast<float>(std::log(0x1p-149)));
}

TEST(Math, SigmoidAtItsEdges) {
  EXPECT_EQ(Sigmoid(0.0f), 0.5f);
  EXPECT_EQ(Sigmoid(-0.0f), 0.5f);
  EXPECT_EQ(Sigmoid(kInfinity), 1.0f);
  EXPECT_EQ(Sigmoid(-kInfinity), 0.0f);
  EXPECT_EQ(Sigmoid(-100.0f), static_cast<float>(std::exp(-100.0)));
  EXPECT_TRUE(std::isnan(Sigmoid(kNaN)));
}

TEST(Math, SigmoidPairIsSigmoidOnBothSides) {
  Sweep(9973, [](const float* x) {
    const SigmoidPair vector(Load(x));
    for (int i = 0; i < kLanes; ++i) {
      const SigmoidPair scalar(x[i]);
      ASSERT_TRUE(SameBits(scalar.value, Sigmoid(x[i]))) << x[i];
      ASSERT_TRUE(SameBits(scalar.complement, Sigmoid(-x[i]))) << x[i];
      ASSERT_TRUE(SameBits(vector.value[i], scalar.value)) << x[i];
      ASSERT_TRUE(SameBits(vector.complement[i], scalar.complement)) << x[i];
    }
  });
  EXPECT_EQ(SigmoidPair(2.0).value, Sigmoid(2.0));
  EXPECT_EQ(SigmoidPair(2.0).complement, Sigmoid(-2.0));
}

TEST(Math, TanhIsOddAndAccurateNearZero) {
  Sweep(99991, [](const float* x) {
    for (int i = 0; i < kLanes; ++i) ASSERT_TRUE(SameBits(Tanh(-x[i]), -Tanh(x[i]))) << x[i];
  });
  EXPECT_TRUE(std::signbit(Tanh(-0.0f)));
  EXPECT_EQ(Tanh(0x1p-149f), 0x1p-149f);
  EXPECT_EQ(Tanh(1e-5f), 1e-5f);
  EXPECT_EQ(Tanh(kInfinity), 1.0f);
  EXPECT_EQ(Tanh(-kInfinity), -1.0f);
  EXPECT_TRUE(std::isnan(Tanh(kNaN)));
}

TEST(Math, DoublesAreTheStandardLibrarys) {
  double x[kLanes], y[kLanes];
  for (int i = 0; i < kLanes; ++i) x[i] = 0.37 * i + 0.01;
  Store(y, Exp(Load(x)));
  for (int i = 0; i < kLanes; ++i) EXPECT_EQ(y[i], std::exp(x[i]));
  Store(y, Log(Load(x)));
  for (int i = 0; i < kLanes; ++i) EXPECT_EQ(y[i], std::log(x[i]));
  Store(y, Tanh(Load(x)));
  for (int i = 0; i < kLanes; ++i) EXPECT_EQ(y[i], std::tanh(x[i]));
  Store(y, Sigmoid(-Load(x)));
  for (int i = 0; i < kLanes; ++i) EXPECT_NEAR(y[i], 1 / (1 + std::exp(x[i])), 1e-15);
}

}  // namespace
}  // namespace headwise
