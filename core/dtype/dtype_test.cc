#include "core/dtype/dtype.h"

#include <cmath>
#include <cstdint>
#include <limits>

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

}  // namespace
}  // namespace headwise
