// Races. Under --config=tsan each racing kernel must be reported, with the line of the kernel, and
// its correct twin must not be. In every build: a missing barrier shows in the results of some order
// of the threads.
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "kernels/emulation/emulation.h"
#include "kernels/emulation/sanitizer_hooks.h"
#include "kernels/emulation/testing/racy.h"

namespace headwise::emulation {
namespace {

constexpr ThreadOrder kOrders[] = {ThreadOrder::kForward, ThreadOrder::kReverse,
                                   ThreadOrder::kRandom};

// A kernel that writes to out[64], with scratch[64] to use.
using Kernel = std::function<absl::Status(unsigned* scratch, unsigned* out)>;

std::vector<unsigned> RunInOrder(ThreadOrder order, const Kernel& kernel) {
  std::vector<unsigned> scratch(64), out(64);
  Session session({.order = order, .preempt = order == ThreadOrder::kRandom ? 0.3 : 0});
  const absl::Status status = kernel(scratch.data(), out.data());
  EXPECT_TRUE(status.ok()) << status;
  return out;
}

// Right in every order, and TSan is silent: a report would make the test fail.
void ExpectRight(const std::vector<unsigned>& expected, const Kernel& kernel) {
  for (const ThreadOrder order : kOrders) EXPECT_EQ(RunInOrder(order, kernel), expected);
}

// With TSan, a report of a line of the kernel's, whether or not the order shows it.
void ExpectReport(const Kernel& kernel) {
  // A forked process that has fibers would not be watched: the child starts anew.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const ThreadOrder order : {ThreadOrder::kForward, ThreadOrder::kReverse}) {
    EXPECT_EXIT(
        {
          RunInOrder(order, kernel);
          std::exit(0);  // 66 if there was a report
        },
        ::testing::ExitedWithCode(66), "data race(.|\n)*racy.cu:[0-9]+");
  }
}

// Without TSan, results that differ between orders.
void ExpectRace(const Kernel& kernel) {
  if (kTsan) return ExpectReport(kernel);
  std::set<std::vector<unsigned>> results;
  for (const ThreadOrder order : kOrders) results.insert(RunInOrder(order, kernel));
  EXPECT_GT(results.size(), 1u);
}

std::vector<unsigned> Neighbours() {
  std::vector<unsigned> v(64);
  for (unsigned i = 0; i < 64; ++i) v[i] = (i + 1) % 64;
  return v;
}

std::vector<unsigned> OtherOfThePair() {
  std::vector<unsigned> v(64);
  for (unsigned i = 0; i < 64; ++i) v[i] = i ^ 1u;
  return v;
}

// A death test begins its test anew: each has one of its own.

TEST(NoRace, InSharedMemory) {
  ExpectRight(Neighbours(), [](auto*, auto* out) { return cuda_emulated::PassOn(out, true); });
}
TEST(Race, InSharedMemory) {
  ExpectRace([](auto*, auto* out) { return cuda_emulated::PassOn(out, false); });
}

TEST(NoRace, InGlobalMemory) {
  ExpectRight(Neighbours(), [](auto* scratch, auto* out) {
    return cuda_emulated::PassOnGlobal(scratch, out, true);
  });
}
TEST(Race, InGlobalMemory) {
  ExpectRace(
      [](auto* scratch, auto* out) { return cuda_emulated::PassOnGlobal(scratch, out, false); });
}

TEST(NoRace, BetweenLanes) {
  ExpectRight(OtherOfThePair(),
              [](auto*, auto* out) { return cuda_emulated::PassOnInWarp(out, 1); });
}
TEST(Race, BetweenLanes) {
  ExpectRace([](auto*, auto* out) { return cuda_emulated::PassOnInWarp(out, 0); });
}

TEST(NoRace, InTheSecondRound) {
  std::vector<unsigned> expected = Neighbours();
  for (unsigned& v : expected) v = 2 * v + 1;
  ExpectRight(expected, [](auto*, auto* out) { return cuda_emulated::TwoRounds(out, true); });
}

TEST(NoRace, BetweenBlocks) {
  std::vector<unsigned> sum(64);
  sum[0] = 50;
  ExpectRight(sum, [](auto*, auto* out) { return cuda_emulated::CountBlocks(out, 50, true); });
  std::vector<unsigned> ones(64);
  std::fill_n(ones.begin(), 50, 1u);
  ExpectRight(ones, [](auto*, auto* out) { return cuda_emulated::StorePerBlock(out, 50, true); });
}

TEST(Race, LaunchesAreOrdered) {
  std::vector<unsigned> first(64), second(64);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(cuda_emulated::StorePerBlock(first.data(), 50, true).ok());
    ASSERT_TRUE(cuda_emulated::PassOnGlobal(first.data(), second.data(), true).ok());
    first = second;  // the host reads and writes between launches
  }
  EXPECT_EQ(first, Neighbours());
}

#if defined(HW_EMULATION_TSAN)
// The results of these do not show it: blocks run one after another, lanes wait for each other.
TEST(Race, AShuffleOrdersNoMemory) {
  ExpectReport([](auto*, auto* out) { return cuda_emulated::PassOnInWarp(out, 2); });
}

TEST(Race, InTheSecondRound) {
  ExpectReport([](auto*, auto* out) { return cuda_emulated::TwoRounds(out, false); });
}

TEST(Race, BetweenTwoBlocks) {
  ExpectReport([](auto*, auto* out) { return cuda_emulated::CountBlocks(out, 2, false); });
}

TEST(Race, BetweenManyBlocks) {
  ExpectReport([](auto*, auto* out) { return cuda_emulated::CountBlocks(out, 50, false); });
}

TEST(Race, BetweenBlocksWithBarriers) {
  ExpectReport([](auto*, auto* out) { return cuda_emulated::StorePerBlock(out, 50, false); });
}
#endif

}  // namespace
}  // namespace headwise::emulation
