// Launches and sessions: what is recorded, what is refused, what a finding does to later launches,
// and that OS threads change nothing.
#include <xmmintrin.h>

#include <cstdint>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/emulation/emulation.h"
#include "kernels/emulation/host.h"
#include "kernels/emulation/sanitizer_hooks.h"
#include "kernels/emulation/testing/launches.h"

namespace headwise::emulation {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

TEST(Session, RecordsLaunches) {
  Session session;
  unsigned counts[6] = {};
  ASSERT_TRUE(cuda_emulated::Count(counts, {2, 3, 1}, {8, 4, 2}, 100, -1).ok());
  ASSERT_TRUE(cuda_emulated::CountTemplate(counts).ok());
  ASSERT_EQ(session.launches().size(), 2u);
  const Launch& first = session.launches()[0];
  EXPECT_EQ(first.kernel, "CountKernel");
  EXPECT_EQ(first.grid, Dim3(2, 3));
  EXPECT_EQ(first.block, Dim3(8, 4, 2));
  EXPECT_EQ(first.dynamic_shared_bytes, 100);
  EXPECT_EQ(first.static_shared_bytes, 48);  // 10 floats, rounded up to 16 bytes
  EXPECT_EQ(session.launches()[1].kernel, "CountTemplateKernel<3, int>");
  EXPECT_EQ(counts[5], 64u);
}

TEST(Session, AFindingEndsItsLaunchAndStopsTheNext) {
  unsigned counts[4] = {};
  Session session;
  const absl::Status status = cuda_emulated::Count(counts, 4, 32, 0, /*wrong_block=*/2);
  EXPECT_THAT(Message(status), StartsWith("Count: launch failed: barrier reached by part"));
  EXPECT_EQ(counts[1], 32u);
  EXPECT_EQ(counts[3], 0u) << "a block ran after the finding";
  const absl::Status next = cuda_emulated::Count(counts, 4, 32, 0, -1);
  EXPECT_EQ(Message(next), Message(status));
  EXPECT_EQ(counts[3], 0u) << "a launch ran after the finding";
  EXPECT_EQ(session.launches().size(), 1u);
  EXPECT_THAT(Message(session.status()), StartsWith("barrier reached by part"));
}

TEST(Session, EndsWithItsScope) {
  unsigned counts[4] = {};
  {
    Session outer;
    EXPECT_FALSE(cuda_emulated::Count(counts, 4, 32, 0, 2).ok());
    {
      Session inner;
      EXPECT_TRUE(cuda_emulated::Count(counts, 4, 32, 0, -1).ok());
      EXPECT_EQ(inner.launches().size(), 1u);
    }
    EXPECT_FALSE(cuda_emulated::Count(counts, 4, 32, 0, -1).ok());
    // Another thread has no session.
    std::thread([&] { EXPECT_TRUE(cuda_emulated::Count(counts, 4, 32, 0, -1).ok()); }).join();
  }
  EXPECT_TRUE(cuda_emulated::Count(counts, 4, 32, 0, -1).ok());
}

TEST(NoSession, TheStatusIsToldOnce) {
  unsigned counts[4] = {};
  EXPECT_FALSE(cuda_emulated::Count(counts, 4, 32, 0, 2).ok());
  EXPECT_TRUE(cuda_emulated::Count(counts, 4, 32, 0, -1).ok());
}

TEST(Launch, ShapesThatNoGpuTakes) {
  unsigned counts[4] = {};
  const auto message = [&](const Dim3& grid, const Dim3& block, int bytes) {
    return Message(cuda_emulated::Count(counts, grid, block, bytes, -1));
  };
  EXPECT_THAT(
      message(1, 1025, 0),
      StartsWith("Count: launch failed: block (1025, 1, 1): a block has 1 to 1024 threads"));
  EXPECT_THAT(message(1, {32, 33, 1}, 0), HasSubstr("block (32, 33, 1)"));
  EXPECT_THAT(message(1, {65536, 65536, 1}, 0), HasSubstr("block (65536, 65536, 1)"));
  EXPECT_THAT(message(1, {1, 1, 65}, 0), HasSubstr("at most 64 in z"));
  EXPECT_THAT(message(1, 0, 0), HasSubstr("block (0, 1, 1)"));
  EXPECT_THAT(message(0, 32, 0), HasSubstr("grid (0, 1, 1): a grid has at least 1 block"));
  EXPECT_THAT(message({1, 65536, 1}, 32, 0), HasSubstr("65535 in y and in z"));
  EXPECT_THAT(message({1, 1, 65536}, 32, 0), HasSubstr("65535 in y and in z"));
  EXPECT_THAT(message({0x80000000u, 1, 1}, 32, 0), HasSubstr("at most 2147483647 in x"));
  EXPECT_THAT(message(1, 32, (227 << 10) + 1), HasSubstr(": kernel CountKernel"));
  EXPECT_EQ(message(1, 1024, 0), "");
}

TEST(Launch, RefusesAFloatEnvironmentWithOtherBits) {
  unsigned counts[4] = {};
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8000u);  // flush subnormals to zero
  const absl::Status status = cuda_emulated::Count(counts, 4, 32, 0, -1);
  _mm_setcsr(before);
  EXPECT_THAT(Message(status), HasSubstr("kernel CountKernel"));
  EXPECT_EQ(counts[0], 0u);
}

