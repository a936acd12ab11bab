#include "core/heads/packed_qkv.h"

#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <tuple>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headwise {
namespace {

using ::testing::HasSubstr;

class PackedQkvTest : public ::testing::TestWithParam<std::tuple<int, int, Packing>> {
 protected:
  PackedQkv Layout() const {
    const auto [group_size, groups, packing] = GetParam();
    return *PackedQkv::Create(packing, {group_size * groups, groups, 16});
  }
};

TEST_P(PackedQkvTest, SlotMapIsABijectionAndSlotAtItsInverse) {
  const PackedQkv layout = Layout();
  std::set<std::int64_t> seen;
  const auto visit = [&](std::int64_t slot, QkvSlot content) {
    EXPECT_GE(slot, 0);
    EXPECT_LT(slot, layout.slots());
    EXPECT_TRUE(seen.insert(slot).second) << "slot " << slot << " taken twice";
    EXPECT_EQ(layout.SlotAt(slot), content) << "slot " << slot;
  };
  for (std::int64_t h = 0; h < layout.query_heads(); ++h) {
    visit(layout.QuerySlot(h), {QkvRole::kQuery, h});
  }
  for (std::int64_t g = 0; g < layout.kv_heads(); ++g) {
    visit(layout.KeySlot(g), {QkvRole::kKey, g});
    visit(layout.ValueSlot(g), {QkvRole::kValue, g});
  }
  EXPECT_EQ(static_cast<std::int64_t>(seen.size()), layout.slots());
  EXPECT_EQ(layout.row_width(), layout.slots() * 16);
}

TEST_P(PackedQkvTest, OrderWithinARowIsThatOfThePacking) {
  const PackedQkv layout = Layout();
  const std::int64_t per_group = layout.group_size();
  for (std::int64_t slot = 0; slot < layout.slots(); ++slot) {
    const QkvSlot content = layout.SlotAt(slot);
    if (layout.packing() == Packing::kSectioned) {
      const std::int64_t begin = content.role == QkvRole::kQuery ? 0
                                 : content.role == QkvRole::kKey
                                     ? layout.query_heads()
                                     : layout.query_heads() + layout.kv_heads();
      EXPECT_EQ(slot, begin + content.head);
    } else {
      // A kv group is per_group + 2 neighbouring slots: its queries in order, its key, its value.
      const std::int64_t group =
          content.role == QkvRole::kQuery ? content.head / per_group : content.head;
      const std::int64_t within = content.role == QkvRole::kQuery ? content.head % per_group
                                  : content.role == QkvRole::kKey ? per_group
                                                                  : per_group + 1;
      EXPECT_EQ(slot, group * (per_group + 2) + within);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Geometries, PackedQkvTest,
    ::testing::Combine(::testing::Values(1, 3, 5, 6, 7, 8, 12), ::testing::Values(1, 2, 5, 16),
                       ::testing::Values(Packing::kInterleavedPerKvGroup, Packing::kSectioned)));

TEST(PackedQkv, KnownLayouts) {
  const PackedQkv interleaved = *PackedQkv::Interleaved({128, 16, 64});
  EXPECT_EQ(interleaved.slots(), 160);
  EXPECT_EQ(interleaved.row_width(), 10240);
  EXPECT_EQ(interleaved.KeySlot(0), 8);
  EXPECT_EQ(interleaved.ValueSlot(0), 9);
  EXPECT_EQ(interleaved.QuerySlot(8), 10);
  const PackedQkv sectioned = *PackedQkv::Sectioned({128, 16, 64});
  EXPECT_EQ(sectioned.KeySlot(0), 128);
  EXPECT_EQ(sectioned.ValueSlot(15), 159);
}

TEST(PackedQkv, ErrorsNameTheNumbers) {
  const auto message = [](HeadGeometry g) {
    return std::string(PackedQkv::Sectioned(g).status().message());
  };
  EXPECT_THAT(message({12, 5, 64}), HasSubstr("kv_heads must divide query_heads"));
  EXPECT_THAT(message({12, 5, 64}), HasSubstr("query_heads=12, kv_heads=5"));
  EXPECT_THAT(message({0, 1, 64}), HasSubstr("must be positive"));
  EXPECT_THAT(message({4, 0, 64}), HasSubstr("must be positive"));
  EXPECT_THAT(message({4, 2, -1}), HasSubstr("head_dim=-1"));
  EXPECT_THAT(message({2, 4, 64}), HasSubstr("kv_heads must divide"));
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  EXPECT_THAT(message({kMax, kMax, 1}), HasSubstr("overflows"));
  EXPECT_THAT(message({4, 2, kMax / 4}), HasSubstr("overflows"));
  EXPECT_TRUE(PackedQkv::Sectioned({4, 2, kMax / 8}).ok());
}

TEST(PackedQkvDeathTest, IndicesAreChecked) {
  const PackedQkv layout = *PackedQkv::Interleaved({8, 2, 64});
  EXPECT_DEATH(layout.QuerySlot(8), "query head 8 of 8");
  EXPECT_DEATH(layout.KeySlot(-1), "kv group -1 of 2");
  EXPECT_DEATH(layout.ValueSlot(2), "kv group 2 of 2");
  EXPECT_DEATH(layout.SlotAt(12), "slot 12 of 12");
}

}  // namespace
}  // namespace headwise
