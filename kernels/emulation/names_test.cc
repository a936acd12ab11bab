// What the names of cuda_kernel.h do, in every order of the threads.
#include "kernels/emulation/testing/names.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "absl/status/status.h"
#include "core/dtype/fp16.h"
#include "gtest/gtest.h"
#include "kernels/emulation/emulation.h"

namespace headwise::emulation {
namespace {

class EveryOrder : public ::testing::TestWithParam<ThreadOrder> {
 private:
  Session session_{Options{
      .order = GetParam(), .seed = 3, .preempt = GetParam() == ThreadOrder::kRandom ? 0.25 : 0}};
};
INSTANTIATE_TEST_SUITE_P(Orders, EveryOrder,
                         ::testing::Values(ThreadOrder::kForward, ThreadOrder::kReverse,
                                           ThreadOrder::kRandom));

TEST_P(EveryOrder, LoadsAndStoresOfEveryWidth) {
  alignas(32) std::uint8_t x[96], y[96] = {};
  std::iota(x, x + 96, std::uint8_t{1});
  ASSERT_EQ(cuda_emulated::CopyByWidths(x, y), absl::OkStatus());
  for (int i = 0; i < 96; ++i) EXPECT_EQ(y[i], i % 32 == 0 ? 0 : x[i]) << i;
}

TEST_P(EveryOrder, Atomics) {
  std::vector<int> v = {5, 100, -100, 0};
  std::vector<unsigned> u = {5, 100, 0, 0};
  std::vector<unsigned long long> l = {1ull << 40, 100, 0, 0};
  int old = 0;
  ASSERT_EQ(cuda_emulated::Atomics(v.data(), u.data(), l.data(), &old), absl::OkStatus());
  EXPECT_EQ(v, (std::vector<int>{5 - 3 * 16, -48, 45, 32}));
  EXPECT_EQ(u, (std::vector<unsigned>{5 + 496, 0, 31, 32}));
  EXPECT_EQ(l, (std::vector<unsigned long long>{(1ull << 40) + 496, 0, 31, 32}));
  if (GetParam() == ThreadOrder::kForward) {
    EXPECT_EQ(old, 5 - 3 * 16 - 45);
  }
}

// What CUDA's manual says of each shuffle.
int SourceLane(int how, int lane, int argument, int width) {
  const int segment = lane / width * width;
  switch (how) {
    case 0:
      return segment + (argument % width + width) % width;
    case 1: {
      const int source = lane ^ argument;
      return source < segment + width ? source : lane;
    }
    case 2:
      return lane - argument >= segment ? lane - argument : lane;
    default:
      return lane + argument < segment + width ? lane + argument : lane;
  }
}

TEST_P(EveryOrder, ShufflesOfEveryWidth) {
  for (int how = 0; how < 4; ++how) {
    for (const int width : {1, 2, 4, 8, 16, 32}) {
      for (int argument = 0; argument < 32; ++argument) {
        std::vector<int> out(32), expected(32);
        ASSERT_EQ(cuda_emulated::Shuffle(out.data(), how, argument, width, argument % 5),
                  absl::OkStatus());
        for (int lane = 0; lane < 32; ++lane) {
          expected[lane] = 100 + SourceLane(how, lane, argument, width);
        }
        ASSERT_EQ(out, expected) << "how " << how << " argument " << argument << " width " << width;
      }
    }
  }
}

TEST_P(EveryOrder, Votes) {
  for (const std::uint32_t voters : {0xffffffffu, 0x80000000u, 0x0000ffffu, 0x12345678u}) {
    for (const std::uint32_t votes : {0u, 0xffffffffu, 0x5a5a5a5au, voters}) {
      std::vector<unsigned> out(96, 7);
      ASSERT_EQ(cuda_emulated::Vote(out.data(), voters, votes), absl::OkStatus());
      for (int lane = 0; lane < 32; ++lane) {
        const bool votes_at_all = (voters >> lane & 1u) != 0;
        EXPECT_EQ(out[lane], votes_at_all ? voters & votes : 7u);
        EXPECT_EQ(out[32 + lane], !votes_at_all ? 7u : (voters & votes) != 0 ? 1u : 0u);
        EXPECT_EQ(out[64 + lane], !votes_at_all ? 7u : (voters & ~votes) == 0 ? 1u : 0u);
      }
    }
  }
}

TEST_P(EveryOrder, CoordinatesAndExtents) {
  std::vector<unsigned> out(12 * 12 * 30), expected;
  ASSERT_EQ(cuda_emulated::Coordinates(out.data()), absl::OkStatus());
  for (unsigned block = 0; block < 12; ++block) {
    for (unsigned thread = 0; thread < 30; ++thread) {
      expected.insert(expected.end(), {thread % 3, thread / 3 % 5, thread / 15, block % 2,
                                       block / 2 % 3, block / 6, 3, 5, 2, 2, 3, 2});
    }
  }
  EXPECT_EQ(out, expected);
}

TEST_P(EveryOrder, SharedMemoryOfEveryKind) {
  std::vector<unsigned> out(64), expected(64);
  ASSERT_EQ(cuda_emulated::SharedKinds(out.data()), absl::OkStatus());
  for (unsigned i = 0; i < 64; ++i) expected[i] = 2 * (63 - i) + 1;
  EXPECT_EQ(out, expected);
}

// --- Products of matrices -------------------------------------------------------------------------

// PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type": the row and column of
// element i of a lane's fragment; two halves make a word.
struct RowColumn {
  int row, column;
};
RowColumn PlaceOfA(int lane, int i) {  // i < 8
  const bool upper = i < 2 || (i >= 4 && i < 6);
  return {upper ? lane / 4 : lane / 4 + 8, (i < 4 ? 0 : 8) + lane % 4 * 2 + (i & 1)};
}
RowColumn PlaceOfB(int lane, int i) {  // i < 4
  return {(i < 2 ? 0 : 8) + lane % 4 * 2 + (i & 1), lane / 4};
}
RowColumn PlaceOfD(int lane, int i) {  // i < 4
  return {i < 2 ? lane / 4 : lane / 4 + 8, lane % 4 * 2 + (i & 1)};
}

struct Product {
  float a[16][16] = {}, b[16][8] = {}, d[16][8] = {};

