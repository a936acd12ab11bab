// Every named packing against the index arithmetic of the module that reads it; any pattern tiles
// the axis; heads packed differently coarsen to the same rows in the same order.
#include "core/heads/head_pattern.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headwise {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// (role, head, row within the head): what a row is, however it is packed.
using LogicalRow = std::tuple<HeadRole, std::int64_t, std::int64_t>;

std::vector<LogicalRow> RowsOf(const HeadPattern& pattern) {
  std::vector<LogicalRow> rows(static_cast<std::size_t>(pattern.axis_size()));
  const HeadBlocks blocks = pattern.Blocks();
  for (const HeadBlock& block : blocks.blocks()) {
    for (std::int64_t i = 0; i < block.size(); ++i) {
      rows[static_cast<std::size_t>(block.ranges[0].begin + i)] = {block.role, block.head, i};
    }
  }
  return rows;
}

void ExpectRows(const absl::StatusOr<HeadPattern>& pattern, std::int64_t rows,
                const std::function<LogicalRow(std::int64_t)>& expected) {
  ASSERT_TRUE(pattern.ok()) << pattern.status();
  ASSERT_EQ(pattern->axis_size(), rows);
  const std::vector<LogicalRow> found = RowsOf(*pattern);
  for (std::int64_t row = 0; row < rows; ++row) {
    ASSERT_EQ(found[static_cast<std::size_t>(row)], expected(row))
        << pattern->name() << " row " << row;
  }
}

constexpr HeadRole kQkv[] = {HeadRole::kQuery, HeadRole::kKey, HeadRole::kValue};

TEST(HeadPattern, PerHeadQkvIsAViewOfHeadsByThreeByHeadDim) {
  ExpectRows(HeadPattern::PerHeadQkv(6, 5), 90, [](std::int64_t row) {
    return LogicalRow{kQkv[row / 5 % 3], row / 15, row % 5};
  });
}

TEST(HeadPattern, FourBlockIsAViewOfFourByQvkByLocalWidth) {
  constexpr std::int64_t kHeads = 8, kDim = 3, kLocal = kHeads * kDim / 4;
  constexpr HeadRole kQvk[] = {HeadRole::kQuery, HeadRole::kValue, HeadRole::kKey};
  ExpectRows(HeadPattern::FourBlock(kHeads, kDim), 3 * kHeads * kDim, [&](std::int64_t row) {
    const std::int64_t within = row % kLocal;
    return LogicalRow{kQvk[row / kLocal % 3], row / (3 * kLocal) * (kHeads / 4) + within / kDim,
                      within % kDim};
  });
}

TEST(HeadPattern, SectionedAndInterleavedAreThoseOfPackedQkv) {
  const HeadGeometry geometry{6, 2, 4};
  const HeadBlocks sectioned = HeadPattern::Sectioned(geometry)->Blocks();
  EXPECT_EQ(sectioned.blocks(), HeadBlocks::FromPacked(*PackedQkv::Sectioned(geometry)).blocks());
  const HeadBlocks interleaved = HeadPattern::Interleaved(geometry)->Blocks();
  EXPECT_EQ(interleaved.blocks(),
            HeadBlocks::FromPacked(*PackedQkv::Interleaved(geometry)).blocks());
  EXPECT_EQ(HeadPattern::Separate(HeadRole::kQuery, 6, 4, 3)->Blocks().blocks(),
            HeadBlocks::Separate(HeadRole::kQuery, 6, 4, 3)->blocks());
}

TEST(HeadPattern, MlaHeadsAreWholeOrSplitAtTheSamePlaces) {
  ExpectRows(HeadPattern::MlaQuery(4, 5, 2, MlaHeads::kSplit), 28, [](std::int64_t row) {
    return row % 7 < 5 ? LogicalRow{HeadRole::kQueryNope, row / 7, row % 7}
                       : LogicalRow{HeadRole::kQueryRope, row / 7, row % 7 - 5};
  });
  ExpectRows(HeadPattern::MlaQuery(4, 5, 2, MlaHeads::kWhole), 28, [](std::int64_t row) {
    return LogicalRow{HeadRole::kQuery, row / 7, row % 7};
  });
  ExpectRows(HeadPattern::MlaKeyValue(4, 5, 3, MlaHeads::kSplit), 32, [](std::int64_t row) {
    return row % 8 < 5 ? LogicalRow{HeadRole::kKeyNope, row / 8, row % 8}
                       : LogicalRow{HeadRole::kValue, row / 8, row % 8 - 5};
  });
  ExpectRows(HeadPattern::MlaKeyValue(4, 5, 3, MlaHeads::kWhole), 32, [](std::int64_t row) {
    return LogicalRow{HeadRole::kKeyValue, row / 8, row % 8};
  });
}

