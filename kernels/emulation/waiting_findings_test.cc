// What the referee finds at barriers and warp operations, with the words it says it in, and that a
// kernel without the mistake passes.
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/emulation/emulation.h"
#include "kernels/emulation/testing/find_line.h"
#include "kernels/emulation/testing/wrong_waiting.h"

namespace headwise::emulation {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kFile[] = "kernels/emulation/testing/wrong_waiting.cu";

std::string Here(const char* name) { return FindLine(kFile, name); }

// The message of a launch that must fail in the given order, the same by LaunchStatus and by the
// session.
std::string Message(ThreadOrder order, const std::function<absl::Status()>& launch) {
  Session session({.order = order});
  const absl::Status status = launch();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(session.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("launch failed: " + std::string(session.status().message())));
  return std::string(session.status().message());
}

class EveryOrder : public ::testing::TestWithParam<ThreadOrder> {};
INSTANTIATE_TEST_SUITE_P(Orders, EveryOrder,
                         ::testing::Values(ThreadOrder::kForward, ThreadOrder::kReverse,
                                           ThreadOrder::kRandom));

TEST_P(EveryOrder, BarrierReachedByPartOfTheBlock) {
  for (const unsigned who : {0u, 40u, 63u}) {
    EXPECT_THAT(
        Message(GetParam(), [&] { return cuda_emulated::ReturnsBeforeBarrier(32, who); }),
        AllOf(
            HasSubstr(
                "barrier reached by part of the block: others have returned without it, 1 so far"),
            HasSubstr("kernel ReturnsBeforeBarrierKernel, block (1, 2, 0), thread ("),
            HasSubstr(Here("returns before barrier"))));
  }
}

TEST_P(EveryOrder, ThreadsAtDifferentBarriers) {
  EXPECT_THAT(Message(GetParam(), [] { return cuda_emulated::DifferentBarriers(32); }),
              AllOf(HasSubstr("threads at different barriers"), HasSubstr("block (1, 2, 0)"),
                    HasSubstr(Here("one barrier")), HasSubstr(Here("the other barrier"))));
}

TEST_P(EveryOrder, MaskLacksTheCaller) {
  EXPECT_EQ(
      Message(GetParam(), [] { return cuda_emulated::MaskWithoutCaller(32); }),
      "mask 0x00000001 lacks the calling lane 5: kernel MaskWithoutCallerKernel, block (1, 2, "
      "0), thread (5, 1, 0), " +
          Here("mask without caller"));
}

TEST_P(EveryOrder, MaskNamesLanesThatTheBlockLacks) {
  // 24 x 2 threads: the second warp has 16 lanes.
  EXPECT_THAT(Message(GetParam(), [] { return cuda_emulated::MaskOfAll(24); }),
              AllOf(HasSubstr("mask 0xffffffff names lanes that the block lacks (0xffff0000)"),
                    HasSubstr("block (1, 2, 0)"), HasSubstr(Here("mask of all"))));
  Session session({.order = GetParam()});
  EXPECT_EQ(cuda_emulated::MaskOfAll(32), absl::OkStatus());
}

TEST_P(EveryOrder, MaskNamesLanesThatHaveReturned) {
  for (const unsigned who : {32u, 40u, 63u}) {
    EXPECT_THAT(Message(GetParam(), [&] { return cuda_emulated::ReturnsBeforeVote(32, who); }),
                AllOf(HasSubstr("mask 0xffffffff names lanes that have returned (0x"),
                      HasSubstr("block (1, 2, 0), thread ("), HasSubstr(", 1, 0)"),
                      HasSubstr(Here("returns before vote"))));
  }
}

TEST_P(EveryOrder, LanesOfAMaskAtDifferentOperations) {
  EXPECT_THAT(
      Message(GetParam(), [] { return cuda_emulated::DifferentOperations(32); }),
      AllOf(HasSubstr("lanes of a mask at different operations: lane "),
            HasSubstr("block (1, 2, 0)"), HasSubstr(Here("sync")), HasSubstr(Here("ballot"))));
  EXPECT_THAT(Message(GetParam(), [] { return cuda_emulated::DifferentLines(32); }),
              AllOf(HasSubstr("lanes of a mask at different operations: lane "),
                    HasSubstr(Here("lower lanes")), HasSubstr(Here("upper lanes"))));
}

TEST_P(EveryOrder, LanesWithDifferentMasks) {
  EXPECT_THAT(Message(GetParam(), [] { return cuda_emulated::DifferentMasks(32); }),
              AllOf(HasSubstr("lanes of a mask at different operations: lane "),
                    HasSubstr("with mask 0x00000003"), HasSubstr("mask 0x00000007"),
                    HasSubstr(Here("different masks"))));
}

TEST_P(EveryOrder, ShuffleFromALaneOutsideTheMask) {
  EXPECT_THAT(
      Message(GetParam(), [] { return cuda_emulated::ShuffleFromOutside(32); }),
      AllOf(HasSubstr("shuffle from lane "), HasSubstr(" outside the mask 0x0000ffff"),
            HasSubstr("block (1, 2, 0), thread (1"), HasSubstr(Here("shuffle from outside"))));
}

TEST_P(EveryOrder, ShuffleWidthIsAPowerOfTwo) {
  for (const int width : {0, -4, 12, 64}) {
    EXPECT_THAT(Message(GetParam(), [&] { return cuda_emulated::ShuffleWidth(32, width); }),
                AllOf(HasSubstr("shuffle width " + std::to_string(width) +
                                " is not a power of two up to 32"),
                      HasSubstr(Here("shuffle width"))));
  }
  Session session({.order = GetParam()});
  EXPECT_EQ(cuda_emulated::ShuffleWidth(32, 8), absl::OkStatus());
}

TEST_P(EveryOrder, Deadlock) {
  EXPECT_THAT(Message(GetParam(), [] { return cuda_emulated::BarrierAgainstShuffle(32); }),
              AllOf(HasSubstr("deadlock: 40 threads wait at a barrier, 24 for lanes of their warp"),
                    HasSubstr("block (1, 2, 0), thread (0, 0, 0)"), HasSubstr(Here("shuffle"))));
}

}  // namespace
}  // namespace headwise::emulation
