// The CUDA kernels, emulated, return the reference's bits: a pairwise design over choices, shapes,
// values and strides, each case in three thread orders (large ones in one), and corners by name. Outputs and scratch
// start poisoned, gaps between rows are out of bounds, and canaries stand around every matrix.
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
#include "kernels/prepare_qkv/test_shapes.h"

// One case in so many, in one thread order each and with at most 130 tokens: for the sanitizers,
// which take a hundred times as long.
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
// Chance of another thread at an access, in random order.
constexpr double kPreempt = 0.01;

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
  bool bf16 = false;
  bool device_positions = false;
  int os_threads = 1;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const std::vector<int>& row : PairwiseDesign(
           {std::size(kTokens), std::size(kGroupSizes), std::size(kHeadDims), std::size(kNorms),
            std::size(kRoundings), std::size(kPairings), std::size(kPackings), std::size(kScales),
            std::size(kGaps), std::size(kMisalignments), 5 /* rotary dims */, std::size(kAllValues),
            3 /* kv heads */, 2 /* bf16 */, 2 /* write v */, 2 /* device positions */,
            2 /* epsilon */, 2 /* OS threads */})) {
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
    s.rotary_dim = RotaryDim(row[10], s.head_dim);
    s.values = kAllValues[row[11]];
    s.kv_heads = row[12] + 1;
    c.bf16 = row[13] == 0;
    s.write_v = row[14] == 0;
    c.device_positions = row[15] == 0;
    s.epsilon = row[16] == 0 ? 1e-6f : 0.0f;
    c.os_threads = row[17] + 1;
    // The largest take a second each with one kv group.
    if (s.tokens * s.head_dim * s.group_size > 500'000) s.kv_heads = 1;
    s.seed = cases.size() + 1;
    cases.push_back(c);
  }
  return cases;
}

constexpr bool kEveryCase = HW_ONE_CASE_IN == 1;
// Cases of more elements run in one of the orders: all of their warps do what those of smaller ones do.
constexpr std::int64_t kManyElements = 30'000;

bool InEveryOrder(const Shape& s) {
  return kEveryCase && s.tokens * s.kv_heads * (s.group_size + 2) * s.head_dim <= kManyElements;
}

template <typename T>
void CheckStorage(const Case& c) {
  const Problem<T> problem(c.shape);
  const bool device_positions = c.device_positions && problem.op().rotary != nullptr;
  const Results<T> expected = problem.RunReference();
  for (std::size_t i = 0; i < std::size(kOrders); ++i) {
    if (!InEveryOrder(c.shape) && i != c.shape.seed % std::size(kOrders)) continue;
    const emulation::ThreadOrder order = kOrders[i];
    SCOPED_TRACE(testing::Message() << c.shape << " bf16=" << c.bf16 << " device_positions="
                                    << c.device_positions << " order=" << static_cast<int>(order));
    const auto actual =
        RunEmulated(problem,
                    {.order = order,
                     .seed = c.shape.seed,
                     .os_threads = c.os_threads,
                     .preempt = order == emulation::ThreadOrder::kRandom ? kPreempt : 0},
                    device_positions);
    ASSERT_TRUE(actual.ok()) << actual.status();
    ASSERT_EQ(Difference(*actual, expected), "");
  }
}

void Check(Case c) {
  if (!kEveryCase) c.shape.tokens = std::min<std::int64_t>(c.shape.tokens, 130);
  c.bf16 ? CheckStorage<BFloat16>(c) : CheckStorage<float>(c);
}

constexpr int kParts = 16;
class EmulatedBits : public testing::TestWithParam<int> {};

TEST_P(EmulatedBits, EqualTheReference) {
  const std::vector<Case> cases = Cases();
  EXPECT_LE(cases.size(), 600);
  int checked = 0;
  for (std::size_t i = GetParam(); i < cases.size(); i += kParts) {
    if (checked++ % HW_ONE_CASE_IN != 0) continue;
    Check(cases[i]);
    if (HasFailure()) return;
  }
}
INSTANTIATE_TEST_SUITE_P(Parts, EmulatedBits, testing::Range(0, kParts));

class EmulatedCorners : public testing::TestWithParam<bool> {  // whether in bf16
 protected:
  void CheckCorner(const Shape& shape) {
    if (checked_++ % HW_ONE_CASE_IN != 0 || HasFailure()) return;
    Check({.shape = shape, .bf16 = GetParam(), .device_positions = checked_ % 2 == 0});
  }
  int checked_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Storage, EmulatedCorners, testing::Bool(),
                         [](const auto& info) { return info.param ? "BF16" : "F32"; });

TEST_P(EmulatedCorners, EveryHeadDim) {
  for (const Shape& shape : ShapesOfEveryHeadDim()) CheckCorner(shape);
}

// Every R that the vector mapping takes, and their neighbours, which it does not.
TEST_P(EmulatedCorners, EveryRotaryDim) {
  for (const std::int64_t head_dim : {64, 128}) {
    for (const RotaryPairing pairing : {RotaryPairing::kHalf, RotaryPairing::kInterleaved}) {
      for (std::int64_t rotary = 0; rotary <= head_dim; rotary += rotary % 8 == 0 ? 2 : 6) {
        CheckCorner({.tokens = 3,
                     .group_size = 2,
                     .head_dim = head_dim,
                     .norm = kNorms[rotary / 2 % 4],
                     .rounding = kRoundings[rotary / 2 % 3],
                     .pairing = pairing,
                     .rotary_dim = rotary,
                     .values = rotary % 3 == 0 ? Values::kOneHotPerHead : Values::kGaussian,
                     .seed = static_cast<std::uint64_t>(rotary + 1)});
      }
    }
  }
}

TEST_P(EmulatedCorners, EveryChoice) {
  for (const Shape& shape : ShapesOfEveryChoice()) CheckCorner(shape);
}

// Sums of products that underflow to zeros of either sign: adding the padding of a tree, +0, shows.
TEST_P(EmulatedCorners, PaddingIsAdded) {
  for (const std::int64_t group_size : {1, 3, 5, 6}) {
    for (const std::int64_t tokens : {1, 130, 200}) {
      for (const std::int64_t head_dim : {64, 20}) {
        CheckCorner({.tokens = tokens,
                     .group_size = group_size,
                     .head_dim = head_dim,
                     .norm = HeadNorm::kGainCentered,
                     .values = Values::kSubnormal,
                     .seed = static_cast<std::uint64_t>(group_size + tokens)});
      }
    }
  }
}

// Numbers of heads that fill the last warp, leave it with one head, and need several blocks a tile.
TEST_P(EmulatedCorners, NumbersOfHeads) {
  for (const std::int64_t kv_heads : {1, 2, 5, 16}) {
    for (const std::int64_t group_size : {1, 2, 6, 31, 62, 63}) {
      for (const std::int64_t head_dim : {64, 128}) {
        if (kv_heads * group_size > 130) continue;
        CheckCorner({.tokens = 65,
                     .kv_heads = kv_heads,
                     .group_size = group_size,
                     .head_dim = head_dim,
                     .packing = kPackings[group_size % 2],
                     .seed = static_cast<std::uint64_t>(kv_heads + group_size)});
      }
    }
  }
}

}  // namespace
}  // namespace headwise
