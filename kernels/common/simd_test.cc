#include "kernels/common/simd.h"

#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "core/dtype/dtype.h"
#include "gtest/gtest.h"
#include "kernels/common/testing/kernel_testing.h"

namespace headwise {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Pairs of these meet in every lane.
std::vector<float> AwkwardFloats() {
  std::vector<float> values = {0.0f,       -0.0f,     1.0f,  -1.0f,  0x1p-149f,
                               -0x1p-149f, 0x1p-126f, 1e38f, -3e38f, kInfinity,
                               -kInfinity, kNaN,      -kNaN};
  std::mt19937 random(7);
  while (values.size() < 160) values.push_back(std::bit_cast<float>(std::uint32_t(random())));
  return values;
}

TEST(Simd, EveryOperationIsTheScalarOneInEveryLane) {
  const std::vector<float> values = AwkwardFloats();
  const int n = static_cast<int>(values.size());
  for (int shift = 0; shift < n; ++shift) {
    for (int begin = 0; begin + kLanes <= n; begin += kLanes) {
      float a[kLanes], b[kLanes], c[kLanes];
      for (int i = 0; i < kLanes; ++i) {
        a[i] = values[begin + i];
        b[i] = values[(begin + i + shift) % n];
        c[i] = values[(begin + 3 * i + 2 * shift) % n];
      }
      const F16 x = Load(a), y = Load(b), z = Load(c);
      const F16 vector[] = {x + y,
                            x - y,
                            x * y,
                            x / y,
                            -x,
                            Fma(x, y, z),
                            Sqrt(x),
                            Max(x, y),
                            Min(x, y),
                            Abs(x),
                            CopySign(Abs(x), y),
                            FromBits(ToBits(x) + (ToBits(y) >> 3) - (ToBits(z) << 2)),
                            Select(x < y, x, z),
                            Select(x <= y, x, z),
                            Select(x > y, x, z),
                            Select(x >= y, x, z),
                            Select(x == y, x, z),
                            Select(x != y, x, z),
                            Select((x < y) & (y < z), x, y),
                            Select((x < y) | (y < z), x, y)};
      for (int i = 0; i < kLanes; ++i) {
        const float s = a[i], t = b[i], u = c[i];
        const std::uint32_t bits = std::uint32_t(ToBits(s)) + std::uint32_t(ToBits(t) >> 3) -
                                   (std::uint32_t(ToBits(u)) << 2);
        const float scalar[] = {s + t,
                                s - t,
                                s * t,
                                s / t,
                                -s,
                                Fma(s, t, u),
                                Sqrt(s),
                                Max(s, t),
                                Min(s, t),
                                Abs(s),
                                CopySign(Abs(s), t),
                                std::bit_cast<float>(bits),
                                s < t ? s : u,
                                s <= t ? s : u,
                                s > t ? s : u,
                                s >= t ? s : u,
                                s == t ? s : u,
                                s != t ? s : u,
                                s < t && t < u ? s : t,
                                s < t || t < u ? s : t};
        static_assert(std::size(vector) == std::size(scalar));
        for (int k = 0; k < static_cast<int>(std::size(scalar)); ++k) {
          ASSERT_TRUE(SameBits(vector[k][i], scalar[k]))
              << "operation " << k << " of " << s << ", " << t << ", " << u << ": " << vector[k][i]
              << ", expected " << scalar[k];
        }
      }
    }
  }
}

TEST(Simd, FmaRoundsOnce) {
  const float a = 1.0f + 0x1p-12f;
  ASSERT_NE(std::fma(a, a, -1.0f), a * a - 1.0f);
  for (int i = 0; i < kLanes; ++i)
    EXPECT_EQ(Fma(F16(a), F16(a), F16(-1.0f))[i], std::fma(a, a, -1.0f));
}

TEST(Simd, BroadcastKeepsTheSignOfZero) {
  EXPECT_TRUE(std::signbit(F16(-0.0f)[5]));
  EXPECT_FALSE(std::signbit(F16(0.0f)[5]));
  EXPECT_TRUE(std::signbit(D16(-0.0)[15]));
}

TEST(Simd, NarrowingIsRoundToBFloat16) {
  // Every upper half with the lower halves around each rounding decision.
  std::mt19937 random(3);
  for (std::uint32_t high = 0; high < 0x10000; ++high) {
    std::uint32_t low[kLanes] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
    for (int i = 6; i < kLanes; ++i) low[i] = random() & 0xffff;
    float x[kLanes];
    for (int i = 0; i < kLanes; ++i) x[i] = std::bit_cast<float>(high << 16 | low[i]);
    BFloat16 y[kLanes];
    StoreNarrow(y, Load(x));
    for (int i = 0; i < kLanes; ++i) {
      ASSERT_EQ(y[i].bits, RoundToBFloat16(x[i]).bits) << std::hex << high << " " << low[i];
    }
  }
}

TEST(Simd, WideningIsExact) {
  for (std::uint32_t begin = 0; begin < 0x10000; begin += kLanes) {
    BFloat16 x[kLanes];
    for (int i = 0; i < kLanes; ++i) x[i].bits = static_cast<std::uint16_t>(begin + i);
    const F16 y = LoadWiden(x);
    for (int i = 0; i < kLanes; ++i) ASSERT_EQ(ToBits(y)[i], ToBits(ToFloat(x[i])));
  }
}

// Buffers of exactly n elements: the address sanitizer sees one element too many.
template <typename T>
void TestPartial() {
  for (int n = 0; n <= kLanes; ++n) {
    const std::unique_ptr<T[]> in(new T[n]), out(new T[n + 1]);
    for (int i = 0; i < n; ++i) in[i] = Narrow<T>(Compute<T>(i + 1));
    out[n] = Narrow<T>(Compute<T>(77));
    const auto v = LoadPartial(in.get(), n, Narrow<T>(Compute<T>(-2)));
    for (int i = 0; i < kLanes; ++i) EXPECT_EQ(v[i], i < n ? Compute<T>(i + 1) : Compute<T>(-2));
    StorePartial(out.get(), n, v + v);
    for (int i = 0; i < n; ++i) EXPECT_EQ(Widen(out[i]), Compute<T>(2 * i + 2));
    EXPECT_EQ(Widen(out[n]), Compute<T>(77));
  }
}
TEST(Simd, PartialLoadsAndStoresTouchNothingElse) {
  TestPartial<float>();
  TestPartial<double>();
  TestPartial<BFloat16>();
}

TEST(Simd, MemoryNeedsNoAlignment) {
  alignas(64) float buffer[kLanes + 1];
  for (int i = 0; i <= kLanes; ++i) buffer[i] = static_cast<float>(i);
  const F16 v = Load(buffer + 1);
  Store(buffer, v);
  for (int i = 0; i < kLanes; ++i) EXPECT_EQ(buffer[i], i + 1.0f);
}

template <typename Lane>
void TestHorizontal() {
  std::mt19937_64 random(11);
  for (int round = 0; round < 200; ++round) {
    Lane x[kLanes];
    for (Lane& v : x) {
      v = std::ldexp(Lane(1) + std::ldexp(Lane(random() >> 12), -52), int(random() % 20));
      if (random() % 2) v = -v;
    }
    const Vec16<Lane> v = Load(x);
    Lane eight[8], four[4];
    for (int i = 0; i < 8; ++i) eight[i] = x[i] + x[i + 8];
    for (int i = 0; i < 4; ++i) four[i] = eight[i] + eight[i + 4];
    EXPECT_EQ(HorizontalSum(v), (four[0] + four[2]) + (four[1] + four[3]));
    EXPECT_EQ(HorizontalMax(v), *std::max_element(x, x + kLanes));
  }
}
TEST(Simd, HorizontalSumIsTheHalvingTree) {
  TestHorizontal<float>();
  TestHorizontal<double>();
}

}  // namespace
}  // namespace headwise
