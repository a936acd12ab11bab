// What the products mean, on every edge of the tiles: the contract backend equals the plain triple
// loop bit for bit, oneDNN is close to it, and neither touches what is not its own.
//
// Break it to believe it: let each chunk of p in contract_product.cc start from +0 and add the
// chunks up, and ContractEqualsTheTripleLoop fails at 257.
#include "kernels/gemm/gemm.h"

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "core/dtype/dtype.h"
#include "gtest/gtest.h"
#include "kernels/gemm/test_problem.h"

namespace headwise {
namespace {

template <typename P>
class Gemm : public testing::Test {};
using AllTypes = testing::Types<Problem<float, float>, Problem<BFloat16, BFloat16>,
                                Problem<BFloat16, float>, Problem<double, double>>;
TYPED_TEST_SUITE(Gemm, AllTypes);

template <typename P>
class OneDnn : public testing::Test {};
using OneDnnTypes =
    testing::Types<Problem<float, float>, Problem<BFloat16, BFloat16>, Problem<BFloat16, float>>;
TYPED_TEST_SUITE(OneDnn, OneDnnTypes);

// Sizes around the vector (16), the register tile (12 x 32), the task (48) and the chunk (256).
constexpr std::int64_t kSizes[] = {0, 1, 2, 3, 15, 16, 17, 63, 64, 65, 257};

// All sizes where at most one dimension is large, and a sample of the others.
std::vector<Sizes> TileEdges() {
  std::vector<Sizes> edges;
  int large = 0;
  for (const std::int64_t t : kSizes) {
    for (const std::int64_t n : kSizes) {
      for (const std::int64_t k : kSizes) {
        if ((t > 17) + (n > 17) + (k > 17) <= 1 || ++large % 13 == 0) edges.push_back({t, n, k});
      }
    }
  }
  return edges;
}

TYPED_TEST(Gemm, ContractEqualsTheTripleLoop) {
  ThreadPool pool(2);
  bool with_bias = false;
  for (const Sizes& s : TileEdges()) {
    with_bias = !with_bias;
    for (const Which which : kAllProducts) {
      if (!TypeParam::Exists(which)) continue;
      const TypeParam p = TypeParam::Random(which, s, with_bias);
      ASSERT_TRUE(SameBits(p.Run(GemmBackend::kContract, pool), p.TripleLoop()))
          << s << " product " << static_cast<int>(which);
    }
  }
}

TYPED_TEST(Gemm, ContractKeepsInfinitiesNansZerosAndSubnormals) {
  using T = decltype(TypeParam().left(0, 0));
  using C = typename TypeParam::C;
  using Limits = std::numeric_limits<C>;
  const C special[] = {Limits::infinity(),
                       -Limits::infinity(),
                       Limits::quiet_NaN(),
                       C{0},
                       -C{0},
                       Limits::denorm_min() * 65536 * 3,
                       Limits::max(),
                       Limits::min()};
  ThreadPool pool(1);
  for (const Which which : kAllProducts) {
    if (!TypeParam::Exists(which)) continue;
    TypeParam p = TypeParam::Random(which, {37, 41, 43}, /*with_bias=*/false);
    for (std::int64_t i = 0; i < 8; ++i) {
      p.left(i, 3 * i) = Narrow<std::decay_t<T>>(special[i]);
      p.right(3 * i, i) = Narrow<std::decay_t<T>>(special[7 - i]);
    }
    EXPECT_TRUE(SameBits(p.Run(GemmBackend::kContract, pool), p.TripleLoop()));
  }
}

// What lets prefill and decode agree with a full forward.
TYPED_TEST(Gemm, ContractRowAloneEqualsTheRowInABatch) {
  ThreadPool pool(2);
  for (const Which which : {Which::kForward, Which::kBackwardInput}) {
    const TypeParam batch = TypeParam::Random(which, {70, 130, 300}, /*with_bias=*/true);
    const auto all = batch.Run(GemmBackend::kContract, pool);
    for (const std::int64_t row : {0, 11, 12, 47, 48, 69}) {
      TypeParam alone = batch;
      alone.left = decltype(alone.left)(1, batch.left.width());
      for (std::int64_t j = 0; j < batch.left.width(); ++j) alone.left(0, j) = batch.left(row, j);
      const auto one = alone.Run(GemmBackend::kContract, pool);
      for (std::int64_t j = 0; j < one.width(); ++j) {
        ASSERT_TRUE(SameBits(one(0, j), all(row, j))) << "row " << row << " column " << j;
      }
    }
  }
}

// |error| <= terms * epsilon * sum |terms|, plus one rounding to the output: any order of summation
// is inside.
TYPED_TEST(OneDnn, IsWithinTheErrorOfAnySummationOrder) {
  using TOut = std::decay_t<decltype(TypeParam().TripleLoop()(0, 0))>;
  constexpr double kEpsilon = 0x1p-23;
  constexpr double kOutEpsilon = std::is_same_v<TOut, BFloat16> ? 0x1p-8 : 0x1p-24;
  ThreadPool pool(2);
  bool with_bias = false;
  for (const Sizes& s : TileEdges()) {
    with_bias = !with_bias;
    for (const Which which : kAllProducts) {
      if (!TypeParam::Exists(which)) continue;
      const TypeParam p = TypeParam::Random(which, s, with_bias);
      const auto out = p.Run(GemmBackend::kOneDnn, pool);
      ASSERT_TRUE(out.GapsUntouched()) << s;
      p.ForEachElement([&](std::int64_t i, std::int64_t j, auto term) {
        double sum = p.bias.empty() ? 0 : p.bias[j], size = std::abs(sum);
        for (std::int64_t k = 0; k < p.terms(); ++k) {
          const auto [x, y] = term(k);
          sum += double{x} * y;
          size += std::abs(double{x} * y);
        }
        const double bound = (p.terms() + 2) * kEpsilon * size + kOutEpsilon * std::abs(sum);
        ASSERT_LE(std::abs(Widen(out(i, j)) - sum), bound)
            << s << " product " << static_cast<int>(which) << " element " << i << ", " << j;
      });
    }
  }
}

template <typename T>
class BiasGradient : public testing::Test {};
using Storages = testing::Types<float, BFloat16, double>;
TYPED_TEST_SUITE(BiasGradient, Storages);

TYPED_TEST(BiasGradient, IsTilesOf64ThenAPairTree) {
  using C = Compute<TypeParam>;
  ThreadPool pool(2);
  for (const std::int64_t tokens : {0, 1, 63, 64, 65, 128, 129, 300, 577}) {
    const auto dy = Matrix<TypeParam>::Random(tokens, 37, 3);
    std::vector<C> dbias(37, -7);
    LinearBackwardBias<TypeParam>(dy.span(), absl::MakeSpan(dbias), pool);
    for (std::int64_t n = 0; n < 37; ++n) {
      std::vector<C> sums;
      for (std::int64_t t = 0; t < tokens; ++t) {
        if (t % 64 == 0) sums.push_back(0);
        sums.back() += Widen(dy(t, n));
      }
      while (sums.size() != 1) {  // to a power of two with +0, then halve; no token: +0
        if (sums.size() % 2 != 0 || sums.empty()) sums.push_back(0);
        for (std::size_t i = 0; 2 * i + 1 < sums.size(); ++i)
          sums[i] = sums[2 * i] + sums[2 * i + 1];
        sums.resize((sums.size() + 1) / 2);
      }
      ASSERT_TRUE(SameBits(dbias[n], sums[0])) << tokens << " tokens, column " << n;
    }
  }
}

// <dy, x W^T> differentiated: dx and dw are what makes the same number, each with its own input.
TEST(LinearGradients, AreAdjointToTheForwardInDouble) {
  ThreadPool pool(1);
  const Sizes s = {19, 35, 50};
  const auto forward = Problem<double, double>::Random(Which::kForward, s, false);
  const auto dy = Matrix<double>::Random(s.tokens, s.out_features, 5);
  const auto inner = [](const Matrix<double>& a, const Matrix<double>& b) {
    double sum = 0;
    for (std::int64_t i = 0; i < a.rows(); ++i) {
      for (std::int64_t j = 0; j < a.width(); ++j) sum += a(i, j) * b(i, j);
    }
    return sum;
  };
  const double value = inner(dy, forward.Run(GemmBackend::kContract, pool));
  Problem<double, double> dx = {Which::kBackwardInput, dy, forward.right, {}};
  Problem<double, double> dw = {Which::kBackwardWeight, dy, forward.left, {}};
  EXPECT_NEAR(inner(dx.Run(GemmBackend::kContract, pool), forward.left), value, 1e-12);
  EXPECT_NEAR(inner(dw.Run(GemmBackend::kContract, pool), forward.right), value, 1e-12);
}

TEST(GemmDeathTest, ShapesThatDoNotFit) {
  ThreadPool pool(1);
  Matrix<float> x(2, 3), w(4, 5), y(2, 4);
  EXPECT_DEATH(
      (LinearForward<float, float>(GemmBackend::kContract, x.span(), w.span(), {}, y.span(), pool)),
      "in_features of x and w");
  Matrix<double> xd(2, 3), wd(4, 3), yd(2, 4);
  EXPECT_DEATH((LinearForward<double, double>(GemmBackend::kOneDnn, xd.span(), wd.span(), {},
                                              yd.span(), pool)),
               "no product in double");
}

}  // namespace
}  // namespace headwise
