// The device functions against their definitions: conversions and integers in other arithmetic, the
// rounding of sums, products, quotients and roots from exact or double values. What must not be
// callable is not.
#include "kernels/emulation/intrinsics.h"

#include <bit>
#include <climits>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace headwise::emulation::device {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
const float kNan = std::numeric_limits<float>::quiet_NaN();

float AsFloat(std::uint32_t bits) { return std::bit_cast<float>(bits); }
std::uint32_t Bits(float x) { return std::bit_cast<std::uint32_t>(x); }

// NaN like any NaN.
::testing::AssertionResult Same(float a, float b) {
  if (Bits(a) == Bits(b) || (std::isnan(a) && std::isnan(b))) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << std::hex << Bits(a) << " and " << Bits(b);
}

// Floats of all magnitudes, with the special ones.
std::vector<float> Samples() {
  std::vector<float> samples = {0.0f,      -0.0f,         kInfinity, -kInfinity,      kNan,
                                0x1p-149f, -0x1p-149f,    0x1p-126f, 0x1.fffffep127f, 1.0f,
                                -1.0f,     0x1.000002p0f, 3.0f};
  std::uint32_t state = 1;
  for (int i = 0; i < 400; ++i) samples.push_back(AsFloat(state = state * 1664525u + 1013904223u));
  return samples;
}

// --- bfloat16 -------------------------------------------------------------------------------------

// The nearest bfloat16 by comparing distances in double, ties to the even one. For finite x.
std::uint16_t NearestBfloat16(float x) {
  const std::uint32_t below = Bits(x) >> 16, above = below + 1;
  // One step beyond the largest lies infinity; its place for rounding is 2^128.
  const auto value = [](std::uint32_t upper) {
    const bool infinite = (upper & 0x7fffu) == 0x7f80u;
    return infinite ? std::copysign(0x1p128, AsFloat(upper << 16))
                    : static_cast<double>(AsFloat(upper << 16));
  };
  const double down = std::fabs(x - value(below)), up = std::fabs(value(above) - x);
  if (down != up) return static_cast<std::uint16_t>(down < up ? below : above);
  return static_cast<std::uint16_t>(below % 2 == 0 ? below : above);
}

TEST(Bfloat16, RoundsToNearestTiesToEven) {
  // Below, at and above the tie, and exact, on every upper half.
  for (std::uint32_t upper = 0; upper < 0x10000u; ++upper) {
    for (const std::uint32_t lower : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      const float x = AsFloat(upper << 16 | lower);
      const std::uint16_t bits = __bfloat16_as_ushort(__float2bfloat16_rn(x));
      if (std::isnan(x)) {
        ASSERT_EQ(bits, 0x7fff) << x;
      } else if (std::isinf(x)) {
        ASSERT_EQ(bits, upper);
      } else {
        ASSERT_EQ(bits, NearestBfloat16(x)) << x;
      }
    }
  }
}

TEST(Bfloat16, WidensExactly) {
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const __nv_bfloat16 x = __ushort_as_bfloat16(static_cast<unsigned short>(bits));
    ASSERT_EQ(Bits(__bfloat162float(x)), bits << 16);
    ASSERT_EQ(__bfloat16_as_ushort(x), bits);
  }
}

TEST(Bfloat16, PairsHaveTheFirstInTheLowerHalf) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(1.0f, -2.0f);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(pair), 0xc0003f80u);
  EXPECT_EQ(__low2float(pair), 1.0f);
  EXPECT_EQ(__high2float(pair), -2.0f);
}

// --- Halves ---------------------------------------------------------------------------------------

TEST(Half, WidensExactlyAndRoundsBack) {
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const __half x = __ushort_as_half(static_cast<unsigned short>(bits));
    ASSERT_EQ(__half_as_ushort(x), bits);
    const std::uint32_t exponent = bits >> 10 & 0x1fu, digits = bits & 0x3ffu;
    const bool special = exponent == 0x1fu;
    if (special && digits != 0) {
      ASSERT_TRUE(std::isnan(__half2float(x)));
      ASSERT_EQ(__half_as_ushort(__float2half_rn(__half2float(x))), 0x7fff);
      continue;
    }
    const float magnitude = special         ? kInfinity
                            : exponent == 0 ? std::ldexp(static_cast<float>(digits), -24)
                                            : std::ldexp(static_cast<float>(0x400u + digits),
                                                         static_cast<int>(exponent) - 25);
    ASSERT_EQ(__half2float(x), bits >> 15 != 0 ? -magnitude : magnitude) << bits;
    ASSERT_EQ(__half_as_ushort(__float2half_rn(__half2float(x))), bits);
  }
}