  // d += a b, `times` times, by the kernel.
  void Multiply(int times = 1) {
    unsigned a_words[32 * 4] = {}, b_words[32 * 2] = {};
    float d_elements[32 * 4];
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 8; ++i) {
        const auto [row, column] = PlaceOfA(lane, i);
        a_words[4 * lane + i / 2] |= unsigned{RoundToFloat16(a[row][column])} << (16 * (i % 2));
      }
      for (int i = 0; i < 4; ++i) {
        const auto [row, column] = PlaceOfB(lane, i);
        b_words[2 * lane + i / 2] |= unsigned{RoundToFloat16(b[row][column])} << (16 * (i % 2));
      }
      for (int i = 0; i < 4; ++i) {
        const auto [row, column] = PlaceOfD(lane, i);
        d_elements[4 * lane + i] = d[row][column];
      }
    }
    ASSERT_EQ(cuda_emulated::Multiply(a_words, b_words, d_elements, times), absl::OkStatus());
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 4; ++i) {
        const auto [row, column] = PlaceOfD(lane, i);
        d[row][column] = d_elements[4 * lane + i];
      }
    }
  }
};

// Each element of A picks a row of B, whose values are their indices; and the other way round.
TEST_P(EveryOrder, FragmentsLieAsInPtx) {
  for (int row = 0; row < 16; ++row) {
    for (int k = 0; k < 16; ++k) {
      Product left, right;
      left.a[row][k] = 1;
      for (int r = 0; r < 16; ++r) {
        for (int c = 0; c < 8; ++c) left.b[r][c] = static_cast<float>(1 + 8 * r + c);
        for (int c = 0; c < 16; ++c) right.a[r][c] = static_cast<float>(1 + 16 * r + c);
      }
      right.b[k][row % 8] = 1;
      left.Multiply();
      right.Multiply();
      for (int i = 0; i < 16; ++i) {
        for (int j = 0; j < 8; ++j) {
          ASSERT_EQ(left.d[i][j], i == row ? static_cast<float>(1 + 8 * k + j) : 0.0f);
          ASSERT_EQ(right.d[i][j], j == row % 8 ? static_cast<float>(1 + 16 * i + k) : 0.0f);
        }
      }
    }
  }
}

// Sums of integers below 2^24 are exact in any order.
TEST_P(EveryOrder, ProductsOfMatricesAddToTheSum) {
  Product p;
  float expected[16][8];
  for (int i = 0; i < 16; ++i) {
    for (int k = 0; k < 16; ++k) p.a[i][k] = static_cast<float>((7 * i + 5 * k) % 129 - 64);
    for (int j = 0; j < 8; ++j) {
      p.b[i][j] = static_cast<float>((3 * i + 11 * j) % 127 - 63);
      p.d[i][j] = static_cast<float>(1000 * i + j);
    }
  }
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 8; ++j) {
      expected[i][j] = p.d[i][j];
      for (int k = 0; k < 16; ++k) expected[i][j] += 3 * p.a[i][k] * p.b[k][j];
    }
  }
  p.Multiply(/*times=*/3);
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 8; ++j) ASSERT_EQ(p.d[i][j], expected[i][j]) << i << ", " << j;
  }
}

TEST(Multiply, ChopsItsSumOnce) {
  Product p;
  p.a[0][0] = p.b[0][0] = 1;
  p.a[0][1] = -0x1p-14f, p.b[1][0] = 0x1p-14f;
  p.d[1][0] = 1;  // a row of zeros: nothing is added
  p.a[2][2] = 0x1p-12f, p.b[2][0] = 0x1.8p-12f, p.d[2][0] = 1;
  p.a[3][3] = 0x1p-12f, p.b[3][0] = 0x1.8p-12f, p.d[3][0] = -1;
  p.a[4][4] = 0x1p-11f, p.b[4][0] = 0x1.8p-12f, p.a[4][5] = 0x1p-12f, p.b[5][0] = 0x1p-12f;
  p.d[4][0] = 1;
  p.Multiply();
  EXPECT_EQ(p.d[0][0], 1 - 0x1p-24f);
  EXPECT_EQ(p.d[1][0], 1);
  EXPECT_EQ(p.d[2][0], 1) << "to nearest: 1 + 2^-23";
  EXPECT_EQ(p.d[3][0], -1 + 0x1p-23f);
  EXPECT_EQ(p.d[4][0], 1 + 0x1p-22f) << "not chopped between the products";
}

}  // namespace
}  // namespace headwise::emulation