TEST(Launch, OsThreadsChangeNothing) {
  for (int os_threads = 1; os_threads <= 5; ++os_threads) {
    for (const ThreadOrder order :
         {ThreadOrder::kForward, ThreadOrder::kReverse, ThreadOrder::kRandom}) {
      std::vector<unsigned> counts(1000);
      Session session({.order = order, .os_threads = os_threads});
      ASSERT_TRUE(cuda_emulated::Count(counts.data(), 1000, 32, 0, -1).ok());
      EXPECT_EQ(counts, std::vector<unsigned>(1000, 32u));
    }
  }
}

TEST(Launch, OsThreadsReportTheFirstFinding) {
  // Every block from 100 on is wrong, and OS threads find several before they hear of each other.
  const int repeats = kTsan ? 4 : 200;  // under TSan there is one
  for (int repeat = 0; repeat < repeats; ++repeat) {
    std::vector<unsigned> counts(1000);
    Session session({.os_threads = 1 + repeat % 4});
    const absl::Status status = cuda_emulated::CountWrongFrom(counts.data(), 1000, 100);
    ASSERT_THAT(Message(status), HasSubstr("block (100, 0, 0), thread (0, 0, 0)"));
    for (int i = 0; i < 100; ++i) ASSERT_EQ(counts[i], 32u) << i;
  }
}

TEST(Launch, BlocksComeInTheOrderAskedFor) {
  constexpr int kBlocks = 64;
  const auto run = [](ThreadOrder order, std::uint64_t seed) {
    std::vector<unsigned> numbers(kBlocks);
    unsigned next = 0;
    Session session({.order = order, .seed = seed});
    EXPECT_TRUE(cuda_emulated::NoteBlockOrder(numbers.data(), &next, kBlocks).ok());
    return numbers;
  };
  std::vector<unsigned> ascending(kBlocks);
  std::iota(ascending.begin(), ascending.end(), 0u);
  const std::vector<unsigned> descending(ascending.rbegin(), ascending.rend());
  EXPECT_EQ(run(ThreadOrder::kForward, 0), ascending);
  EXPECT_EQ(run(ThreadOrder::kReverse, 0), descending);
  const std::vector<unsigned> random = run(ThreadOrder::kRandom, 1);
  EXPECT_THAT(random, ::testing::UnorderedElementsAreArray(ascending));
  EXPECT_NE(random, ascending);
  EXPECT_NE(random, run(ThreadOrder::kRandom, 2));
}