TEST(Half, RoundsToNearestTiesToEven) {
  for (std::uint32_t bits = 0; bits < 0x7bffu; ++bits) {  // finite, and finite the next
    const float x = __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
    const float next = __half2float(__ushort_as_half(static_cast<unsigned short>(bits + 1)));
    const float middle = x + (next - x) / 2;
    const auto rounded = [](float v) {
      return std::uint32_t{__half_as_ushort(__float2half_rn(v))};
    };
    ASSERT_EQ(rounded(std::nextafter(middle, 0.0f)), bits) << x;
    ASSERT_EQ(rounded(std::nextafter(middle, kInfinity)), bits + 1) << x;
    ASSERT_EQ(rounded(middle), bits + bits % 2) << x;
  }
  EXPECT_EQ(__half_as_ushort(__float2half_rn(65519.0f)), 0x7bff);
  EXPECT_EQ(__half_as_ushort(__float2half_rn(65520.0f)), 0x7c00);
}

// --- float and double -----------------------------------------------------------------------------

// A product of two floats is exact in double, and so is most of a sum; a quotient and a root of
// floats, rounded to double and then to float, are rounded correctly (53 >= 2 * 24 + 2).
TEST(Float, OperationsRoundOnce) {
  for (const float a : Samples()) {
    EXPECT_TRUE(Same(__fsqrt_rn(a), static_cast<float>(std::sqrt(static_cast<double>(a)))));
    for (const float b : Samples()) {
      const double x = a, y = b;
      ASSERT_TRUE(Same(__fadd_rn(a, b), static_cast<float>(x + y))) << a << " " << b;
      ASSERT_TRUE(Same(__fsub_rn(a, b), static_cast<float>(x - y))) << a << " " << b;
      ASSERT_TRUE(Same(__fmul_rn(a, b), static_cast<float>(x * y))) << a << " " << b;
      ASSERT_TRUE(Same(__fdiv_rn(a, b), static_cast<float>(x / y))) << a << " " << b;
    }
  }
}

TEST(Float, FmaRoundsOnceAndProductsAndSumsTwice) {
  const float a = 0x1.001p0f;  // a * a = 1 + 2^-11 + 2^-24
  EXPECT_EQ(__fmaf_rn(a, a, -1.0f), 0x1.0008p-11f);
  EXPECT_EQ(__fadd_rn(__fmul_rn(a, a), -1.0f), 0x1p-11f);
  EXPECT_EQ(__fmaf_rn(0x1p-100f, 0x1p-40f, 0x1p-149f), 0x1p-140f + 0x1p-149f) << "subnormals";
  const double d = 0x1.0000002p0;  // d * d = 1 + 2^-26 + 2^-54
  EXPECT_EQ(__fma_rn(d, d, -1.0), 0x1.0000001p-26);
  EXPECT_EQ(__dadd_rn(__dmul_rn(d, d), -1.0), 0x1p-26);
}

TEST(Double, OperationsRoundOnce) {
  EXPECT_EQ(__dadd_rn(1.0, 0x1p-53), 1.0);
  EXPECT_EQ(__dadd_rn(1.0, 0x1.8p-53), 0x1.0000000000001p0);
  EXPECT_EQ(__dsub_rn(1.0, 0x1p-54), 1.0);
  EXPECT_EQ(__ddiv_rn(1.0, 3.0), 0x1.5555555555555p-2);
  EXPECT_EQ(__drcp_rn(3.0), 0x1.5555555555555p-2);
  EXPECT_EQ(__dsqrt_rn(2.0), 0x1.6a09e667f3bcdp0);
  EXPECT_EQ(__double2float_rn(1.0 + 0x1p-24), 1.0f) << "a tie";
  EXPECT_EQ(__double2float_rn(1.0 + 0x1.8p-24), 0x1.000002p0f);
  EXPECT_EQ(__double2float_rn(0x1p-149), 0x1p-149f);
  EXPECT_EQ(__double2float_rn(0x1p-150), 0.0f) << "a tie";
}

// --- Conversions ----------------------------------------------------------------------------------

