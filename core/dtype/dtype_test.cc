#include "core/dtype/dtype.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include "core/dtype/fp16.h"
#include "gtest/gtest.h"

namespace headwise {
namespace {

// The two neighbouring bfloat16 values, compared in double: an independent statement of
// round-to-nearest-even.
std::uint16_t NearestByDistance(float x) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(x);
  const std::uint16_t down = static_cast<std::uint16_t>(u >> 16);
  const std::uint16_t up = down + 1;  // away from zero; 0x7f80 is infinity, which stands for 2^128
  auto value = [](std::uint16_t b) {
    const int exponent = (b >> 7) & 0xff;
    const double mantissa = (b & 0x7f) / 128.0;
    const double m =
        exponent == 0 ? std::ldexp(mantissa, -126) : std::ldexp(1 + mantissa, exponent - 127);
    return (b & 0x8000) ? -m : m;
  };
  const double to_down = std::abs(static_cast<double>(x) - value(down));
  const double to_up = std::abs(static_cast<double>(x) - value(up));
  if (to_down < to_up) return down;
  if (to_up < to_down) return up;
  return (down & 1) ? up : down;
}

TEST(BFloat16, RoundsToNearestEvenOverTheWholeRange) {
  for (std::uint64_t u = 0; u < (1ull << 32); u += 997) {
    const float x = std::bit_cast<float>(static_cast<std::uint32_t>(u));
    if (!std::isfinite(x)) continue;
    ASSERT_EQ(RoundToBFloat16(x).bits, NearestByDistance(x)) << std::hex << u;
  }
}

TEST(BFloat16, TiesGoToEven) {
  EXPECT_EQ(RoundToBFloat16(std::bit_cast<float>(0x3f808000u)).bits, 0x3f80);
  EXPECT_EQ(RoundToBFloat16(std::bit_cast<float>(0x3f818000u)).bits, 0x3f82);
  EXPECT_EQ(RoundToBFloat16(std::bit_cast<float>(0x3f808001u)).bits, 0x3f81);
}

TEST(BFloat16, WideningThenNarrowingIsTheIdentityExceptThatNansBecomeOne) {
  for (int b = 0; b < 65536; ++b) {
    const BFloat16 x{static_cast<std::uint16_t>(b)};
    const bool nan = (b & 0x7fff) > 0x7f80;
    EXPECT_EQ(RoundToBFloat16(ToFloat(x)).bits, nan ? 0x7fff : b);
  }
}

TEST(BFloat16, OverflowGivesInfinityAndSubnormalsAreKept) {
  EXPECT_EQ(RoundToBFloat16(std::numeric_limits<float>::max()).bits, 0x7f80);
  EXPECT_EQ(RoundToBFloat16(-std::numeric_limits<float>::max()).bits, 0xff80);
  EXPECT_EQ(RoundToBFloat16(std::bit_cast<float>(0x00010000u)).bits, 0x0001);
  EXPECT_EQ(RoundToBFloat16(-0.0f).bits, 0x8000);
}

TEST(DType, SizesAndNamesFollowSafetensors) {
  EXPECT_EQ(SizeOf(kDType<BFloat16>), 2);
  EXPECT_EQ(SizeOf(kDType<double>), 8);
  EXPECT_STREQ(Name(kDType<float>), "F32");
  EXPECT_STREQ(Name(DType::kBF16), "BF16");
}

TEST(DType, NarrowRoundsOnlyBFloat16) {
  EXPECT_EQ(Narrow<float>(1.0f / 3), 1.0f / 3);
  EXPECT_EQ(Narrow<double>(1.0 / 3), 1.0 / 3);
  EXPECT_EQ(Narrow<BFloat16>(1.0f / 3).bits, 0x3eab);
}

// Half precision, from its definition.
double HalfByDefinition(std::uint16_t h) {
  const int exponent = h >> 10 & 0x1f;
  const double mantissa = (h & 0x3ff) / 1024.0;
  const double m =
      exponent == 0 ? std::ldexp(mantissa, -14) : std::ldexp(1 + mantissa, exponent - 15);
  return (h & 0x8000) ? -m : m;
}

TEST(Float16Test, EveryValueWidensExactlyAndComesBack) {
  for (int bits = 0; bits < 0x10000; ++bits) {
    const auto h = static_cast<std::uint16_t>(bits);
    const float x = Float16ToFloat(h);
    if ((h & 0x7c00) == 0x7c00) {
      EXPECT_EQ(std::isnan(x), (h & 0x3ff) != 0);
      EXPECT_EQ(std::isinf(x), (h & 0x3ff) == 0);
    } else {
      ASSERT_EQ(x, HalfByDefinition(h)) << bits;
      ASSERT_EQ(std::signbit(x), (h & 0x8000) != 0) << bits;
    }
    ASSERT_EQ(RoundToFloat16(x), std::isnan(x) ? 0x7fff : h) << bits;
  }
}

// Between two neighbours: the nearer one, and of two as near the even one.
TEST(Float16Test, RoundsToNearestEven) {
  for (int bits = 0; bits < 0x7bff; ++bits) {
    const auto h = static_cast<std::uint16_t>(bits);
    const float low = Float16ToFloat(h), high = Float16ToFloat(static_cast<std::uint16_t>(h + 1));
    const float middle = low + (high - low) / 2;  // exact in single precision
    ASSERT_EQ(RoundToFloat16(middle), h + (h & 1)) << bits;
    ASSERT_EQ(RoundToFloat16(std::nextafter(middle, 0.0f)), h) << bits;
    ASSERT_EQ(RoundToFloat16(-std::nextafter(middle, 1e9f)), (h + 1) | 0x8000) << bits;
  }
  EXPECT_EQ(RoundToFloat16(std::nextafter(65520.0f, 0.0f)), 0x7bff);
  EXPECT_EQ(RoundToFloat16(65520.0f), 0x7c00);
  EXPECT_EQ(RoundToFloat16(-std::numeric_limits<float>::infinity()), 0xfc00);
  EXPECT_EQ(RoundToFloat16(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(RoundToFloat16(-0.0f), 0x8000);
}

}  // namespace
}  // namespace headwise
