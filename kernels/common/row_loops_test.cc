#include "kernels/common/row_loops.h"

#include <tuple>
#include <vector>

#include "core/dtype/dtype.h"
#include "gtest/gtest.h"
#include "kernels/common/testing/kernel_testing.h"

namespace headwise {
namespace {

// The definition of ReduceRow, one element after another.
float SumOfSquares(const std::vector<float>& x) {
  float p[64] = {};
  for (std::size_t i = 0; i < x.size(); ++i) p[i % 64] = std::fma(x[i], x[i], p[i % 64]);
  for (int h = 32; h >= 1; h /= 2) {
    for (int c = 0; c < h; ++c) p[c] = p[c] + p[c + h];
  }
  return p[0];
}

TEST(ReduceRow, Is64ChainsAndAHalvingTree) {
  for (int n = 0; n <= 300; ++n) {
    TestMatrix<float> m(1, n, Layout::kStrided);
    Fill(m, n + 1);
    const float* const x = m.view().row(0);
    const float sum = ReduceRow<float>(
        n, [&](auto acc, auto at) HW_ALWAYS_INLINE { return Fma(at.Load(x), at.Load(x), acc); });
    EXPECT_EQ(sum, SumOfSquares(std::vector<float>(x, x + n))) << n;
  }
}

TEST(ForEachLanes, VisitsEveryElementOnce) {
  for (const std::int64_t begin : {0, 3}) {
    for (const std::int64_t end : kOddSizes) {
      std::vector<float> visits(300, 0.0f);
      ForEachLanes(begin, end, [&](auto at) {
        at.Store(visits.data(), at.Load(visits.data(), 5.0f) + F16(1.0f));
      });
      for (std::int64_t i = 0; i < 300; ++i) {
        EXPECT_EQ(visits[i], i >= begin && i < end ? 1.0f : 0.0f)
            << begin << " " << end << " " << i;
      }
    }
  }
}

// Shapes of one row, many rows, more than one block; layouts that can be flattened and not.
TEST(MapElements, AnyShapeLayoutAndNumberOfThreads) {
  const std::pair<std::int64_t, std::int64_t> shapes[] = {
      {0, 7}, {7, 0}, {1, 1}, {3, 17}, {65, 5}, {2, 40000}, {40000, 1}, {700, 63}};
  for (const auto& [rows, width] : shapes) {
    for (const Layout layout : {Layout::kContiguous, Layout::kStrided}) {
      for (const int threads : {1, 2, 3}) {
        TestMatrix<float> a(rows, width), difference(rows, width, layout);
        TestMatrix<BFloat16> b(rows, width, layout), sum(rows, width, layout);
        Fill(a, 1);
        Fill(b, 2);
        ThreadPool pool(threads);
        MapElements(std::tuple(sum.span(), difference.span()), std::tuple(a.view(), b.view()), pool,
                    [](auto x, auto y) HW_ALWAYS_INLINE { return std::tuple(x + y, x - y); });
        for (std::int64_t r = 0; r < rows; ++r) {
          for (std::int64_t c = 0; c < width; ++c) {
            const float x = a.at(r, c), y = Widen(b.at(r, c));
            ASSERT_EQ(sum.at(r, c), RoundToBFloat16(x + y));
            ASSERT_EQ(difference.at(r, c), x - y);
          }
        }
        sum.ExpectGapsUntouched();
        difference.ExpectGapsUntouched();
      }
    }
  }
}

TEST(MapElements, AnOutputMayBeAnInput) {
  TestMatrix<float> a(5, 37, Layout::kStrided);
  Fill(a, 3);
  const TestMatrix<float> before = a;
  ThreadPool pool(2);
  MapElements(std::tuple(a.span()), std::tuple(a.view(), a.view()), pool,
              [](auto x, auto y) HW_ALWAYS_INLINE { return x + y; });
  for (int r = 0; r < 5; ++r) {
    for (int c = 0; c < 37; ++c) EXPECT_EQ(a.at(r, c), 2 * before.at(r, c));
  }
}

TEST(MapElementsDeathTest, ShapesMustAgree) {
  TestMatrix<float> a(5, 6), b(5, 7), c(4, 6);
  ThreadPool pool(1);
  const auto copy = [](auto x) { return x; };
  EXPECT_DEATH(MapElements(std::tuple(a.span()), std::tuple(b.view()), pool, copy), "7 vs 6");
  EXPECT_DEATH(MapElements(std::tuple(a.span()), std::tuple(c.view()), pool, copy), "4 vs 5");
}

}  // namespace
}  // namespace headwise