TEST(Conversions, FloatToIntRoundsAndSaturates) {
  struct Case {
    float x;
    int nearest, to_zero, down, up;
  };
  for (const Case& c :
       {Case{0.5f, 0, 0, 0, 1}, Case{1.5f, 2, 1, 1, 2}, Case{2.5f, 2, 2, 2, 3},
        Case{-0.5f, 0, 0, -1, 0}, Case{-1.5f, -2, -1, -2, -1}, Case{7.0f, 7, 7, 7, 7},
        Case{-0x1p31f, INT_MIN, INT_MIN, INT_MIN, INT_MIN},
        Case{0x1p31f, INT_MAX, INT_MAX, INT_MAX, INT_MAX},
        Case{-kInfinity, INT_MIN, INT_MIN, INT_MIN, INT_MIN},
        Case{kInfinity, INT_MAX, INT_MAX, INT_MAX, INT_MAX}, Case{kNan, 0, 0, 0, 0}}) {
    EXPECT_EQ(__float2int_rn(c.x), c.nearest) << c.x;
    EXPECT_EQ(__float2int_rz(c.x), c.to_zero) << c.x;
    EXPECT_EQ(__float2int_rd(c.x), c.down) << c.x;
    EXPECT_EQ(__float2int_ru(c.x), c.up) << c.x;
  }
  EXPECT_EQ(__int2float_rn(0x1000001), 0x1p24f) << "a tie";
  EXPECT_EQ(__int2float_rn(INT_MIN), -0x1p31f);
  EXPECT_EQ(__uint2float_rn(0xffffffffu), 0x1p32f);
}

TEST(Conversions, BitsStay) {
  for (const std::uint32_t bits : {0u, 1u, 0x80000000u, 0x7fc12345u, 0xff800001u, 0x3f800000u}) {
    EXPECT_EQ(__float_as_uint(__uint_as_float(bits)), bits);
    EXPECT_EQ(__float_as_int(__int_as_float(static_cast<int>(bits))), static_cast<int>(bits));
  }
}

// --- Integers -------------------------------------------------------------------------------------

TEST(Integers, CountBits) {
  for (int bit = 0; bit < 32; ++bit) {
    const unsigned one = 1u << bit;
    EXPECT_EQ(__popc(one - 1), bit);
    EXPECT_EQ(__clz(static_cast<int>(one)), 31 - bit);
    EXPECT_EQ(__ffs(static_cast<int>(one | 0x80000000u)), bit + 1);
  }
  EXPECT_EQ(__popc(0xffffffffu), 32);
  EXPECT_EQ(__clz(0), 32);
  EXPECT_EQ(__ffs(0), 0);
}

TEST(Integers, UpperHalfOfAProduct) {
  EXPECT_EQ(__umulhi(0xffffffffu, 0xffffffffu), 0xfffffffeu);
  EXPECT_EQ(__umulhi(0x10000u, 0x10000u), 1u);
  EXPECT_EQ(__umulhi(0xffffu, 0x10000u), 0u);
}

TEST(Integers, BytePermutation) {
  const unsigned a = 0x33221100u, b = 0x77665544u;
  EXPECT_EQ(__byte_perm(a, b, 0x3210), a);
  EXPECT_EQ(__byte_perm(a, b, 0x7654), b);
  EXPECT_EQ(__byte_perm(a, b, 0x5410), 0x55441100u);
  EXPECT_EQ(__byte_perm(a, b, 0x0246), 0x00224466u);
}

TEST(Integers, MinAndMax) {
  EXPECT_EQ(min(-1, 1), -1);
  EXPECT_EQ(max(-1, 1), 1);
  EXPECT_EQ(min(0xffffffffu, 1u), 1u);
  EXPECT_EQ(max(0xffffffffu, 1u), 0xffffffffu);
  EXPECT_EQ(max(-5LL, 1LL << 40), 1LL << 40);
}

// --- What is not there ----------------------------------------------------------------------------

#define HW_EXPECT_ABSENT(call) EXPECT_FALSE(requires(F x) { call; })
template <typename F>
void ExpectAbsent() {
  HW_EXPECT_ABSENT(rsqrtf(x));
  HW_EXPECT_ABSENT(__frsqrt_rn(x));
  HW_EXPECT_ABSENT(expf(x));
  HW_EXPECT_ABSENT(__expf(x));
  HW_EXPECT_ABSENT(logf(x));
  HW_EXPECT_ABSENT(sinf(x));
  HW_EXPECT_ABSENT(__sincosf(x, &x, &x));
  HW_EXPECT_ABSENT(powf(x, x));
  HW_EXPECT_ABSENT(min(x, x));
  EXPECT_TRUE(requires(F x) { __fadd_rn(x, x); });
}

TEST(WhatDiffersElsewhere, DoesNotCompile) { ExpectAbsent<float>(); }

}  // namespace
}  // namespace headwise::emulation::device
