// The number of threads changes no bit, and threads share nothing that they write.
#include "gtest/gtest.h"
#include "kernels/prepare_qkv/test_problem.h"

namespace headwise {
namespace {

template <typename T>
void CheckThreads(const Shape& shape) {
  SCOPED_TRACE(testing::Message() << shape);
  const Problem<T> problem(shape);
  ThreadPool one(1);
  const Results<T> expected = problem.RunCpu(one);
  for (const int threads : {2, 3}) {
    ThreadPool pool(threads);
    EXPECT_EQ(Difference(problem.RunCpu(pool), expected), "") << threads << " threads";
  }
}

TEST(Threads, DoNotMatter) {
  for (const std::int64_t head_dim : {64, 26}) {
    for (const std::int64_t tokens : {5, 257}) {
      CheckThreads<float>({.tokens = tokens, .group_size = 5, .head_dim = head_dim});
      CheckThreads<BFloat16>({.tokens = tokens, .group_size = 5, .head_dim = head_dim});
    }
  }
}

}  // namespace
}  // namespace headwise
