// The CPU path and the unfused kernels return the reference's bits, forward and backward, in fp32
// and in bf16 storage, for every shape and every kind of value.
//
// Break it to believe it: swap two additions of the tree in cpu_four_heads.h, cpu_any_head.h or
// unfused.cc, and SameBits fails in fp32.
#include <cstdint>
#include <optional>

#include "gtest/gtest.h"
#include "kernels/prepare_qkv/test_problem.h"

namespace headwise {
namespace {

constexpr HeadNorm kNorms[] = {HeadNorm::kNone, HeadNorm::kScaleless, HeadNorm::kWeighted,
                               HeadNorm::kGainCentered};
constexpr Rounding kRoundings[] = {Rounding::kAfterWeight, Rounding::kBeforeWeight,
                                   Rounding::kOnlyAtEnd};
constexpr std::optional<RotaryPairing> kPairings[] = {RotaryPairing::kHalf,
                                                      RotaryPairing::kInterleaved, std::nullopt};
constexpr Packing kPackings[] = {Packing::kInterleavedPerKvGroup, Packing::kSectioned};

template <typename T>
class SameBits : public testing::Test {
 protected:
  SameBits() : pools_{ThreadPool(1), ThreadPool(2), ThreadPool(3)} {}

  // Thread counts take turns; threads_test compares them.
  void Check(const Shape& shape) {
    SCOPED_TRACE(testing::Message() << shape);
    ThreadPool& pool = pools_[checked_++ % 3];
    const Problem<T> problem(shape);
    const Results<T> expected = problem.RunReference();
    EXPECT_EQ(Difference(problem.RunCpu(pool), expected), "") << "cpu";
    EXPECT_EQ(Difference(problem.RunUnfused(pool), expected), "") << "unfused";
  }

  ThreadPool pools_[3];
  int checked_ = 0;
};

using StorageTypes = testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(SameBits, StorageTypes);

// The choices of an op, all combinations, on both CPU kernels.
TYPED_TEST(SameBits, EveryChoice) {
  for (const std::int64_t head_dim : {64, 128, 22}) {
    for (const HeadNorm norm : kNorms) {
      for (const Rounding rounding : kRoundings) {
        for (const auto& pairing : kPairings) {
          for (const Packing packing : kPackings) {
            for (const float scale : {1.0f, 0.3f}) {
              this->Check({.head_dim = head_dim,
                           .packing = packing,
                           .norm = norm,
                           .rounding = rounding,
                           .query_scale = scale,
                           .pairing = pairing});
            }
          }
        }
      }
    }
  }
}

// The values, with all arithmetic choices.
TYPED_TEST(SameBits, EveryKindOfValue) {
  std::uint64_t seed = 0;
  for (const Values values : kAllValues) {
    for (const std::int64_t head_dim : {64, 128, 20}) {
      for (const HeadNorm norm : kNorms) {
        for (const Rounding rounding : kRoundings) {
          for (const auto& pairing : kPairings) {
            this->Check({.tokens = 2,
                         .head_dim = head_dim,
                         .norm = norm,
                         .rounding = rounding,
                         .query_scale = seed % 2 == 0 ? 1.0f : 3.7f,
                         .epsilon = seed % 5 == 0 ? 0.0f : 1e-6f,
                         .pairing = pairing,
                         .values = values,
                         .seed = ++seed});
          }
        }
      }
    }
  }
}

// Every even head_dim; the other choices take turns.
TYPED_TEST(SameBits, EveryHeadDim) {
  for (std::int64_t head_dim = 2; head_dim <= kMaxHeadDim; head_dim += 2) {
    const std::int64_t i = head_dim / 2;
    this->Check({.tokens = 1 + i % 3,
                 .kv_heads = 1,
                 .group_size = 1 + i % 2,
                 .head_dim = head_dim,
                 .packing = kPackings[i / 3 % 2],
                 .norm = kNorms[i / 2 % 4],
                 .rounding = kRoundings[i % 3],
                 .query_scale = i % 5 == 0 ? 0.125f : 1.0f,
                 .pairing = kPairings[i / 3 % 3],
                 .seed = static_cast<std::uint64_t>(i)});
  }
}

// Token counts around the tiles, against numbers of heads that leave fours incomplete.
TYPED_TEST(SameBits, EveryTokenCountAndGroupSize) {
  std::uint64_t seed = 0;
  for (const std::int64_t tokens : {0, 1, 2, 63, 64, 65, 255, 256, 257}) {
    for (const std::int64_t group_size : {1, 3, 5, 6, 7, 8, 12}) {
      const std::uint64_t i = seed++;
      this->Check({.tokens = tokens,
                   .kv_heads = 1 + static_cast<std::int64_t>(i % 3),
                   .group_size = group_size,
                   .head_dim = i % 4 == 0   ? 10
                               : i % 4 == 1 ? 128
                                            : 64,
                   .packing = kPackings[i % 2],
                   .norm = i % 5 == 0 ? HeadNorm::kGainCentered : HeadNorm::kWeighted,
                   .rounding = kRoundings[i % 3],
                   .pairing = kPairings[i % 2],
                   .seed = i});
    }
  }
}

TYPED_TEST(SameBits, PartialRotary) {
  for (const std::int64_t head_dim : {20, 64, 128}) {
    for (std::int64_t rotary_dim = 0; rotary_dim <= head_dim; rotary_dim += head_dim / 10 / 2 * 2) {
      for (const auto& pairing : {kPairings[0], kPairings[1]}) {
        this->Check({.head_dim = head_dim, .pairing = pairing, .rotary_dim = rotary_dim});
      }
    }
    for (const std::int64_t rotary_dim : {32, 64, 96}) {  // whole vectors
      if (rotary_dim > head_dim) continue;
      for (const HeadNorm norm : kNorms) {
        for (const auto& pairing : {kPairings[0], kPairings[1]}) {
          this->Check({.head_dim = head_dim,
                       .norm = norm,
                       .query_scale = 0.7f,
                       .pairing = pairing,
                       .rotary_dim = rotary_dim});
        }
      }
    }
  }
}

TYPED_TEST(SameBits, StridedRowsAnyAlignmentAndNoV) {
  for (const std::int64_t row_gap : {0, 1, 8, 32, 61}) {
    for (const std::int64_t misalign : {0, 1, 2, 3, 8}) {
      for (const std::int64_t head_dim : {64, 128, 6}) {
        this->Check({.tokens = 67,
                     .head_dim = head_dim,
                     .row_gap = row_gap,
                     .misalign = misalign,
                     .write_v = (row_gap + misalign) % 3 != 0});
      }
    }
  }
}

// From 16 MB on the CPU path stores around the caches, if heads start on multiples of 64 bytes.
TYPED_TEST(SameBits, StreamedStores) {
  for (const std::int64_t head_dim : {64, 128}) {
    Shape shape{
        .tokens = 16 * 1024 * 1024 / (6 * head_dim * static_cast<int>(sizeof(TypeParam))) + 77,
        .kv_heads = 1,
        .group_size = 4,
        .head_dim = head_dim,
        .values = Values::kIntegers};
    const Results<TypeParam> streamed = Problem<TypeParam>(shape).RunCpu(this->pools_[1]);
    shape.misalign = 1;
    const Results<TypeParam> stored = Problem<TypeParam>(shape).RunCpu(this->pools_[1]);
    EXPECT_EQ(Difference(streamed, stored), "") << shape;
  }
}

}  // namespace
}  // namespace headwise
