// What the names of cuda_kernel.h do, in every order of the threads.
#include "kernels/emulation/testing/names.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "absl/status/status.h"
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

}  // namespace
}  // namespace headwise::emulation
