#include "kernels/common/testing/gpu_timing.h"

#include <chrono>
#include <thread>

#include "gtest/gtest.h"

namespace headwise {
namespace {

TEST(Median, IsTheMiddleOrTheUpperOfTheMiddleTwo) {
  EXPECT_EQ(Median({3}), 3);
  EXPECT_EQ(Median({9, 1, 2}), 2);
  EXPECT_EQ(Median({4, 1, 3, 2}), 3);
}

// On the host's stand-in for a GPU work happens when its graph is launched.
TEST(TimeInTurns, RepeatsShortWorkUsesEverySetAndTellsSlowFromFast) {
  std::vector<int> used(3);
  int slow_runs = 0;
  const auto sleep = [](int microseconds) {
    std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
  };
  const std::vector<GpuContender> contenders = {{"fast",
                                                 [&](int set, CUstream_st*) {
                                                   ++used[set];
                                                   sleep(100);
                                                   return absl::OkStatus();
                                                 }},
                                                {"slow", [&](int, CUstream_st*) {
                                                   ++slow_runs;
                                                   sleep(2000);
                                                   return absl::OkStatus();
                                                 }}};
  const CudaStream stream = *CudaStream::Create();
  const auto times =
      TimeInTurns(contenders, {.sets = 3, .seconds = 0, .least = 5, .graph_seconds = 4e-3}, stream);
  ASSERT_TRUE(times.ok()) << times.status();
  ASSERT_EQ(times->size(), 2);
  const GpuTime &fast = times->at(0), &slow = times->at(1);
  EXPECT_EQ(fast.name, "fast");
  EXPECT_EQ(fast.replays, 5);
  EXPECT_GT(fast.repetitions, 3);
  EXPECT_EQ(fast.repetitions % 3, 0);
  EXPECT_EQ(slow.repetitions, 3);
  EXPECT_GE(fast.best, 100e-6);
  EXPECT_GE(fast.median, fast.best);
  EXPECT_GE(slow.best, 2000e-6);
  EXPECT_GT(slow.median, fast.median);
  EXPECT_EQ(used[0], used[1]);
  EXPECT_EQ(used[0], used[2]);
  EXPECT_EQ(slow_runs, 2 * 2 * 3 + 5 * 2 * 3);  // two warm-ups, five turns, each after one untimed
}

TEST(TimeInTurns, ReturnsAContendersError) {
  const CudaStream stream = *CudaStream::Create();
  EXPECT_EQ(
      TimeInTurns({{"no", [](int, CUstream_st*) { return absl::InternalError("no"); }}}, {}, stream)
          .status(),
      absl::InternalError("no"));
}

}  // namespace
}  // namespace headwise
