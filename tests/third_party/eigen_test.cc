#include "Eigen/Core"
#include "gtest/gtest.h"

namespace headwise {
namespace {

TEST(EigenTest, ProductOverAMap) {
  const float a[6] = {1, 2, 3, 4, 5, 6};
  using RowMajor = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const Eigen::Map<const RowMajor> map(a, 2, 3);
  const RowMajor gram = map * map.transpose();
  EXPECT_EQ(gram(0, 0), 14.0f);
  EXPECT_EQ(gram(0, 1), 32.0f);
  EXPECT_EQ(gram(1, 1), 77.0f);
}

}  // namespace
}  // namespace headwise
