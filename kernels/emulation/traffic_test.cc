// Traffic of kernels that can be counted by hand, the same in every order of the threads and for any
// number of OS threads.
#include <cstdint>
#include <numeric>
#include <ostream>
#include <vector>

#include "absl/status/status.h"
#include "core/tensor/row_span.h"
#include "gtest/gtest.h"
#include "kernels/emulation/emulation.h"
#include "kernels/emulation/testing/traffic_kernels.h"

namespace headwise::emulation {

void PrintTo(const Traffic& t, std::ostream* os) {
  *os << "loads " << t.loads << ", stores " << t.stores << ", atomics " << t.atomics
      << ", requests " << t.requests << ", sectors " << t.sectors << ", partly used "
      << t.partly_used_sectors << ", widths " << t.narrowest << " to " << t.widest;
}

namespace {

class TrafficIn : public ::testing::TestWithParam<Options> {};
INSTANTIATE_TEST_SUITE_P(Orders, TrafficIn,
                         ::testing::Values(Options{.count_traffic = true},
                                           Options{.order = ThreadOrder::kReverse,
                                                   .os_threads = 2,
                                                   .count_traffic = true},
                                           Options{.order = ThreadOrder::kRandom,
                                                   .seed = 5,
                                                   .os_threads = 3,
                                                   .preempt = 0.4,
                                                   .count_traffic = true}));

struct Copied {
  Traffic x, y;
};

// n threads in blocks of 64, each copying `bytes` bytes, `stride` values apart, from address
// 32 * k + misalignment.
Copied CopyStrided(const Options& options, int n, int stride, int bytes, int misalignment = 0) {
  const std::int64_t size = static_cast<std::int64_t>(n) * stride * bytes;
  alignas(32) static std::uint8_t memory[2][1 << 16];
  std::uint8_t* const x = memory[0] + misalignment;
  std::uint8_t* const y = memory[1] + misalignment;
  std::iota(x, x + size, std::uint8_t{1});
  std::fill_n(y, size, std::uint8_t{0});
  Session session(options);
  session.AddRegion("x", x, size, Access::kRead);
  session.AddRegion("y", y, size, Access::kReadWrite);
  const absl::Status status = cuda_emulated::CopyStrided(x, y, n, stride, bytes);
  EXPECT_TRUE(status.ok()) << status;
  for (std::int64_t i = 0; i < size; ++i) {
    EXPECT_EQ(y[i], i / bytes % stride == 0 ? x[i] : 0) << i;
  }
  return {session.traffic("x"), session.traffic("y")};
}

TEST_P(TrafficIn, ContiguousFloats) {
  // Two blocks of two warps: a request of 128 bytes each is 4 full sectors.
  const Copied copied = CopyStrided(GetParam(), 128, 1, 4);
  EXPECT_EQ(copied.x,
            (Traffic{.loads = 512, .requests = 4, .sectors = 16, .narrowest = 4, .widest = 4}));
  EXPECT_EQ(copied.y,
            (Traffic{.stores = 512, .requests = 4, .sectors = 16, .narrowest = 4, .widest = 4}));
}

TEST_P(TrafficIn, EveryEighthFloat) {
  // Each lane has a sector of its own and uses 4 of its 32 bytes.
  EXPECT_EQ(CopyStrided(GetParam(), 64, 8, 4).x, (Traffic{.loads = 256,
                                                          .requests = 2,
                                                          .sectors = 64,
                                                          .partly_used_sectors = 64,
                                                          .narrowest = 4,
                                                          .widest = 4}));
}

TEST_P(TrafficIn, EveryOtherFloat) {
  EXPECT_EQ(CopyStrided(GetParam(), 64, 2, 4).x, (Traffic{.loads = 256,
                                                          .requests = 2,
                                                          .sectors = 16,
                                                          .partly_used_sectors = 16,
                                                          .narrowest = 4,
                                                          .widest = 4}));
}

TEST_P(TrafficIn, EveryWidth) {
  for (const int bytes : {1, 2, 4, 8, 16}) {
    EXPECT_EQ(CopyStrided(GetParam(), 64, 1, bytes).y, (Traffic{.stores = 64 * bytes,
                                                                .requests = 2,
                                                                .sectors = 2 * bytes,
                                                                .narrowest = bytes,
                                                                .widest = bytes}));
  }
}

TEST_P(TrafficIn, APartOfAWarp) {
  // 40 threads of 64: 8 lanes of the second warp make one sector.
  EXPECT_EQ(CopyStrided(GetParam(), 40, 1, 4).x,
            (Traffic{.loads = 160, .requests = 2, .sectors = 5, .narrowest = 4, .widest = 4}));
}

TEST_P(TrafficIn, MisalignedContiguousValues) {
  // 64 bytes from byte 4 of a sector: three sectors, of which the first and the last in part.
  EXPECT_EQ(CopyStrided(GetParam(), 16, 1, 4, /*misalignment=*/4).x,
            (Traffic{.loads = 64,
                     .requests = 1,
                     .sectors = 3,
                     .partly_used_sectors = 2,
                     .narrowest = 4,
                     .widest = 4}));
}

TEST_P(TrafficIn, MisalignedRows) {
  // Three rows of 40 floats, 41 apart: row 0 begins at byte 0 of a sector, row 1 at byte 4, row 2 at
  // byte 8. A warp needs two requests a row, of 128 and 32 bytes: 4 + 1 full sectors for row 0, and
  // 5 + 2 with 2 + 2 in part for the others. What a row shares between its requests counts in each.
  alignas(32) float x[3 * 41] = {}, y[3 * 40];
  Session session(GetParam());
  session.AddRows("x", RowSpan<const float>(x, 3, 40, 41));
  session.AddRows("y", RowSpan<float>(y, 3, 40));
  ASSERT_TRUE(cuda_emulated::CopyRows(x, y, 3, 40, 41).ok());
  EXPECT_EQ(session.traffic("x"), (Traffic{.loads = 480,
                                           .requests = 6,
                                           .sectors = 5 + 7 + 7,
                                           .partly_used_sectors = 8,
                                           .narrowest = 4,
                                           .widest = 4}));
  EXPECT_EQ(session.traffic("y"),
            (Traffic{.stores = 480, .requests = 6, .sectors = 15, .narrowest = 4, .widest = 4}));
}

TEST_P(TrafficIn, WhatLanesShareCountsOnce) {
  alignas(32) float x[64] = {};
  Session session(GetParam());
  session.AddRegion("x", x, sizeof(x), Access::kRead);
  ASSERT_TRUE(cuda_emulated::LoadTheSame(x).ok());
  EXPECT_EQ(session.traffic("x"), (Traffic{.loads = 128,
                                           .requests = 1,
                                           .sectors = 1,
                                           .partly_used_sectors = 1,
                                           .narrowest = 4,
                                           .widest = 4}));
}

TEST_P(TrafficIn, LanesThatGoRoundALoopMoreOften) {
  // In round i, lanes i to 31 load x[i].
  alignas(32) float x[64] = {};
  Session session(GetParam());
  session.AddRegion("x", x, sizeof(x), Access::kRead);
  ASSERT_TRUE(cuda_emulated::LoadTriangle(x).ok());
  EXPECT_EQ(session.traffic("x"), (Traffic{.loads = 4 * 32 * 33 / 2,
                                           .requests = 32,
                                           .sectors = 32,
                                           .partly_used_sectors = 32,
                                           .narrowest = 4,
                                           .widest = 4}));
}

TEST_P(TrafficIn, TwoAccessesOfOneLineAreTwoRequests) {
  alignas(32) float x[64] = {};
  Session session(GetParam());
  session.AddRegion("x", x, sizeof(x), Access::kRead);
  ASSERT_TRUE(cuda_emulated::LoadPair(x).ok());
  EXPECT_EQ(session.traffic("x"),
            (Traffic{.loads = 256, .requests = 2, .sectors = 8, .narrowest = 4, .widest = 4}));
}

TEST_P(TrafficIn, Atomics) {
  alignas(32) unsigned counters[8] = {};
  Session session(GetParam());
  session.AddRegion("counters", counters, sizeof(counters), Access::kReadWrite);
  ASSERT_TRUE(cuda_emulated::AddToEight(counters).ok());
  EXPECT_EQ(counters[7], 8u);
  EXPECT_EQ(session.traffic("counters"),
            (Traffic{.atomics = 256, .requests = 2, .sectors = 2, .narrowest = 4, .widest = 4}));
}

TEST_P(TrafficIn, LaunchesAddUpAndMixWidths) {
  alignas(32) static std::uint8_t x[1024], y[1024];
  Session session(GetParam());
  session.AddRegion("x", x, sizeof(x), Access::kRead);
  session.AddRegion("y", y, sizeof(y), Access::kReadWrite);
  ASSERT_TRUE(cuda_emulated::CopyStrided(x, y, 64, 1, 16).ok());
  ASSERT_TRUE(cuda_emulated::CopyStrided(x, y, 64, 1, 2).ok());
  EXPECT_EQ(
      session.traffic("x"),
      (Traffic{
          .loads = 1024 + 128, .requests = 4, .sectors = 32 + 4, .narrowest = 2, .widest = 16}));
}

TEST(TrafficOff, IsZero) {
  const Copied copied = CopyStrided({}, 128, 1, 4);
  EXPECT_EQ(copied.x, Traffic{});
  EXPECT_EQ(copied.y, Traffic{});
}

}  // namespace
}  // namespace headwise::emulation
