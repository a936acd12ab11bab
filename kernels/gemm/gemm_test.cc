// What the products mean, on every edge of the tiles: the contract backend equals the plain triple
// loop bit for bit, oneDNN is close to it, and neither touches what is not its own.
//
// Break it to believe it: let each chunk of p in contract_product.cc start from +0 and add the
// chunks up, and ContractEqualsTheTripleLoop fails at 257.
#include "kernels/gemm/gemm.h"

#include <cmath>
#include <string>
#include <type_traits>
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
      ExpectSameBits(p.Run(GemmBackend::kContract, pool), p.TripleLoop(), which, s);
      if (this->HasFatalFailure()) return;
    }
  }
}

TYPED_TEST(Gemm, ContractKeepsInfinitiesNansZerosAndSubnormals) {
  ThreadPool pool(1);
  const Sizes s = {37, 41, 43};
  for (const Which which : kAllProducts) {
    if (!TypeParam::Exists(which)) continue;
    TypeParam p = TypeParam::Random(which, s, /*with_bias=*/false);
    // Few rows and columns, so that most elements stay finite.
    for (auto* m : {&p.left, &p.right}) {
      auto specials = TypeParam::Operand(1, m->width());
      FillWithSpecials(specials, 9);
      for (std::int64_t j = 0; j < m->width(); ++j) m->at(5, j) = specials.at(0, j);
    }
    ExpectSameBits(p.Run(GemmBackend::kContract, pool), p.TripleLoop(), which, s);
  }
}

// What lets prefill and decode agree with a full forward.
TYPED_TEST(Gemm, ContractRowAloneEqualsTheRowInABatch) {
  ThreadPool pool(2);
  const Sizes s = {70, 130, 300};
  for (const Which which : {Which::kForward, Which::kBackwardInput}) {
    const TypeParam batch = TypeParam::Random(which, s, /*with_bias=*/true);
    const auto all = batch.Run(GemmBackend::kContract, pool);
    for (const std::int64_t row : {0, 11, 12, 47, 48, 69}) {
      TypeParam alone = batch;
      alone.left = TypeParam::Operand(1, batch.left.width());
      for (std::int64_t j = 0; j < batch.left.width(); ++j) {
        alone.left.at(0, j) = batch.left.at(row, j);
      }
      const auto one = alone.Run(GemmBackend::kContract, pool);
      ExpectSameBits(one.view(), all.view().Rows(row, 1), "row " + std::to_string(row));
    }
  }
}

// |error| <= terms * epsilon * sum |terms|, plus one rounding to the output: any order of summation
// is inside.
TYPED_TEST(OneDnn, IsWithinTheErrorOfAnySummationOrder) {
  using TOut = std::decay_t<decltype(std::declval<TypeParam>().Output().at(0, 0))>;
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
      for (std::int64_t i = 0; i < out.rows(); ++i) {
        for (std::int64_t j = 0; j < out.width(); ++j) {
          double sum = p.bias.empty() ? 0 : p.bias[j], size = std::abs(sum);
          for (std::int64_t k = 0; k < p.terms(); ++k) {
            const auto [x, y] = p.Term(i, j, k);
            sum += double{x} * y;
            size += std::abs(double{x} * y);
          }
          const double bound = (p.terms() + 2) * kEpsilon * size + kOutEpsilon * std::abs(sum);
          ASSERT_LE(std::abs(Widen(out.at(i, j)) - sum), bound)
              << s << " product " << static_cast<int>(which) << " element " << i << ", " << j;
        }
      }
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
    TestMatrix<TypeParam> dy(tokens, 37, Layout::kStrided);
    Fill(dy, 3);
    std::vector<C> dbias(37, -7);
    LinearBackwardBias<TypeParam>(dy.view(), absl::MakeSpan(dbias), pool);
    for (std::int64_t n = 0; n < 37; ++n) {
      std::vector<C> sums;
      for (std::int64_t t = 0; t < tokens; ++t) {
        if (t % 64 == 0) sums.push_back(0);
        sums.back() += Widen(dy.at(t, n));
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
  using P = Problem<double, double>;
  const P forward = P::Random(Which::kForward, s, /*with_bias=*/false);
  TestMatrix<double> dy(s.tokens, s.out_features);
  Fill(dy, 5);
  const auto inner = [](const TestMatrix<double>& a, const TestMatrix<double>& b) {
    double sum = 0;
    for (std::int64_t i = 0; i < a.rows(); ++i) {
      for (std::int64_t j = 0; j < a.width(); ++j) sum += a.at(i, j) * b.at(i, j);
    }
    return sum;
  };
  const double value = inner(dy, forward.Run(GemmBackend::kContract, pool));
  const P dx(Which::kBackwardInput, dy, forward.right);
  const P dw(Which::kBackwardWeight, dy, forward.left);
  EXPECT_NEAR(inner(dx.Run(GemmBackend::kContract, pool), forward.left), value, 1e-12);
  EXPECT_NEAR(inner(dw.Run(GemmBackend::kContract, pool), forward.right), value, 1e-12);
}

TEST(GemmDeathTest, ShapesThatDoNotFit) {
  ThreadPool pool(1);
  TestMatrix<float> x(2, 3), w(4, 5), y(2, 4);
  EXPECT_DEATH(
      (LinearForward<float, float>(GemmBackend::kContract, x.view(), w.view(), {}, y.span(), pool)),
      "in_features of x and w");
  TestMatrix<double> xd(2, 3), wd(4, 3), yd(2, 4);
  EXPECT_DEATH((LinearForward<double, double>(GemmBackend::kOneDnn, xd.view(), wd.view(), {},
                                              yd.span(), pool)),
               "no product in double");
}

}  // namespace
}  // namespace headwise
