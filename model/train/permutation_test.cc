#include "model/train/permutation.h"

#include <vector>

#include "gtest/gtest.h"

namespace headwise {
namespace {

TEST(PermutedIndex, IsABijectionForEverySize) {
  for (std::uint64_t n = 1; n < 300; ++n) {
    std::vector<int> hits(n);
    for (std::uint64_t i = 0; i < n; ++i) ++hits[PermutedIndex(42, n, i)];
    for (std::uint64_t i = 0; i < n; ++i) ASSERT_EQ(hits[i], 1) << "n = " << n << ", i = " << i;
  }
}

TEST(PermutedIndex, KeysGiveDifferentOrdersWithoutStructure) {
  const std::uint64_t n = 100000;
  std::uint64_t fixed = 0, neighbours = 0, same = 0;
  for (std::uint64_t i = 0; i < n; ++i) {
    const std::uint64_t a = PermutedIndex(1, n, i);
    fixed += a == i;
    same += a == PermutedIndex(2, n, i);
    neighbours += i > 0 && a == PermutedIndex(1, n, i - 1) + 1;
  }
  EXPECT_LT(fixed, 12u);  // about one expected in a random order
  EXPECT_LT(same, 12u);
  EXPECT_LT(neighbours, 12u);
}

TEST(PermutedIndex, WorksPastThirtyTwoBits) {
  const std::uint64_t n = (std::uint64_t{1} << 40) + 12345;
  for (std::uint64_t i : {std::uint64_t{0}, n / 2, n - 1}) EXPECT_LT(PermutedIndex(7, n, i), n);
}

}  // namespace
}  // namespace headwise
