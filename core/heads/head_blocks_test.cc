#include "core/heads/head_blocks.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headwise {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr Granularity kGranularities[] = {Granularity::kWholeMatrix, Granularity::kProjection,
                                          Granularity::kKvGroup, Granularity::kHead,
                                          Granularity::kHeadGroup};

HeadBlock Block(HeadRole role, std::int64_t head, std::vector<IndexRange> ranges) {
  HeadBlock block;
  block.role = role;
  block.head = head;
  block.kv_group = head;
  block.ranges = std::move(ranges);
  return block;
}

std::string TilingError(std::int64_t axis_size, std::vector<HeadBlock> blocks,
                        BlockAxis axis = BlockAxis::kRows) {
  const absl::StatusOr<HeadBlocks> result = HeadBlocks::Create(axis_size, std::move(blocks), axis);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(result.status().message());
}

// What a packed row is, whatever the packing: (role, head, row within the head).
using LogicalRow = std::tuple<HeadRole, std::int64_t, std::int64_t>;

std::vector<LogicalRow> LogicalRows(const PackedQkv& layout) {
  constexpr HeadRole kRoles[] = {HeadRole::kQuery, HeadRole::kKey, HeadRole::kValue};
  std::vector<LogicalRow> rows;
  for (std::int64_t row = 0; row < layout.row_width(); ++row) {
    const QkvSlot slot = layout.SlotAt(row / layout.head_dim());
    rows.emplace_back(kRoles[static_cast<int>(slot.role)], slot.head, row % layout.head_dim());
  }
  return rows;
}

// Per block, its rows in Newton-Schulz order, as logical rows.
std::vector<std::vector<LogicalRow>> BlockRows(const HeadBlocks& blocks,
                                               const std::vector<LogicalRow>& logical) {
  std::vector<std::vector<LogicalRow>> result;
  for (const HeadBlock& block : blocks.blocks()) {
    auto& rows = result.emplace_back();
    for (const IndexRange& range : block.ranges) {
      for (std::int64_t i = 0; i < range.size; ++i) {
        rows.push_back(logical[static_cast<std::size_t>(range.begin + i)]);
      }
    }
    EXPECT_EQ(static_cast<std::int64_t>(rows.size()), block.size());
  }
  return result;
}

TEST(HeadBlocks, OneBlockPerHeadInStoredOrder) {
  const HeadBlocks blocks = HeadBlocks::FromPacked(*PackedQkv::Interleaved({4, 2, 8}));
  ASSERT_EQ(blocks.size(), 8);
  EXPECT_EQ(blocks.axis_size(), 64);
  const HeadBlock& key1 = blocks.blocks()[6];
  EXPECT_EQ(key1, Block(HeadRole::kKey, 1, {{48, 8}}));
  const HeadBlock& query3 = blocks.blocks()[5];
  EXPECT_EQ(query3.role, HeadRole::kQuery);
  EXPECT_EQ(query3.head, 3);
  EXPECT_EQ(query3.kv_group, 1);
}

TEST(HeadBlocks, SeparateProjection) {
  const HeadBlocks q = *HeadBlocks::Separate(HeadRole::kQuery, 12, 16, 4);
  ASSERT_EQ(q.size(), 12);
  EXPECT_EQ(q.axis_size(), 192);
  EXPECT_EQ(q.blocks()[7].kv_group, 1);
  EXPECT_EQ(q.blocks()[7].ranges, (std::vector<IndexRange>{{112, 16}}));
  EXPECT_EQ(q.Coarsen(Granularity::kKvGroup)->size(), 3);
  EXPECT_THAT(HeadBlocks::Separate(HeadRole::kKey, 12, 16, 5).status().message(),
              AllOf(HasSubstr("must divide"), HasSubstr("heads=12"), HasSubstr("group=5")));
  EXPECT_THAT(HeadBlocks::Separate(HeadRole::kGate, 0, 16, 1).status().message(),
              AllOf(HasSubstr("role gate"), HasSubstr("must be positive")));
  EXPECT_THAT(
      HeadBlocks::Separate(HeadRole::kKey, 4, std::numeric_limits<std::int64_t>::max() / 2, 1)
          .status()
          .message(),
      HasSubstr("overflows"));
}

