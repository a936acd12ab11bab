// The same heads packed differently get the same update, bit for bit, at every granularity; so do
// fused and separately stored projections.
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/heads/head_blocks.h"
#include "core/heads/head_pattern.h"
#include "core/heads/packed_qkv.h"
#include "gtest/gtest.h"
#include "kernels/muon_step/parity.h"

namespace headwise {
namespace {

constexpr std::int64_t kHeads = 6, kGroups = 3, kDim = 16, kIn = 100;
constexpr std::int64_t kGroupSize = 3;  // of kHeadGroup

// Rows like a gradient's: a few common directions, very unequal heads, and noise. A row depends on
// which head and element of it this is, not on where it is stored.
void FillRow(HeadRole role, std::int64_t head, std::int64_t element, float* g, float* m, float* w) {
  std::mt19937_64 random(static_cast<std::uint64_t>(role) * 10000 +
                         static_cast<std::uint64_t>(head * 100 + element));
  const auto uniform = [&] {
    return std::ldexp(static_cast<float>(static_cast<std::int32_t>(random() >> 32)), -31);
  };
  const float size = std::ldexp(1.0f, -static_cast<int>((head * 5 + static_cast<int>(role)) % 7));
  const float weight[3] = {uniform(), uniform(), uniform()};
  for (std::int64_t c = 0; c < kIn; ++c) {
    float direction = 0.01f * uniform();
    for (int k = 0; k < 3; ++k) {
      direction +=
          weight[k] * std::ldexp(static_cast<float>((c * (2 * k + 3)) % 17 - 8), -3 - 2 * k);
    }
    g[c] = size * direction;
    m[c] = 0.5f * size * direction + 0.001f * uniform();
    w[c] = uniform();
  }
}

// Fills every head of a matrix whose heads lie as `heads` says, and cuts it into `blocks`.
TestWeight<float> Packed(const HeadBlocks& heads, const HeadBlocks& blocks) {
  TestWeight<float> w(blocks, kIn, 0);
  for (const HeadBlock& head : heads.blocks()) {
    for (std::int64_t e = 0; e < kDim; ++e) {
      const std::int64_t row = head.ranges[0].begin + e;
      FillRow(head.role, head.head, e, &w.gradient.at(row, 0), &w.momentum.at(row, 0),
              &w.weight.at(row, 0));
    }
  }
  return w;
}

TestWeight<float> Packed(const HeadBlocks& heads, Granularity granularity) {
  return Packed(heads, *heads.Coarsen(granularity, kGroupSize));
}

void Step(std::vector<TestWeight<float>>& weights) {
  ThreadPool pool(2);
  ASSERT_TRUE(MuonStep<float>({.weight_decay = 0.1}, ViewsOf(weights), pool).ok());
}

// The rows of one head, in a weight whose heads lie as `heads` says.
RowSpan<const float> RowsOf(const TestWeight<float>& w, const HeadBlocks& heads, HeadRole role,
                            std::int64_t head) {
  for (const HeadBlock& block : heads.blocks()) {
    if (block.role == role && block.head == head) {
      return w.weight.view().Rows(block.ranges[0].begin, kDim);
    }
  }
  return {};
}

HeadBlocks Sectioned() {
  return HeadBlocks::FromPacked(*PackedQkv::Sectioned({kHeads, kGroups, kDim}));
}
HeadBlocks Interleaved() {
  return HeadBlocks::FromPacked(*PackedQkv::Interleaved({kHeads, kGroups, kDim}));
}
// Values before keys before queries here and there, heads out of order.
HeadBlocks Scrambled() {
  std::vector<HeadBlock> heads = Sectioned().blocks();
  const std::int64_t slots = static_cast<std::int64_t>(heads.size());
  for (std::int64_t i = 0; i < slots; ++i) heads[i].ranges[0].begin = (i * 7 + 5) % slots * kDim;
  return *HeadBlocks::Create(slots * kDim, heads);
}

class Packings : public testing::TestWithParam<Granularity> {};

TEST_P(Packings, GetTheSameUpdate) {
  const HeadBlocks sectioned = Sectioned();
  std::vector<TestWeight<float>> expected = {Packed(sectioned, GetParam())};
  const std::vector<TestWeight<float>> before = expected;
  Step(expected);
  for (const HeadBlocks& packing : {Interleaved(), Scrambled()}) {
    std::vector<TestWeight<float>> actual = {Packed(packing, GetParam())};
    Step(actual);
    for (const HeadBlock& head : sectioned.blocks()) {
      const std::string what = absl::StrCat(Name(head.role), " ", head.head);
      const auto rows = RowsOf(expected[0], sectioned, head.role, head.head);
      ExpectSameBits(RowsOf(actual[0], packing, head.role, head.head), rows, what);
      EXPECT_NE(rows.row(0)[0], RowsOf(before[0], sectioned, head.role, head.head).row(0)[0])
          << what;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Granularities, Packings,
                         testing::Values(Granularity::kProjection, Granularity::kKvGroup,
                                         Granularity::kHead, Granularity::kHeadGroup),
                         [](const auto& info) { return std::string(Name(info.param)); });

// Packings that only multi-head attention has: four blocks of q, v, k; per head q, k, v.
class MultiHeadPackings : public testing::TestWithParam<Granularity> {};

TEST_P(MultiHeadPackings, GetTheSameUpdate) {
  constexpr std::int64_t kMany = 12;
  const HeadBlocks sectioned = HeadPattern::Sectioned({kMany, kMany, kDim})->Blocks();
  std::vector<TestWeight<float>> expected = {Packed(sectioned, GetParam())};
  Step(expected);
  for (const HeadPattern& pattern :
       {*HeadPattern::FourBlock(kMany, kDim), *HeadPattern::PerHeadQkv(kMany, kDim)}) {
    const HeadBlocks packing = pattern.Blocks();
    std::vector<TestWeight<float>> actual = {Packed(packing, GetParam())};
    Step(actual);
    for (const HeadBlock& head : sectioned.blocks()) {
      ExpectSameBits(RowsOf(actual[0], packing, head.role, head.head),
                     RowsOf(expected[0], sectioned, head.role, head.head),
                     absl::StrCat(pattern.name(), " ", Name(head.role), " ", head.head));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Granularities, MultiHeadPackings,
                         testing::Values(Granularity::kProjection, Granularity::kKvGroup,
                                         Granularity::kHead, Granularity::kHeadGroup),
                         [](const auto& info) { return std::string(Name(info.param)); });

// The order in which rows enter matters to the bits, so the test above sees it.
TEST(Order, OfHeadsInABlockShowsInTheBits) {
  const HeadBlocks heads = Sectioned();
  const HeadBlocks projections = *heads.Coarsen(Granularity::kProjection);
  std::vector<HeadBlock> swapped = projections.blocks();
  swapped[0].ranges = {{kDim, kDim}, {0, kDim}, {2 * kDim, (kHeads - 2) * kDim}};
  std::vector<TestWeight<float>> a = {Packed(heads, projections)};
  std::vector<TestWeight<float>> b = {
      Packed(heads, *HeadBlocks::Create(heads.axis_size(), swapped))};
  Step(a);
  Step(b);
  std::int64_t different = 0;
  for (std::int64_t r = 0; r < kHeads * kDim; ++r) {
    for (std::int64_t c = 0; c < kIn; ++c) {
      different += a[0].weight.at(r, c) != b[0].weight.at(r, c);
    }
  }
  EXPECT_GT(different, kIn);
}

class FusedAndSeparate : public testing::TestWithParam<Granularity> {};

TEST_P(FusedAndSeparate, GetTheSameUpdate) {
  std::vector<TestWeight<float>> fused = {Packed(Interleaved(), GetParam())};
  Step(fused);
  for (const auto& [role, count, per_group] :
       {std::tuple(HeadRole::kQuery, kHeads, kHeads / kGroups),
        std::tuple(HeadRole::kKey, kGroups, std::int64_t{1}),
        std::tuple(HeadRole::kValue, kGroups, std::int64_t{1})}) {
    const HeadBlocks heads = *HeadBlocks::Separate(role, count, kDim, per_group);
    std::vector<TestWeight<float>> separate = {Packed(heads, GetParam())};
    Step(separate);
    for (std::int64_t h = 0; h < count; ++h) {
      ExpectSameBits(RowsOf(separate[0], heads, role, h), RowsOf(fused[0], Interleaved(), role, h),
                     absl::StrCat(Name(role), " ", h));
    }
  }
}

// A kv group's rows lie in three matrices when they are stored separately: not the same block.
INSTANTIATE_TEST_SUITE_P(Granularities, FusedAndSeparate,
                         testing::Values(Granularity::kProjection, Granularity::kHead,
                                         Granularity::kHeadGroup),
                         [](const auto& info) { return std::string(Name(info.param)); });

}  // namespace
}  // namespace headwise
