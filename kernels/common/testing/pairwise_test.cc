#include "kernels/common/testing/pairwise.h"

#include <algorithm>
#include <set>
#include <utility>

#include "gtest/gtest.h"

namespace headwise {
namespace {

TEST(PairwiseTest, EveryLevelMeetsEveryOther) {
  const std::vector<int> levels = {11, 1, 7, 2, 30, 3};
  const auto rows = PairwiseDesign(levels);
  for (std::size_t f = 0; f < levels.size(); ++f) {
    for (std::size_t g = f + 1; g < levels.size(); ++g) {
      std::set<std::pair<int, int>> met;
      for (const auto& row : rows) {
        ASSERT_LT(row[f], levels[f]);
        met.emplace(row[f], row[g]);
      }
      EXPECT_EQ(met.size(), levels[f] * levels[g]) << f << " and " << g;
    }
  }
  EXPECT_LE(rows.size(), 11 * 30 * 5 / 4);  // 330 is the least
}

TEST(PairwiseTest, TheSameCasesEveryTime) {
  EXPECT_EQ(PairwiseDesign({3, 4, 5}), PairwiseDesign({3, 4, 5}));
  EXPECT_NE(PairwiseDesign({3, 4, 5}, 2), PairwiseDesign({3, 4, 5}, 3));
}

}  // namespace
}  // namespace headwise