TEST(HeadBlocks, AcceptsUnequalAndScatteredBlocks) {
  const HeadBlocks blocks = *HeadBlocks::Create(
      10,
      {Block(HeadRole::kKey, 0, {{7, 3}}), Block(HeadRole::kQuery, 0, {{4, 2}, {0, 4}, {6, 1}})});
  EXPECT_EQ(blocks.blocks()[1].size(), 7);
  EXPECT_EQ(blocks.granularity(), Granularity::kHead);
}

TEST(HeadBlocksTiling, GapNamesFirstMissingRowAndNeighbours) {
  EXPECT_THAT(
      TilingError(12, {Block(HeadRole::kQuery, 0, {{0, 4}}), Block(HeadRole::kKey, 0, {{6, 6}})}),
      AllOf(HasSubstr("row 4 is in no head block"), HasSubstr("block 1 (key head 0)"),
            HasSubstr("block 0 (query head 0) ends at 4")));
  EXPECT_THAT(TilingError(12, {Block(HeadRole::kQuery, 3, {{1, 11}})}),
              AllOf(HasSubstr("row 0 is in no head block"), HasSubstr("block 0 (query head 3)")));
  EXPECT_THAT(TilingError(12, {Block(HeadRole::kQuery, 0, {{0, 11}})}),
              AllOf(HasSubstr("row 11 is in no head block"), HasSubstr("has 12 rows")));
  EXPECT_THAT(TilingError(12, {}), HasSubstr("row 0 is in no head block: there are no blocks"));
}

TEST(HeadBlocksTiling, OverlapNamesFirstRowTakenTwiceAndBothBlocks) {
  EXPECT_THAT(
      TilingError(12, {Block(HeadRole::kValue, 1, {{5, 7}}), Block(HeadRole::kQuery, 0, {{0, 6}})}),
      AllOf(HasSubstr("row 5 is in two head blocks"), HasSubstr("block 1 (query head 0)"),
            HasSubstr("[0, 6)"), HasSubstr("block 0 (value head 1)"), HasSubstr("[5, 12)")));
  // One block that names a row twice.
  EXPECT_THAT(TilingError(4, {Block(HeadRole::kQuery, 0, {{0, 4}, {3, 1}})}),
              HasSubstr("row 3 is in two head blocks"));
}

TEST(HeadBlocksTiling, RangesMustBeNonEmptyAndInBounds) {
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  const auto one = [](IndexRange range) {
    return TilingError(8,
                       {Block(HeadRole::kQuery, 0, {{0, 8}}), Block(HeadRole::kKey, 2, {range})});
  };
  EXPECT_THAT(one({4, 0}), AllOf(HasSubstr("block 1 (key head 2)"), HasSubstr("empty range")));
  EXPECT_THAT(one({4, -1}), HasSubstr("empty range"));
  EXPECT_THAT(one({4, 5}), AllOf(HasSubstr("out of bounds"), HasSubstr("5 rows from 4"),
                                 HasSubstr("has 8 rows")));
  EXPECT_THAT(one({-1, 2}), HasSubstr("out of bounds"));
  EXPECT_THAT(one({8, 1}), HasSubstr("out of bounds"));
  EXPECT_THAT(one({kMax, kMax}), HasSubstr("out of bounds"));  // begin + size overflows
  EXPECT_THAT(one({2, kMax}), HasSubstr("out of bounds"));
  EXPECT_THAT(one({kMax, 1}), HasSubstr("out of bounds"));
  EXPECT_THAT(one({std::numeric_limits<std::int64_t>::min(), 1}), HasSubstr("out of bounds"));
  EXPECT_THAT(TilingError(8, {Block(HeadRole::kZ, 0, {})}),
              HasSubstr("block 0 (z head 0) has no row ranges"));
  EXPECT_THAT(TilingError(0, {}), HasSubstr("at least one row, found 0"));
}

