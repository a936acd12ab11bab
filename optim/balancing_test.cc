#include "optim/balancing.h"

#include <vector>

#include "gtest/gtest.h"

namespace headwise {
namespace {

TEST(BalancingTest, UnusedExpertsRiseBusyOnesFallAndTheMeanStays) {
  std::vector<float> bias = {0.5f, 0.5f, 0.5f, -1.0f};
  MoveBalancingBias(0.25, std::vector<float>{6, 2, 0, 0}, absl::MakeSpan(bias));
  EXPECT_EQ(bias, (std::vector<float>{0.25f, 0.5f, 0.75f, -0.75f}));
}

TEST(BalancingTest, AMeanThatIsNoIntegerSeparatesItsNeighbours) {
  std::vector<float> bias(3, 0.0f);
  MoveBalancingBias(1, std::vector<float>{1, 1, 2}, absl::MakeSpan(bias));  // mean 4/3
  EXPECT_EQ(bias, (std::vector<float>{1, 1, -1}));
}

TEST(BalancingTest, EvenLoadsMoveNothing) {
  std::vector<float> bias = {3, -2};
  MoveBalancingBias(1, std::vector<float>{16777216, 16777216}, absl::MakeSpan(bias));
  EXPECT_EQ(bias, (std::vector<float>{3, -2}));
  std::vector<float> none;
  MoveBalancingBias(1, {}, absl::MakeSpan(none));
}

}  // namespace
}  // namespace headwise
