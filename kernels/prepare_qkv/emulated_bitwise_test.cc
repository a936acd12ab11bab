// The CUDA kernels, emulated, return the reference's bits: a pairwise design over choices, shapes,
// values, strides and thread orders. Outputs and scratch start poisoned, gaps between rows are out
// of bounds, and canaries stand around every matrix.
//
// Break it to believe it: swap the operands of a subtraction in cuda/maths.cuh, or leave out a
// __syncwarp in cuda/warp_head.cuh.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/common/testing/pairwise.h"
#include "kernels/prepare_qkv/emulated_problem.h"

#ifndef HW_ONE_CASE_IN
#define HW_ONE_CASE_IN 1
#endif

namespace headwise {
namespace {

constexpr std::int64_t kTokens[] = {0, 1, 2, 63, 64, 65, 127, 255, 256, 257, 1000};
constexpr std::int64_t kGroupSizes[] = {1, 3, 5, 6, 7, 8, 12};
// Half of them take the vector mapping, where alignment and R allow.
constexpr std::int64_t kHeadDims[] = {64, 128, 64,  128, 64,  128, 64,  128, 2,   4,
                                      6,  8,   10,  14,  16,  18,  30,  34,  62,  66,
                                      80, 96,  126, 130, 192, 254, 256, 258, 384, 512};
constexpr HeadNorm kNorms[] = {HeadNorm::kNone, HeadNorm::kScaleless, HeadNorm::kWeighted,
                               HeadNorm::kGainCentered};
constexpr Rounding kRoundings[] = {Rounding::kAfterWeight, Rounding::kBeforeWeight,
                                   Rounding::kOnlyAtEnd};
constexpr std::optional<RotaryPairing> kPairings[] = {RotaryPairing::kHalf,
                                                      RotaryPairing::kInterleaved, std::nullopt};
constexpr Packing kPackings[] = {Packing::kInterleavedPerKvGroup, Packing::kSectioned};
constexpr float kScales[] = {1.0f, 0.125f, 0.3f};
constexpr std::int64_t kGaps[] = {0, 8, 1, 24};
constexpr std::int64_t kMisalignments[] = {0, 8, 1, 2};
constexpr emulation::ThreadOrder kOrders[] = {emulation::ThreadOrder::kForward,
                                              emulation::ThreadOrder::kReverse,
                                              emulation::ThreadOrder::kRandom};

// All of the head, none, the least, about half in a multiple of 16, and an awkward rest.
std::int64_t RotaryDim(int level, std::int64_t head_dim) {
  switch (level) {
    case 0:
      return head_dim;
    case 1:
      return 0;
    case 2:
      return 2;
    case 3:
      return std::min(head_dim, (head_dim / 2 + 15) / 16 * 16);
    default:
      return std::max<std::int64_t>(2, head_dim - 6);
  }
}

struct Case {
  Shape shape;
  emulation::Options options;
  bool bf16;
  bool device_positions;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const std::vector<int>& row : PairwiseDesign(
           {std::size(kTokens), std::size(kGroupSizes), std::size(kHeadDims), std::size(kNorms),
            std::size(kRoundings), std::size(kPairings), std::size(kPackings), std::size(kScales),
            std::size(kGaps), std::size(kMisalignments), std::size(kOrders), 5 /* rotary dims */,
            std::size(kAllValues), 3 /* kv heads */, 2 /* bf16 */, 2 /* write v */,
            2 /* device positions */, 2 /* epsilon */, 2 /* OS threads */})) {
    Case c;
    Shape& s = c.shape;
    s.tokens = kTokens[row[0]];
    s.group_size = kGroupSizes[row[1]];
    s.head_dim = kHeadDims[row[2]];
    s.norm = kNorms[row[3]];
    s.rounding = kRoundings[row[4]];
    s.pairing = kPairings[row[5]];
    s.packing = kPackings[row[6]];
    s.query_scale = kScales[row[7]];
    s.row_gap = kGaps[row[8]];
    s.misalign = kMisalignments[row[9]];
    c.options.order = kOrders[row[10]];
    s.rotary_dim = RotaryDim(row[11], s.head_dim);
    s.values = kAllValues[row[12]];
    s.kv_heads = row[13] + 1;
    c.bf16 = row[14] == 0;
    s.write_v = row[15] == 0;
    c.device_positions = row[16] == 0;
    s.epsilon = row[17] == 0 ? 1e-6f : 0.0f;
    c.options.os_threads = row[18] + 1;
    // The largest take a second each with one kv group.
    if (s.tokens * s.head_dim * s.group_size > 500'000) s.kv_heads = 1;
    s.seed = cases.size() + 1;
    c.options.seed = s.seed;
    if (c.options.order == emulation::ThreadOrder::kRandom) c.options.preempt = 0.01;
    cases.push_back(c);
  }
  return cases;
}

template <typename T>
void Check(const Case& c) {
  SCOPED_TRACE(testing::Message() << c.shape << " bf16=" << c.bf16
                                  << " order=" << static_cast<int>(c.options.order)
                                  << " device_positions=" << c.device_positions);
  const Problem<T> problem(c.shape);
  const bool device_positions = c.device_positions && problem.op().rotary != nullptr;
  const auto actual = RunEmulated(problem, c.options, device_positions);
  ASSERT_TRUE(actual.ok()) << actual.status();
  EXPECT_EQ(Difference(*actual, problem.RunReference()), "");
}

constexpr int kParts = 16;
class EmulatedBits : public testing::TestWithParam<int> {};

TEST_P(EmulatedBits, EqualTheReference) {
  const std::vector<Case> cases = Cases();
  EXPECT_LE(cases.size(), 600);
  int checked = 0;
  for (std::size_t i = GetParam(); i < cases.size(); i += kParts) {
    if (checked++ % HW_ONE_CASE_IN != 0) continue;
    cases[i].bf16 ? Check<BFloat16>(cases[i]) : Check<float>(cases[i]);
    if (HasFailure()) return;
  }
}
INSTANTIATE_TEST_SUITE_P(Parts, EmulatedBits, testing::Range(0, kParts));

}  // namespace
}  // namespace headwise
