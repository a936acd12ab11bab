// The same heads packed differently get the same update, bit for bit, at every granularity; so do
// fused and separately stored projections.
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/heads/head_blocks.h"
#include "core/heads/packed_qkv.h"
#include "gtest/gtest.h"
#include "kernels/muon_step/parity.h"

namespace headwise {
namespace {

constexpr std::int64_t kHeads = 6, kGroups = 3, kDim = 16, kIn = 100;

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

HeadRole RoleOf(QkvRole role) {
  return role == QkvRole::kQuery ? HeadRole::kQuery
         : role == QkvRole::kKey ? HeadRole::kKey
                                 : HeadRole::kValue;
}

void FillHead(HeadRole role, std::int64_t head, std::int64_t first_row, TestWeight<float>& w) {
  for (std::int64_t e = 0; e < kDim; ++e) {
    FillRow(role, head, e, &w.gradient.at(first_row + e, 0), &w.momentum.at(first_row + e, 0),
            &w.weight.at(first_row + e, 0));
  }
}

TestWeight<float> Packed(const PackedQkv& layout, const HeadBlocks& blocks) {
  TestWeight<float> w(blocks, kIn, 0);
  for (std::int64_t slot = 0; slot < layout.slots(); ++slot) {
    const QkvSlot content = layout.SlotAt(slot);
    FillHead(RoleOf(content.role), content.head, slot * kDim, w);
  }
  return w;
}

void Step(std::vector<TestWeight<float>>& weights) {
  ThreadPool pool(2);
  ASSERT_TRUE(MuonStep<float>({.weight_decay = 0.1}, ViewsOf(weights), pool).ok());
}

RowSpan<const float> HeadOf(const TestWeight<float>& w, std::int64_t slot) {
  return w.weight.view().Rows(slot * kDim, kDim);
}

// Calls f(slot in a, slot in b, name of the head).
template <typename F>
void ForEachHead(const PackedQkv& a, const PackedQkv& b, const F& f) {
  for (std::int64_t h = 0; h < kHeads; ++h) f(a.QuerySlot(h), b.QuerySlot(h), absl::StrCat("q", h));
  for (std::int64_t g = 0; g < kGroups; ++g) f(a.KeySlot(g), b.KeySlot(g), absl::StrCat("k", g));
  for (std::int64_t g = 0; g < kGroups; ++g) {
    f(a.ValueSlot(g), b.ValueSlot(g), absl::StrCat("v", g));
  }
}

class Packings : public testing::TestWithParam<Granularity> {};

TEST_P(Packings, SectionedAndInterleavedGetTheSameUpdate) {
  const PackedQkv sectioned = *PackedQkv::Sectioned({kHeads, kGroups, kDim});
  const PackedQkv interleaved = *PackedQkv::Interleaved({kHeads, kGroups, kDim});
  std::vector<TestWeight<float>> a = {
      Packed(sectioned, *HeadBlocks::FromPacked(sectioned).Coarsen(GetParam(), 3))};
  std::vector<TestWeight<float>> b = {
      Packed(interleaved, *HeadBlocks::FromPacked(interleaved).Coarsen(GetParam(), 3))};
  const std::vector<TestWeight<float>> before = a;
  Step(a);
  Step(b);
  ForEachHead(sectioned, interleaved,
              [&](std::int64_t in_a, std::int64_t in_b, const std::string& head) {
                ExpectSameBits(HeadOf(b[0], in_b), HeadOf(a[0], in_a), head);
                EXPECT_NE(HeadOf(a[0], in_a).row(0)[0], HeadOf(before[0], in_a).row(0)[0]) << head;
              });
}

INSTANTIATE_TEST_SUITE_P(Granularities, Packings,
                         testing::Values(Granularity::kProjection, Granularity::kKvGroup,
                                         Granularity::kHead, Granularity::kHeadGroup),
                         [](const auto& info) { return std::string(Name(info.param)); });

// The order in which rows enter matters to the bits: the test above would see it.
TEST(PackingsTest, OrderOfHeadsInABlockShowsInTheBits) {
  const PackedQkv layout = *PackedQkv::Sectioned({kHeads, kGroups, kDim});
  std::vector<HeadBlock> queries_swapped =
      HeadBlocks::FromPacked(layout).Coarsen(Granularity::kProjection)->blocks();
  queries_swapped[0].ranges = {{kDim, kDim}, {0, kDim}, {2 * kDim, (kHeads - 2) * kDim}};
  std::vector<TestWeight<float>> a = {
      Packed(layout, *HeadBlocks::FromPacked(layout).Coarsen(Granularity::kProjection))};
  std::vector<TestWeight<float>> b = {
      Packed(layout, *HeadBlocks::Create(layout.row_width(), queries_swapped))};
  Step(a);
  Step(b);
  std::int64_t different = 0;
  for (std::int64_t r = 0; r < kHeads * kDim; ++r) {
    for (std::int64_t c = 0; c < kIn; ++c) {
      different += a[0].weight.at(r, c) != b[0].weight.at(r, c);
    }
  }
  EXPECT_GT(different, 0);
}

class FusedAndSeparate : public testing::TestWithParam<Granularity> {};

TEST_P(FusedAndSeparate, GetTheSameUpdate) {
  const PackedQkv layout = *PackedQkv::Interleaved({kHeads, kGroups, kDim});
  std::vector<TestWeight<float>> fused = {
      Packed(layout, *HeadBlocks::FromPacked(layout).Coarsen(GetParam(), 3))};
  Step(fused);

  std::vector<TestWeight<float>> separate;
  const auto add = [&](HeadRole role, std::int64_t heads, std::int64_t per_group) {
    const HeadBlocks blocks = *HeadBlocks::Separate(role, heads, kDim, per_group);
    TestWeight<float>& w = separate.emplace_back(*blocks.Coarsen(GetParam(), 3), kIn, 0);
    for (std::int64_t h = 0; h < heads; ++h) FillHead(role, h, h * kDim, w);
  };
  add(HeadRole::kQuery, kHeads, kHeads / kGroups);
  add(HeadRole::kKey, kGroups, 1);
  add(HeadRole::kValue, kGroups, 1);
  Step(separate);

  for (std::int64_t h = 0; h < kHeads; ++h) {
    ExpectSameBits(HeadOf(separate[0], h), HeadOf(fused[0], layout.QuerySlot(h)), "query");
  }
  for (std::int64_t g = 0; g < kGroups; ++g) {
    ExpectSameBits(HeadOf(separate[1], g), HeadOf(fused[0], layout.KeySlot(g)), "key");
    ExpectSameBits(HeadOf(separate[2], g), HeadOf(fused[0], layout.ValueSlot(g)), "value");
  }
}

// A kv group's rows lie in three matrices when they are stored separately: not the same block.
INSTANTIATE_TEST_SUITE_P(Granularities, FusedAndSeparate,
                         testing::Values(Granularity::kProjection, Granularity::kHead,
                                         Granularity::kHeadGroup),
                         [](const auto& info) { return std::string(Name(info.param)); });

}  // namespace
}  // namespace headwise
