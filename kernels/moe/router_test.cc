// The router against plain loops, bit for bit, against the definition, and against
// differences.
//
// Break it to believe it: let the later of two equal experts win in router.cc's Choose, sum
// unit_[j] from the last, or leave c out of a gradient, and a test fails.
#include "kernels/moe/router.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "core/io/checksum.h"
#include "gtest/gtest.h"
#include "kernels/common/math.h"
#include "kernels/common/testing/kernel_testing.h"
#include "kernels/common/thread_pool.h"
#include "kernels/moe/router_problem.h"

namespace headwise {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// --- The contract, one token at a time -----------------------------------------------------------

template <typename C>
struct Token {
  Token(const Router& op, const std::vector<C>& logits, const std::vector<C>& bias)
      : op(op), z(logits) {
    for (C& x : z) x = x * static_cast<C>(op.multiplier);
    scores = z;
    if (op.score == RouterScore::kSoftmax) scores = Softmax(z);
    if (op.score == RouterScore::kSigmoid) {
      for (C& x : scores) x = Sigmoid(x);
    }
    std::vector<C> key = z;
    for (std::size_t e = 0; e < bias.size(); ++e) key[e] = scores[e] + bias[e];
    for (C& x : key) x = std::isnan(x) ? -std::numeric_limits<C>::infinity() : x;
    experts.resize(z.size());
    std::iota(experts.begin(), experts.end(), 0);
    std::stable_sort(experts.begin(), experts.end(),
                     [&](std::int32_t a, std::int32_t b) { return key[a] > key[b]; });
    experts.resize(op.chosen);
    C max = -std::numeric_limits<C>::infinity();
    for (const std::int32_t e : experts) max = z[e] > max ? z[e] : max;
    const bool softmax = op.score == RouterScore::kSoftmax;
    for (const std::int32_t e : experts) {
      unit.push_back(softmax && op.normalize ? Exp(z[e] - max) : scores[e]);
    }
    if (op.normalize) {
      sum = 0;
      for (const C u : unit) sum = sum + u;
      if (!softmax) sum = sum + C(1e-20);
      for (C& u : unit) u = u / sum;
    }
  }

  std::vector<C> Weights() const {
    std::vector<C> w = unit;
    for (C& x : w) x = x * static_cast<C>(op.scale);
    return w;
  }

  // dlogits
  std::vector<C> Gradient(const std::vector<C>& dweights) const {
    const C multiplier = static_cast<C>(op.multiplier);
    std::vector<C> g(z.size(), 0), dz(z.size(), 0);
    C c = 0;
    for (std::int64_t j = 0; j < op.chosen; ++j) {
      g[experts[j]] = dweights[j] * static_cast<C>(op.scale);
      c = std::fma(g[experts[j]], unit[j], c);
    }
    if (op.score == RouterScore::kSoftmax && !op.normalize) {
      for (std::size_t e = 0; e < z.size(); ++e) {
        dz[e] = (scores[e] * (g[e] - c)) * multiplier;
      }
      return dz;
    }
    for (std::int64_t j = 0; j < op.chosen; ++j) {
      const std::int32_t e = experts[j];
      const C st = Sigmoid(z[e]) * Sigmoid(-z[e]);
      dz[e] = op.score == RouterScore::kSoftmax ? unit[j] * (g[e] - c)
              : op.normalize                    ? ((g[e] - c) / sum) * st
                                                : g[e] * st;
      dz[e] = dz[e] * multiplier;
    }
    return dz;
  }