TEST(HeadPattern, GatedQueryIsAViewOfHeadsByTwoByHeadDim) {
  ExpectRows(HeadPattern::GatedQuery(6, 4, 3), 48, [](std::int64_t row) {
    return LogicalRow{row / 4 % 2 == 0 ? HeadRole::kQuery : HeadRole::kGate, row / 8, row % 4};
  });
  EXPECT_EQ(HeadPattern::GatedQuery(6, 4, 3)->Blocks().Coarsen(Granularity::kKvGroup)->size(), 2);
}

TEST(HeadPattern, LinearGroupsHaveUnequalWidths) {
  // 3 key heads, 6 value heads, widths 5 and 2: a group is 5 + 5 + 2 * 2 + 2 * 2 rows.
  ExpectRows(HeadPattern::LinearGroups({3, 6, 5, 2}), 54, [](std::int64_t row) {
    const std::int64_t group = row / 18, r = row % 18;
    if (r < 5) return LogicalRow{HeadRole::kQuery, group, r};
    if (r < 10) return LogicalRow{HeadRole::kKey, group, r - 5};
    if (r < 14) return LogicalRow{HeadRole::kValue, 2 * group + (r - 10) / 2, (r - 10) % 2};
    return LogicalRow{HeadRole::kZ, 2 * group + (r - 14) / 2, (r - 14) % 2};
  });
  ExpectRows(HeadPattern::LinearSections({3, 6, 5, 2}), 42, [](std::int64_t row) {
    if (row < 15) return LogicalRow{HeadRole::kQuery, row / 5, row % 5};
    if (row < 30) return LogicalRow{HeadRole::kKey, row / 5 - 3, row % 5};
    return LogicalRow{HeadRole::kValue, (row - 30) / 2, row % 2};
  });
  const HeadBlocks groups =
      *HeadPattern::LinearGroups({3, 6, 5, 2})->Blocks().Coarsen(Granularity::kKvGroup);
  ASSERT_EQ(groups.size(), 3);
  EXPECT_EQ(groups.blocks()[1].ranges, (std::vector<IndexRange>{{18, 18}}));
}

TEST(HeadPattern, ColumnsAreTheSameRangesOfTheOtherAxis) {
  const HeadPattern pattern = *HeadPattern::Sectioned({4, 4, 2});
  EXPECT_EQ(pattern.Blocks(BlockAxis::kColumns).axis(), BlockAxis::kColumns);
  EXPECT_EQ(pattern.Blocks(BlockAxis::kColumns).blocks(), pattern.Blocks().blocks());
}

TEST(HeadPattern, SaysWhatItIs) {
  EXPECT_EQ(HeadPattern::Interleaved({8, 2, 64})->ToString(),
            "2 x (4 query, 1 key, 1 value) of 64");
  EXPECT_EQ(HeadPattern::Separate(HeadRole::kKey, 8, 64)->ToString(), "8 key of 64");
  EXPECT_EQ(HeadPattern::LinearGroups({16, 32, 128, 64})->ToString(),
            "16 x (1 query of 128, 1 key of 128, 2 value of 64, 2 z of 64)");
}