TEST(HeadBlocksTiling, ColumnsAreCalledColumns) {
  EXPECT_THAT(TilingError(8, {Block(HeadRole::kQuery, 0, {{0, 4}})}, BlockAxis::kColumns),
              AllOf(HasSubstr("column 4 is in no head block"), HasSubstr("8 columns")));
  const HeadBlocks columns =
      *HeadBlocks::Create(8, {Block(HeadRole::kQuery, 0, {{0, 8}})}, BlockAxis::kColumns);
  EXPECT_EQ(columns.Coarsen(Granularity::kWholeMatrix)->axis(), BlockAxis::kColumns);
  EXPECT_EQ(columns.Coarsen(Granularity::kProjection)->axis(), BlockAxis::kColumns);
}

TEST(HeadBlocksCoarsen, CountsRolesAndRanges) {
  const HeadBlocks heads = HeadBlocks::FromPacked(*PackedQkv::Interleaved({8, 2, 64}));
  EXPECT_EQ(heads.Coarsen(Granularity::kWholeMatrix)->blocks(), HeadBlocks::Whole(768).blocks());
  EXPECT_EQ(heads.Coarsen(Granularity::kHead)->blocks(), heads.blocks());

  const HeadBlocks groups = *heads.Coarsen(Granularity::kKvGroup);
  ASSERT_EQ(groups.size(), 2);
  EXPECT_EQ(groups.blocks()[1].size(), 384);
  EXPECT_EQ(groups.blocks()[1].head, 4);
  EXPECT_EQ(groups.blocks()[1].kv_group, 1);
  // A kv group lies in one piece in this packing.
  EXPECT_EQ(groups.blocks()[1].ranges, (std::vector<IndexRange>{{384, 384}}));

  const HeadBlocks projections = *heads.Coarsen(Granularity::kProjection);
  ASSERT_EQ(projections.size(), 3);
  EXPECT_EQ(projections.blocks()[0].ranges, (std::vector<IndexRange>{{0, 256}, {384, 256}}));
  EXPECT_EQ(projections.blocks()[2].role, HeadRole::kValue);

  const HeadBlocks pairs = *heads.Coarsen(Granularity::kHeadGroup, 2);
  ASSERT_EQ(pairs.size(), 6);  // 4 of queries, 1 of keys, 1 of values
  EXPECT_EQ(pairs.blocks()[2].head, 4);
  EXPECT_EQ(pairs.blocks()[2].kv_group, 1);
  EXPECT_EQ(pairs.blocks()[4].role, HeadRole::kKey);
  EXPECT_EQ(pairs.blocks()[4].ranges, (std::vector<IndexRange>{{256, 64}, {640, 64}}));
}