  Router op;
  std::vector<C> z, scores, unit;
  std::vector<std::int32_t> experts;
  C sum = 1;
};

std::vector<Router> AllRouters(std::int64_t chosen, double scale) {
  std::vector<Router> routers;
  for (const RouterScore score : {RouterScore::kSoftmax, RouterScore::kSigmoid}) {
    for (const bool normalize : {false, true}) routers.push_back({chosen, score, normalize, scale});
  }
  return routers;
}

std::string Describe(const Router& op) {
  return std::string(op.score == RouterScore::kSoftmax ? "softmax" : "sigmoid") +
         (op.normalize ? " normalized" : "") + ", top " + std::to_string(op.chosen);
}

template <typename C>
void ExpectReferenceBits(Problem<C> p, int threads) {
  ThreadPool pool(threads);
  p.Forward(pool);
  p.Backward(pool);
  for (std::int64_t t = 0; t < p.z.rows(); ++t) {
    const Token<C> token(p.op, RowOf(p.z, t), RowOf(p.bias, 0));
    const std::vector<C> weights = token.Weights();
    const std::vector<C> dz = token.Gradient(RowOf(p.dweights, t));
    for (std::int64_t j = 0; j < p.op.chosen; ++j) {
      ASSERT_EQ(p.Experts().row(t)[j], token.experts[j]) << Describe(p.op) << ", token " << t;
      ASSERT_TRUE(SameBits(p.weights.at(t, j), weights[j]))
          << Describe(p.op) << " of " << p.z.width() << ", token " << t << ": "
          << p.weights.at(t, j) << ", expected " << weights[j];
    }
    for (std::int64_t e = 0; e < p.z.width(); ++e) {
      ASSERT_TRUE(SameBits(p.dz.at(t, e), dz[e]))
          << Describe(p.op) << " of " << p.z.width() << ", token " << t << ", expert " << e << ": "
          << p.dz.at(t, e) << ", expected " << dz[e];
    }
  }
  p.weights.ExpectGapsUntouched();
  p.dz.ExpectGapsUntouched();
}

// --- Router --------------------------------------------------------------------------------------

template <typename C>
class RouterTest : public testing::Test {};
using Masters = testing::Types<float, double>;
TYPED_TEST_SUITE(RouterTest, Masters);

TYPED_TEST(RouterTest, EqualsTheReference) {
  for (const std::int64_t num_experts : {1, 2, 3, 8, 15, 16, 17, 32, 63, 64, 65, 130, 257}) {
    for (const std::int64_t chosen : {std::int64_t{1}, std::int64_t{4}, num_experts}) {
      if (chosen > num_experts) continue;
      for (const Router& op : AllRouters(chosen, 2.5)) {
        for (const bool biased : {false, true}) {
          Problem<TypeParam> p(op, 67, num_experts, biased, Layout::kStrided);
          ExpectReferenceBits(p, 1 + num_experts % 3);
          FillWithSpecials(p.z, 9);
          FillWithSpecials(p.dweights, 10);
          ExpectReferenceBits(p, 2);
          if (this->HasFatalFailure()) return;
        }
      }
    }
  }
  for (const double multiplier : {0.3, -2.5, 0.0}) {
    for (const std::int64_t num_experts : {1, 16, 33}) {
      for (Router op : AllRouters(1 + num_experts / 4, 2.5)) {
        op.multiplier = multiplier;
        for (const bool biased : {false, true}) {
          Problem<TypeParam> p(op, 40, num_experts, biased, Layout::kStrided);
          ExpectReferenceBits(p, 2);
          FillWithSpecials(p.z, 9);
          FillWithSpecials(p.dweights, 10);
          ExpectReferenceBits(p, 2);
          if (this->HasFatalFailure()) return;
        }
      }
    }
  }
  for (const std::int64_t tokens : {0, 1, 2, 31, 32, 33, 65}) {
    ExpectReferenceBits(Problem<TypeParam>({.chosen = 2}, tokens, 5, true), 3);
  }
}

TYPED_TEST(RouterTest, WeightsAreThoseOfTheDefinition) {
  ThreadPool pool(1);
  for (const Router& op : AllRouters(4, 1.5)) {
    Problem<TypeParam> p(op, 20, 24, false);
    p.Forward(pool);
    for (std::int64_t t = 0; t < 20; ++t) {
      std::vector<double> score;
      double all = 0;
      for (const TypeParam z : RowOf(p.z, t)) {
        score.push_back(op.score == RouterScore::kSoftmax ? std::exp(z) : 1 / (1 + std::exp(-z)));
        all += score.back();
      }
      std::vector<double> sorted = score;
      std::sort(sorted.rbegin(), sorted.rend());
      double divisor = op.score == RouterScore::kSoftmax ? all : 1;
      if (op.normalize) divisor = std::accumulate(sorted.begin(), sorted.begin() + 4, 0.0);
      for (std::int64_t j = 0; j < 4; ++j) {
        EXPECT_NEAR(p.weights.at(t, j), 1.5 * sorted[j] / divisor, 1e-6) << Describe(op);
        EXPECT_EQ(score[p.Experts().row(t)[j]], sorted[j]) << Describe(op);
      }
    }
  }
}

// Logits so far apart that no difference changes the choice.
TEST(Router, GradientsAreDerivatives) {
  ThreadPool pool(1);
  for (Router op : AllRouters(3, 2.5)) {
    for (const bool biased : {false, true}) {
      op.multiplier = biased ? 0.7 : 1.0;
      Problem<double> p(op, 5, 11, biased);
      for (std::int64_t t = 0; t < 5; ++t) {
        for (std::int64_t e = 0; e < 11; ++e) p.z.at(t, e) = 0.31 * ((e * 4 + t * 3) % 11) - 1.3;
      }
      const auto loss = [&] {
        p.Forward(pool);
        double sum = 0;
        for (std::int64_t t = 0; t < 5; ++t) {
          for (std::int64_t j = 0; j < 3; ++j) sum += p.weights.at(t, j) * p.dweights.at(t, j);
        }
        return sum;
      };
      loss();
      p.Backward(pool);
      ExpectGradient(p.z, p.dz.view(), loss, Describe(op));
    }
  }
}

// A multiplier is that of the logits: a power of two, which rounds nothing, done before.
TEST(Router, TheMultiplierScalesTheLogits) {
  ThreadPool pool(1);
  for (Router op : AllRouters(3, 1.5)) {
    Problem<float> before(op, 10, 12, true);
    op.multiplier = 0.25;
    Problem<float> inside(op, 10, 12, true);
    for (std::int64_t t = 0; t < 10; ++t) {
      for (std::int64_t e = 0; e < 12; ++e) before.z.at(t, e) *= 0.25f;
    }
    for (Problem<float>* p : {&before, &inside}) {
      p->Forward(pool);
      p->Backward(pool);
    }
    for (std::int64_t t = 0; t < 10; ++t) {
      for (std::int64_t e = 0; e < 12; ++e) before.dz.at(t, e) *= 0.25f;
    }
    EXPECT_EQ(inside.experts, before.experts) << Describe(op);
    ExpectSameBits(inside.weights.view(), before.weights.view(), Describe(op));
    ExpectSameBits(inside.dz.view(), before.dz.view(), Describe(op));
  }
}

TEST(Router, EqualExpertsComeInTheirOrder) {
  ThreadPool pool(1);
  Problem<float> p({.chosen = 4}, 3, 20, false);
  std::fill_n(p.z.span().row(0), 60, 1.0f);
  p.z.at(1, 19) = 2.0f;
  for (const std::int64_t e : {3, 7}) p.z.at(1, e) = 2.0f;
  p.z.at(2, 0) = p.z.at(2, 1) = -1.0f;
  p.z.at(2, 5) = 0.0f;
  for (std::int64_t e = 2; e < 20; ++e) p.z.at(2, e) = e % 2 == 0 ? 0.0f : -0.0f;  // equal
  p.Forward(pool);
  EXPECT_EQ(p.experts, (std::vector<std::int32_t>{0, 1, 2, 3, 3, 7, 19, 0, 2, 3, 4, 5}));
  for (std::int64_t j = 0; j < 4; ++j) EXPECT_EQ(p.weights.at(0, j), 0.25f);
}

TEST(Router, NanLogitsAreChosenLastAndStayInTheirToken) {
  ThreadPool pool(1);
  for (const Router& op : AllRouters(3, 1.0)) {
    for (const bool biased : {false, true}) {
      Problem<float> clean(op, 3, 6, biased);
      Problem<float> dirty = clean;
      dirty.z.at(1, 2) = kNan;
      clean.Forward(pool);
      clean.Backward(pool);
      dirty.Forward(pool);
      dirty.Backward(pool);
      for (const std::int64_t t : {0, 2}) {
        ExpectSameBits(dirty.weights.view().Rows(t, 1), clean.weights.view().Rows(t, 1), "w");
        ExpectSameBits(dirty.dz.view().Rows(t, 1), clean.dz.view().Rows(t, 1), "dz");
      }
      if (op.score == RouterScore::kSoftmax && biased) continue;  // every score is NaN
      for (std::int64_t j = 0; j < 3; ++j) EXPECT_NE(dirty.Experts().row(1)[j], 2);
    }
  }
  Problem<float> all({.chosen = 3}, 1, 5, false);
  for (std::int64_t e = 0; e < 5; ++e) all.z.at(0, e) = e == 4 ? -kInfinity : kNan;
  all.Forward(pool);
  EXPECT_EQ(all.experts, (std::vector<std::int32_t>{0, 1, 2}));
}

TEST(Router, SelectionBiasChoosesAndDoesNotWeigh) {
  ThreadPool pool(1);
  for (Router op : AllRouters(2, 1.0)) {
    Problem<float> p(op, 1, 4, true);
    for (std::int64_t e = 0; e < 4; ++e) p.z.at(0, e) = 2.0f - 0.5f * static_cast<float>(e);
    std::fill_n(p.bias.span().row(0), 4, 0.0f);
    p.bias.at(0, 3) = 10.0f;
    p.Forward(pool);
    EXPECT_EQ(p.experts, (std::vector<std::int32_t>{3, 0})) << Describe(op);
    const double s3 = op.score == RouterScore::kSoftmax ? std::exp(0.5) : 1 / (1 + std::exp(-0.5));
    const double s0 = op.score == RouterScore::kSoftmax ? std::exp(2.0) : 1 / (1 + std::exp(-2.0));
    EXPECT_NEAR(p.weights.at(0, 0) / p.weights.at(0, 1), s3 / s0, 1e-6) << Describe(op);
  }
}

// Far down the tails of the sigmoid the epsilon holds the sum up; softmax needs none.
TEST(Router, NormalizedWeightsFarDown) {
  ThreadPool pool(1);
  Problem<float> sigmoid({2, RouterScore::kSigmoid}, 1, 3, false);
  Problem<float> softmax({2, RouterScore::kSoftmax}, 1, 3, false);
  for (std::int64_t e = 0; e < 3; ++e) {
    sigmoid.z.at(0, e) = softmax.z.at(0, e) = -200.0f - static_cast<float>(e);
  }
  sigmoid.Forward(pool);
  softmax.Forward(pool);
  EXPECT_EQ(sigmoid.weights.at(0, 0), 0.0f);
  EXPECT_FLOAT_EQ(softmax.weights.at(0, 0), 0.7310585786f);
}

template <typename C>
std::uint64_t Golden() {
  Fnv1a64 sum;
  ThreadPool pool(2);
  for (const Router& op : AllRouters(4, 2.5)) {
    for (const bool biased : {false, true}) {
      Problem<C> p(op, 50, 33, biased);
      p.Forward(pool);
      p.Backward(pool);
      sum.Update(p.experts.data(), p.experts.size() * sizeof(std::int32_t));
      AddToChecksum(sum, p.weights.view());
      AddToChecksum(sum, p.dz.view());
    }
  }
  return sum.value();
}
TEST(Router, BitsAreGolden) { EXPECT_EQ(Golden<float>(), 0xb8d4fbddc96a7f05u); }

TEST(RouterDeathTest, ArgumentsThatDoNotFit) {
  ThreadPool pool(1);
  EXPECT_DEATH(Problem<float>({.chosen = 6}, 2, 5, false).Forward(pool), "6 chosen of 5 experts");
  EXPECT_DEATH(Problem<float>({.chosen = 0}, 2, 5, false).Forward(pool), "0 chosen of 5 experts");
  Problem<float> p({.chosen = 2}, 2, 5, false);
  p.experts = {0, 1, 2, 5};
  EXPECT_DEATH(p.Backward(pool), "expert 5 of token 1, of 5 experts");
  p.bias = TestMatrix<float>(1, 4);
  EXPECT_DEATH(p.Forward(pool), "selection_bias has 4 elements");
}

}  // namespace
}  // namespace headwise
