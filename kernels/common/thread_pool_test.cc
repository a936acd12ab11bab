#include "kernels/common/thread_pool.h"

#include <atomic>
#include <vector>

#include "gtest/gtest.h"

namespace headwise {
namespace {

TEST(ThreadPool, RunsEveryTaskExactlyOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.num_threads(), threads);
    for (const int tasks : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> runs(tasks);
      pool.ParallelFor(tasks, [&](std::int64_t i) { ++runs[i]; });
      for (int i = 0; i < tasks; ++i) EXPECT_EQ(runs[i], 1) << i;
    }
  }
}

TEST(ThreadPool, ManySmallJobsDoNotMixTasks) {
  ThreadPool pool(4);
  std::vector<std::int64_t> sums(64);
  for (int round = 0; round < 2000; ++round) {
    pool.ParallelFor(64, [&](std::int64_t i) { sums[i] += i * round; });
  }
  for (int i = 0; i < 64; ++i) EXPECT_EQ(sums[i], std::int64_t{i} * 1999 * 1000);
}

TEST(ThreadPoolDeathTest, NestingIsAnError) {
  EXPECT_DEATH(
      {
        ThreadPool pool(2);
        pool.ParallelFor(4, [&](std::int64_t) { pool.ParallelFor(4, [](std::int64_t) {}); });
      },
      "ParallelFor inside a task");
}

}  // namespace
}  // namespace headwise