TEST(HeadBlocksCoarsen, SameOrderedRowsInBothPackings) {
  std::mt19937 rng(20260714);
  const auto draw = [&](std::int64_t lo, std::int64_t hi) {
    return std::uniform_int_distribution<std::int64_t>(lo, hi)(rng);
  };
  for (int trial = 0; trial < 200; ++trial) {
    const std::int64_t kv_heads = draw(1, 8);
    const HeadGeometry geometry{kv_heads * draw(1, 12), kv_heads, draw(1, 9)};
    // Divides both H and G, because G divides H.
    std::vector<std::int64_t> divisors;
    for (std::int64_t d = 1; d <= kv_heads; ++d) {
      if (kv_heads % d == 0) divisors.push_back(d);
    }
    const std::int64_t head_group =
        divisors[static_cast<std::size_t>(draw(0, static_cast<std::int64_t>(divisors.size()) - 1))];
    SCOPED_TRACE(testing::Message() << "H=" << geometry.query_heads << " G=" << geometry.kv_heads
                                    << " D=" << geometry.head_dim << " head_group=" << head_group);

    const PackedQkv interleaved = *PackedQkv::Interleaved(geometry);
    const PackedQkv sectioned = *PackedQkv::Sectioned(geometry);
    const std::vector<LogicalRow> interleaved_rows = LogicalRows(interleaved);
    const std::vector<LogicalRow> sectioned_rows = LogicalRows(sectioned);
    for (const Granularity granularity : kGranularities) {
      SCOPED_TRACE(Name(granularity));
      const HeadBlocks a = *HeadBlocks::FromPacked(interleaved).Coarsen(granularity, head_group);
      const HeadBlocks b = *HeadBlocks::FromPacked(sectioned).Coarsen(granularity, head_group);
      EXPECT_EQ(a.granularity(), granularity);
      // A coarsened partition is still one.
      EXPECT_TRUE(HeadBlocks::Create(a.axis_size(), a.blocks()).ok());
      EXPECT_TRUE(HeadBlocks::Create(b.axis_size(), b.blocks()).ok());

      auto rows_a = BlockRows(a, interleaved_rows);
      auto rows_b = BlockRows(b, sectioned_rows);
      if (granularity == Granularity::kWholeMatrix) continue;  // stored order: nothing promised
      for (const auto& rows : rows_a) {
        EXPECT_TRUE(std::is_sorted(rows.begin(), rows.end())) << "not (role, head, row) order";
      }
      if (granularity == Granularity::kHead) {  // blocks themselves are in stored order
        std::sort(rows_a.begin(), rows_a.end());
        std::sort(rows_b.begin(), rows_b.end());
      }
      EXPECT_EQ(rows_a, rows_b);
    }
  }
}

TEST(HeadBlocksCoarsen, HeadGroupThatDoesNotDivideIsAnError) {
  const HeadBlocks heads = HeadBlocks::FromPacked(*PackedQkv::Sectioned({8, 2, 4}));
  const auto message = [&](std::int64_t size) {
    return std::string(heads.Coarsen(Granularity::kHeadGroup, size).status().message());
  };
  EXPECT_THAT(message(3), HasSubstr("head_group_size 3 does not divide the 8 query heads"));
  EXPECT_THAT(message(4), HasSubstr("head_group_size 4 does not divide the 2 key heads"));
  EXPECT_THAT(message(0), HasSubstr("head_group_size 0 does not divide"));
  EXPECT_THAT(message(-2), HasSubstr("head_group_size -2 does not divide"));
}

TEST(HeadBlocksCoarsen, OnlyFromHeads) {
  const HeadBlocks heads = HeadBlocks::FromPacked(*PackedQkv::Sectioned({8, 2, 4}));
  const HeadBlocks groups = *heads.Coarsen(Granularity::kKvGroup);
  EXPECT_EQ(groups.Coarsen(Granularity::kKvGroup)->blocks(), groups.blocks());
  EXPECT_EQ(groups.Coarsen(Granularity::kWholeMatrix)->size(), 1);
  EXPECT_THAT(groups.Coarsen(Granularity::kHead).status().message(),
              AllOf(HasSubstr("granularity kv_group"), HasSubstr("regrouped as head")));
  EXPECT_FALSE(heads.Coarsen(Granularity::kHeadGroup, 2)->Coarsen(Granularity::kHeadGroup, 1).ok());

  const HeadBlocks whole = HeadBlocks::Whole(7);
  for (const Granularity granularity : kGranularities) {
    EXPECT_EQ(whole.Coarsen(granularity)->blocks(), whole.blocks()) << Name(granularity);
  }
}

TEST(HeadBlocksCoarsen, TwoBlocksOfTheSameHeadHaveNoOrder) {
  const HeadBlocks blocks = *HeadBlocks::Create(
      8, {Block(HeadRole::kQuery, 1, {{4, 4}}), Block(HeadRole::kQuery, 1, {{0, 4}})});
  EXPECT_THAT(blocks.Coarsen(Granularity::kProjection).status().message(),
              AllOf(HasSubstr("two blocks are query head 1"), HasSubstr("[4, 8) and [0, 4)")));
}

}  // namespace
}  // namespace headwise
