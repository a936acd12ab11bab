// Balancing against plain loops, bit for bit, against the definition, and against differences.
#include "kernels/moe/balancing.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/common/reductions.h"
#include "kernels/common/testing/kernel_testing.h"
#include "kernels/common/thread_pool.h"
#include "kernels/moe/router_problem.h"

namespace headwise {
namespace {

struct Balance {
  Balance(std::int64_t tokens, std::int64_t num_experts, std::int64_t chosen)
      : routed({.chosen = chosen}, tokens, num_experts, false),
        counts(num_experts),
        sums(num_experts) {
    ThreadPool pool(1);
    routed.Forward(pool);
    CountChoices(routed.Experts(), absl::MakeSpan(counts));
  }
  double Loss(ThreadPool& pool) {
    SumProbabilities<double>(routed.z.view(), absl::MakeSpan(sums), pool);
    return LoadBalancingLoss<double>(counts, sums, routed.z.rows());
  }
  Problem<double> routed;
  std::vector<std::int64_t> counts;
  std::vector<double> sums;
};

// The formula as transformers has it: means over tokens of a one-hot mask and of probabilities.
TEST(Balancing, LossIsThatOfTheDefinition) {
  ThreadPool pool(2);
  Balance b(150, 6, 2);
  std::vector<double> mask(6, 0), mean(6, 0);
  for (std::int64_t t = 0; t < 150; ++t) {
    double all = 0;
    for (std::int64_t e = 0; e < 6; ++e) all += std::exp(b.routed.z.at(t, e));
    for (std::int64_t e = 0; e < 6; ++e) mean[e] += std::exp(b.routed.z.at(t, e)) / all / 150;
    for (std::int64_t j = 0; j < 2; ++j) mask[b.routed.Experts().row(t)[j]] += 1.0 / 150;
  }
  double expected = 0;
  for (std::int64_t e = 0; e < 6; ++e) expected += 6 * mask[e] * mean[e];
  EXPECT_NEAR(b.Loss(pool), expected, 1e-12);
  EXPECT_EQ(LoadBalancingLoss<double>({}, {}, 0), 0);
  EXPECT_EQ(LoadBalancingLoss<double>({3, 3, 3, 3}, {1.5, 1.5, 1.5, 1.5}, 6), 2);  // balanced: k
}

TEST(Balancing, GradientIsTheDerivativeAndIsAdded) {
  ThreadPool pool(2);
  Balance b(70, 5, 2);
  const auto loss = [&] { return 0.7 * b.Loss(pool); };  // the counts stay
  TestMatrix<double> dz(70, 5, Layout::kStrided);
  for (std::int64_t t = 0; t < 70; ++t) std::fill_n(dz.span().row(t), 5, 100.0);
  LoadBalancingBackward<double>(b.routed.z.view(), b.counts, 70, 0.7, dz.span(), pool);
  dz.ExpectGapsUntouched();
  for (std::int64_t t = 0; t < 70; ++t) {
    for (std::int64_t e = 0; e < 5; ++e) dz.at(t, e) -= 100.0;
  }
  // Adding to 100 has cost digits.
  TestMatrix<double> exact(70, 5);
  for (std::int64_t t = 0; t < 70; ++t) std::fill_n(exact.span().row(t), 5, 0.0);
  LoadBalancingBackward<double>(b.routed.z.view(), b.counts, 70, 0.7, exact.span(), pool);
  ExpectGradient(b.routed.z, exact.view(), loss, "dz");
  for (std::int64_t t = 0; t < 70; ++t) {
    for (std::int64_t e = 0; e < 5; ++e) EXPECT_NEAR(dz.at(t, e), exact.at(t, e), 1e-12);
  }
}

// Two layers' counts, sums and tokens added up are one layer of all their tokens.
TEST(Balancing, LayersMayBePooled) {
  ThreadPool pool(1);
  Balance all(128, 6, 2), half(64, 6, 2);  // the same generator: half is the first 64 tokens
  Balance rest = half;
  for (std::int64_t t = 0; t < 64; ++t) {
    std::copy_n(all.routed.z.view().row(64 + t), 6, rest.routed.z.span().row(t));
  }
  rest.routed.Forward(pool);
  CountChoices(rest.routed.Experts(), absl::MakeSpan(rest.counts));
  const double whole = all.Loss(pool);
  half.Loss(pool);
  rest.Loss(pool);
  for (std::size_t e = 0; e < 6; ++e) {
    half.counts[e] += rest.counts[e];
    half.sums[e] += rest.sums[e];
  }
  EXPECT_EQ(LoadBalancingLoss<double>(half.counts, half.sums, 128), whole);
  TestMatrix<double> dz(128, 6), part(64, 6);
  std::fill_n(dz.span().row(0), 128 * 6, 0.0);
  std::fill_n(part.span().row(0), 64 * 6, 0.0);
  LoadBalancingBackward<double>(all.routed.z.view(), all.counts, 128, 1.0, dz.span(), pool);
  LoadBalancingBackward<double>(rest.routed.z.view(), half.counts, 128, 1.0, part.span(), pool);
  ExpectSameBits(part.view(), dz.view().Rows(64, 64), "dz");
}

template <typename C>
class BalancingTypesTest : public testing::Test {};
using Masters = testing::Types<float, double>;
TYPED_TEST_SUITE(BalancingTypesTest, Masters);

TYPED_TEST(BalancingTypesTest, ProbabilitySumsAndGradientFollowTheirOrder) {
  using C = TypeParam;
  for (const std::int64_t tokens : {0, 1, 63, 64, 65, 300}) {
    for (const std::int64_t num_experts : {3, 17, 65}) {
      Problem<C> p({.chosen = 1}, tokens, num_experts, false, Layout::kStrided);
      std::vector<C> sums(num_experts, -1);
      std::vector<std::int64_t> counts(num_experts);
      for (std::int64_t e = 0; e < num_experts; ++e) counts[e] = e * e % 7;
      ThreadPool pool(1 + tokens % 3);
      SumProbabilities<C>(p.z.view(), absl::MakeSpan(sums), pool);
      Fill(p.dz, 5);
      const TestMatrix<C> before = p.dz;
      LoadBalancingBackward<C>(p.z.view(), counts, tokens + 9, 0.3, p.dz.span(), pool);
      p.dz.ExpectGapsUntouched();
      std::vector<std::vector<C>> tiles(num_experts);
      for (std::int64_t t = 0; t < tokens; ++t) {
        const std::vector<C> probability = Softmax(RowOf(p.z, t));
        std::vector<C> a;
        C c = 0;
        for (std::int64_t e = 0; e < num_experts; ++e) {
          if (t % 64 == 0) tiles[e].push_back(0);
          tiles[e].back() += probability[e];
          const double n = static_cast<double>(tokens + 9);
          a.push_back(static_cast<C>((0.3 * static_cast<double>(num_experts) / n) *
                                     (static_cast<double>(counts[e]) / n)));
          c = std::fma(a[e], probability[e], c);
        }
        for (std::int64_t e = 0; e < num_experts; ++e) {
          const C expected = before.at(t, e) + probability[e] * (a[e] - c);
          ASSERT_TRUE(SameBits(p.dz.at(t, e), expected)) << "token " << t << " expert " << e;
        }
      }
      for (std::int64_t e = 0; e < num_experts; ++e) {
        ASSERT_TRUE(SameBits(sums[e], AdjacentPairTree<C>(tiles[e]))) << tokens << " tokens";
      }
    }
  }
}

TEST(Balancing, SelectionBiasMovesAgainstTheLoad) {
  std::vector<float> bias = {0.5f, 0.5f, 0.5f, -0.25f};
  UpdateSelectionBias({5, 3, 2, 2}, 0.125f, absl::MakeSpan(bias));  // the mean is 3
  EXPECT_EQ(bias, (std::vector<float>{0.375f, 0.5f, 0.625f, -0.125f}));
  UpdateSelectionBias({1, 0, 0, 0}, 0.125f, absl::MakeSpan(bias));  // the mean is a quarter
  EXPECT_EQ(bias, (std::vector<float>{0.25f, 0.625f, 0.75f, 0.0f}));
  UpdateSelectionBias({0, 0, 0, 0}, 0.125f, absl::MakeSpan(bias));
  EXPECT_EQ(bias, (std::vector<float>{0.25f, 0.625f, 0.75f, 0.0f}));
}

TEST(BalancingDeathTest, AnExpertOutOfRangeIsNamed) {
  const std::int32_t experts[] = {0, 1, 2, -1};
  std::vector<std::int64_t> counts(3);
  EXPECT_DEATH(CountChoices(RowSpan<const std::int32_t>(experts, 2, 2), absl::MakeSpan(counts)),
               "expert -1 of token 1, of 3 experts");
}

}  // namespace
}  // namespace headwise