TEST(HeadPattern, ImpossibleNumbersAreNamed) {
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  const auto message = [](const absl::StatusOr<HeadPattern>& pattern) {
    EXPECT_EQ(pattern.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(pattern.status().message());
  };
  EXPECT_THAT(message(HeadPattern::Create("odd", {})), HasSubstr("odd: no heads"));
  EXPECT_THAT(message(HeadPattern::Separate(HeadRole::kKey, 0, 64)),
              AllOf(HasSubstr("must be positive"), HasSubstr("separate: 0 key heads of 64")));
  EXPECT_THAT(message(HeadPattern::Separate(HeadRole::kQuery, 6, 64, 4)),
              HasSubstr("must divide the 6 query heads"));
  EXPECT_THAT(message(HeadPattern::Separate(HeadRole::kKey, kMax, kMax)),
              HasSubstr("more than 65536 heads"));
  EXPECT_THAT(message(HeadPattern::PerHeadQkv(kMaxHeadBlocks, 1)), HasSubstr("more than 65536"));
  EXPECT_THAT(message(HeadPattern::PerHeadQkv(2, kMax / 5)), HasSubstr("overflows"));
  EXPECT_THAT(message(HeadPattern::FourBlock(6, 64)), HasSubstr("4 must divide"));
  EXPECT_THAT(message(HeadPattern::Sectioned({6, 4, 8})), HasSubstr("kv_heads must divide"));
  EXPECT_THAT(message(HeadPattern::Interleaved({6, 0, 8})), HasSubstr("positive"));
  EXPECT_THAT(message(HeadPattern::LinearGroups({4, 6, 8, 8})), HasSubstr("must divide"));
  EXPECT_THAT(message(HeadPattern::LinearSections({0, 6, 8, 8})), HasSubstr("must divide"));
  EXPECT_THAT(message(HeadPattern::MlaQuery(4, 0, 8, MlaHeads::kWhole)), HasSubstr("positive"));
  EXPECT_THAT(message(HeadPattern::MlaKeyValue(2, kMax, kMax, MlaHeads::kWhole)),
              HasSubstr("overflows"));
}

// Any list of runs, not only the named ones.
TEST(HeadPattern, RandomPatternsTileTheAxis) {
  std::mt19937 rng(20261129);
  const auto draw = [&](std::int64_t lo, std::int64_t hi) {
    return std::uniform_int_distribution<std::int64_t>(lo, hi)(rng);
  };
  constexpr HeadRole kRoles[] = {HeadRole::kQuery, HeadRole::kKey, HeadRole::kValue,
                                 HeadRole::kGate, HeadRole::kZ};
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<HeadRun> runs;
    for (std::int64_t i = draw(1, 5); i > 0; --i) {
      runs.push_back({kRoles[draw(0, 4)], draw(1, 6), draw(1, 9), 1});
    }
    const HeadPattern pattern = *HeadPattern::Create("random", runs, draw(1, 7));
    const HeadBlocks blocks = pattern.Blocks();
    EXPECT_EQ(blocks.size(), pattern.num_blocks());
    EXPECT_EQ(blocks.axis_size(), pattern.axis_size());
    std::int64_t next = 0;
    for (const HeadBlock& block : blocks.blocks()) {
      ASSERT_EQ(block.ranges.size(), 1u);
      EXPECT_EQ(block.ranges[0].begin, next) << pattern.ToString();
      next += block.size();
    }
    EXPECT_EQ(next, pattern.axis_size());
    EXPECT_TRUE(blocks.Coarsen(Granularity::kProjection).ok()) << pattern.ToString();
  }
}

// The rows that enter Newton-Schulz, block by block, as logical rows.
std::vector<std::vector<LogicalRow>> BlockRows(const HeadPattern& pattern, Granularity granularity,
                                               std::int64_t head_group) {
  const std::vector<LogicalRow> logical = RowsOf(pattern);
  std::vector<std::vector<LogicalRow>> result;
  const HeadBlocks coarse = *pattern.Blocks().Coarsen(granularity, head_group);
  for (const HeadBlock& block : coarse.blocks()) {
    auto& rows = result.emplace_back();
    for (const IndexRange& range : block.ranges) {
      for (std::int64_t i = 0; i < range.size; ++i) {
        rows.push_back(logical[static_cast<std::size_t>(range.begin + i)]);
      }
    }
  }
  std::sort(result.begin(), result.end());  // per head, blocks are in stored order
  return result;
}

TEST(HeadPattern, EveryPackingOfTheSameHeadsCoarsensToTheSameRows) {
  const std::int64_t heads = 8, dim = 3;
  const HeadPattern packings[] = {
      *HeadPattern::Sectioned({heads, heads, dim}), *HeadPattern::Interleaved({heads, heads, dim}),
      *HeadPattern::PerHeadQkv(heads, dim), *HeadPattern::FourBlock(heads, dim)};
  for (const Granularity granularity : {Granularity::kProjection, Granularity::kKvGroup,
                                        Granularity::kHead, Granularity::kHeadGroup}) {
    for (const HeadPattern& packing : packings) {
      EXPECT_EQ(BlockRows(packing, granularity, 4), BlockRows(packings[0], granularity, 4))
          << packing.name() << " at " << Name(granularity);
    }
  }
}

}  // namespace
}  // namespace headwise