TEST(Launch, ThreadsComeInTheOrderAskedFor) {
  const auto run = [](const Options& options) {
    std::vector<unsigned> first(64), second(64);
    unsigned next = 0;
    Session session(options);
    EXPECT_TRUE(cuda_emulated::TakeTickets(first.data(), second.data(), &next).ok());
    return std::pair(first, second);
  };
  for (unsigned i = 0; i < 64; ++i) {
    EXPECT_EQ(run({}).first[i], 2 * i);
    EXPECT_EQ(run({.order = ThreadOrder::kReverse}).first[i], 2 * (63 - i));
  }
  // Threads that are not preempted take both tickets at once.
  int interrupted = 0;
  for (const double preempt : {0.0, 0.5}) {
    const auto [first, second] = run({.order = ThreadOrder::kRandom, .preempt = preempt});
    interrupted = 0;
    for (int i = 0; i < 64; ++i) interrupted += second[i] == first[i] + 1 ? 0 : 1;
    if (preempt == 0) {
      EXPECT_EQ(interrupted, 0);
    }
  }
  EXPECT_GT(interrupted, 10);
}

TEST(Launch, RandomOrderIsRepeatable) {
  const auto run = [](std::uint64_t seed, int os_threads) {
    std::vector<unsigned> order(2 * 64);
    Session session({.order = ThreadOrder::kRandom, .seed = seed, .os_threads = os_threads});
    EXPECT_TRUE(cuda_emulated::NoteOrder(order.data()).ok());
    return order;
  };
  const std::vector<unsigned> one = run(1, 1);
  EXPECT_EQ(one, run(1, 1));
  EXPECT_EQ(one, run(1, 2));
  EXPECT_NE(one, run(2, 1));
}

TEST(Launch, ArgumentsAreCopiedForEachThread) {
  std::vector<int> out(64);
  ASSERT_TRUE(cuda_emulated::ChangeArguments(out.data()).ok());
  EXPECT_EQ(out, std::vector<int>(64, 42));
}

TEST(Host, CopiesAndFillsWithinRegions) {
  using namespace device;  // NOLINT(google-build-using-namespace)
  int host[4] = {1, 2, 3, 4}, input[4] = {}, output[4] = {};
  Session session;
  session.AddRegion("input", input, sizeof(input), Access::kRead);
  session.AddRegion("output", output, sizeof(output), Access::kReadWrite);
  EXPECT_EQ(cudaMemcpyAsync(output, host, sizeof(host), cudaMemcpyHostToDevice, nullptr),
            cudaSuccess);
  EXPECT_EQ(output[3], 4);
  EXPECT_EQ(cudaMemcpyAsync(host, input, sizeof(host), cudaMemcpyDeviceToHost, nullptr),
            cudaSuccess);
  EXPECT_EQ(host[3], 0);
  EXPECT_EQ(cudaMemsetAsync(output, 0xff, sizeof(output), nullptr), cudaSuccess);
  EXPECT_EQ(output[3], -1);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cudaMemsetAsync(output, 0, sizeof(output) + 1, nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(output[3], -1);
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
  EXPECT_STREQ(cudaGetErrorString(cudaErrorLaunchFailure), "unspecified launch failure");
  EXPECT_THAT(Message(session.status()),
              StartsWith("cudaMemsetAsync: store out of bounds: 17 bytes at byte 0 of output"));
}

TEST(Host, CopyIntoAReadOnlyRegion) {
  using namespace device;  // NOLINT(google-build-using-namespace)
  int input[4] = {}, output[4] = {};
  Session session;
  session.AddRegion("input", input, sizeof(input), Access::kRead);
  session.AddRegion("output", output, sizeof(output), Access::kReadWrite);
  EXPECT_EQ(cudaMemcpyAsync(input, output, sizeof(input), cudaMemcpyDeviceToDevice, nullptr),
            cudaErrorInvalidValue);
  EXPECT_THAT(
      Message(session.status()),
      StartsWith("cudaMemcpyAsync: write to read-only region: 16 bytes at byte 0 of input"));
}

TEST(SessionDeathTest, ProgrammersErrors) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const int x = 0;
  EXPECT_DEATH(Session({.preempt = 0.5}), "only ThreadOrder::kRandom preempts");
  EXPECT_DEATH(Session({.os_threads = 0}), "os_threads");
  EXPECT_DEATH(
      {
        Session session;
        session.AddRegion("x", &x, 4, Access::kRead);
        session.AddRegion("x", &x, 4, Access::kRead);
      },
      "region x exists");
  EXPECT_DEATH(Session().traffic("y"), "no region is called y");
}

}  // namespace
}  // namespace headwise::emulation
