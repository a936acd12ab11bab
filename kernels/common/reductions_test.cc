#include "kernels/common/reductions.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/common/testing/kernel_testing.h"

namespace headwise {
namespace {

// The definition: pad, then halve.
template <typename C>
C Tree(std::vector<C> p) {
  std::size_t n = 1;
  while (n < p.size()) n *= 2;
  p.resize(n, C(0));
  for (; n > 1; n /= 2) {
    for (std::size_t i = 0; i < n / 2; ++i) p[i] = p[2 * i] + p[2 * i + 1];
  }
  return p[0];
}

TEST(AdjacentPairTree, IsTheDefinitionForEveryCount) {
  for (int n = 0; n <= 300; ++n) {
    TestMatrix<float> leaves(1, n);
    Fill(leaves, n + 1);
    const float* const p = leaves.view().row(0);
    EXPECT_EQ(AdjacentPairTree(absl::MakeConstSpan(p, n)), Tree(std::vector<float>(p, p + n))) << n;
  }
}

TEST(AdjacentPairTree, IsNotASerialSum) {
  const float leaves[] = {0x1p24f, 1.0f, 1.0f, -0x1p24f};
  EXPECT_EQ(AdjacentPairTree<float>(leaves), (0x1p24f + 1.0f) + (1.0f - 0x1p24f));
  EXPECT_NE(AdjacentPairTree<float>(leaves), ((0x1p24f + 1.0f) + 1.0f) - 0x1p24f);
}

TEST(AdjacentPairTree, AdditionsWithPaddingArePerformed) {
  const float zeros[] = {-0.0f, -0.0f, -0.0f};
  EXPECT_FALSE(std::signbit(AdjacentPairTree<float>({})));
  EXPECT_TRUE(std::signbit(AdjacentPairTree<float>({zeros, 1})));
  EXPECT_TRUE(std::signbit(AdjacentPairTree<float>({zeros, 2})));
  // (-0 + -0) + (-0 + +0): the padding decides the sign.
  EXPECT_FALSE(std::signbit(AdjacentPairTree<float>({zeros, 3})));
}

TEST(AdjacentPairTree, PowerOfTwoSharesAreSubtrees) {
  TestMatrix<float> leaves(1, 64);
  Fill(leaves, 5);
  const float* const p = leaves.view().row(0);
  float shares[4];
  for (int r = 0; r < 4; ++r) shares[r] = AdjacentPairTree(absl::MakeConstSpan(p + 16 * r, 16));
  EXPECT_EQ(AdjacentPairTree<float>(shares), AdjacentPairTree(absl::MakeConstSpan(p, 64)));
}

TEST(AdjacentPairTreeOfRows, IsTheTreeOfEveryColumn) {
  for (const std::int64_t rows : kOddSizes) {
    if (rows == 0) continue;
    TestMatrix<float> leaves(rows, 9, Layout::kStrided);
    FillWithSpecials(leaves, rows);
    const TestMatrix<float> before = leaves;
    AdjacentPairTreeOfRows(leaves.span());
    for (int d = 0; d < 9; ++d) {
      std::vector<float> column;
      for (int r = 0; r < rows; ++r) column.push_back(before.at(r, d));
      EXPECT_TRUE(SameBits(leaves.at(0, d), Tree(column))) << rows << " rows, column " << d;
    }
    leaves.ExpectGapsUntouched();
  }
}

TEST(AdjacentPairTreeOfRows, AdditionsWithPaddingArePerformed) {
  for (const int rows : {1, 2, 3, 5}) {
    std::vector<float> leaves(rows, -0.0f);
    AdjacentPairTreeOfRows(RowSpan<float>(leaves.data(), rows, 1));
    EXPECT_EQ(std::signbit(leaves[0]), rows <= 2) << rows;
  }
}

TEST(SumOverTokens, TilesOf64ThenTheTreeForAnyNumberOfThreads) {
  for (const std::int64_t tokens : kOddSizes) {
    TestMatrix<float> x(tokens, 5);
    Fill(x, tokens);
    std::vector<float> expected(5);
    for (int d = 0; d < 5; ++d) {
      std::vector<float> tiles;
      for (std::int64_t t = 0; t < tokens; ++t) {
        if (t % 64 == 0) tiles.push_back(0.0f);
        tiles.back() += x.at(t, d);
      }
      expected[d] = Tree(tiles);
    }
    for (const int threads : {1, 2, 3}) {
      ThreadPool pool(threads);
      std::vector<float> total(5, 99.0f);
      SumOverTokens<float>(tokens, absl::MakeSpan(total), pool,
                           [&](std::int64_t begin, std::int64_t end, float* acc) {
                             for (std::int64_t t = begin; t < end; ++t) {
                               for (int d = 0; d < 5; ++d) acc[d] += x.at(t, d);
                             }
                           });
      EXPECT_EQ(total, expected) << tokens << " tokens, " << threads << " threads";
    }
  }
}

}  // namespace
}  // namespace headwise
