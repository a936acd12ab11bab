// Grouping and grouped linear layers against plain loops, bit for bit, and against differences; and
// the property that a layer of experts is made for: a token's bits do not depend on the batch.
//
// Break it to believe it: let GroupByExpert fill each expert's rows from the end, start CombineForward
// at the last choice, or let GroupedLinearBackwardWeight skip experts without rows, and a test fails.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "core/dtype/dtype.h"
#include "gtest/gtest.h"
#include "kernels/common/testing/kernel_testing.h"
#include "kernels/common/thread_pool.h"
#include "kernels/gemm/gemm.h"
#include "kernels/moe/grouped_linear.h"
#include "kernels/moe/grouping.h"
#include "kernels/moe/router.h"

namespace headwise {
namespace {

// Choices of distinct experts; those of odd number are rare, and expert 2 has none.
std::vector<std::int32_t> Choices(std::int64_t tokens, std::int64_t chosen,
                                  std::int64_t num_experts) {
  std::mt19937_64 random(7);
  std::vector<std::int32_t> choices;
  for (std::int64_t t = 0; t < tokens; ++t) {
    std::vector<std::int32_t> mine;
    while (static_cast<std::int64_t>(mine.size()) < chosen) {
      auto e = static_cast<std::int32_t>(random() % num_experts);
      if (e == 2 || (e % 2 == 1 && random() % 4 != 0)) continue;
      if (std::find(mine.begin(), mine.end(), e) == mine.end()) mine.push_back(e);
    }
    choices.insert(choices.end(), mine.begin(), mine.end());
  }
  return choices;
}

ExpertGroups Groups(std::int64_t tokens, std::int64_t chosen, std::int64_t num_experts) {
  const std::vector<std::int32_t> choices = Choices(tokens, chosen, num_experts);
  return GroupByExpert(RowSpan<const std::int32_t>(choices.data(), tokens, chosen), num_experts);
}

TEST(Grouping, IsAStableSortByExpert) {
  for (const std::int64_t tokens : {0, 1, 2, 63, 64, 65, 257}) {
    for (const std::int64_t chosen : {1, 2, 4}) {
      const std::vector<std::int32_t> choices = Choices(tokens, chosen, 12);
      const ExpertGroups groups =
          GroupByExpert(RowSpan<const std::int32_t>(choices.data(), tokens, chosen), 12);
      std::vector<std::int64_t> order(tokens * chosen);  // choice of each row
      for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
      std::stable_sort(order.begin(), order.end(),
                       [&](std::int64_t a, std::int64_t b) { return choices[a] < choices[b]; });
      ASSERT_EQ(groups.row_of.size(), order.size());
      ASSERT_EQ(groups.rows(), tokens * chosen);
      for (std::size_t row = 0; row < order.size(); ++row) {
        ASSERT_EQ(groups.row_of[order[row]], row);
        const std::int32_t e = choices[order[row]];
        ASSERT_GE(row, groups.offsets[e]);
        ASSERT_LT(row, groups.offsets[e + 1]);
      }
      ASSERT_EQ(groups.num_experts(), 12);
      ASSERT_EQ(groups.count(2), 0);
      ASSERT_EQ(groups.offsets.front(), 0);
      ASSERT_EQ(groups.offsets.back(), tokens * chosen);
    }
  }
}

TEST(GroupingDeathTest, AnExpertOutOfRangeIsNamed) {
  const std::int32_t choices[] = {0, 1, 2, 3};
  EXPECT_DEATH(GroupByExpert(RowSpan<const std::int32_t>(choices, 2, 2), 3),
               "expert 3 of token 1, of 3 experts");
}

// What dispatch and combine compute, one element at a time.
template <typename T>
struct Exchange {
  using C = Compute<T>;

  Exchange(const ExpertGroups& groups, std::int64_t width, Layout layout, bool specials)
      : groups(groups),
        x(groups.tokens, width, layout),
        dy(x),
        y(x),
        dx(x),
        rows(groups.rows(), width, layout),
        outputs(rows),
        drows(rows),
        doutputs(rows),
        weights(groups.tokens, groups.chosen, layout),
        dweights(weights) {
    int seed = 0;
    for (TestMatrix<T>* m : {&x, &dy, &outputs, &drows}) {
      specials ? FillWithSpecials(*m, ++seed) : Fill(*m, ++seed);
    }
    Fill(weights, 9);
  }
  void Run(ThreadPool& pool) {
    DispatchForward<T>(groups, x.view(), rows.span(), pool);
    CombineForward<T>(groups, weights.view(), outputs.view(), y.span(), pool);
    CombineBackward<T>(groups, weights.view(), outputs.view(), dy.view(), doutputs.span(),
                       dweights.span(), pool);
    DispatchBackward<T>(groups, drows.view(), dx.span(), pool);
  }
  void RunReference() {
    const std::int64_t k = groups.chosen;
    for (std::int64_t t = 0; t < groups.tokens; ++t) {
      for (std::int64_t n = 0; n < x.width(); ++n) {
        C sum = 0, dsum = 0;
        for (std::int64_t j = 0; j < k; ++j) {
          const std::int64_t row = groups.row_of[t * k + j];
          rows.at(row, n) = x.at(t, n);
          sum = std::fma(weights.at(t, j), Widen(outputs.at(row, n)), sum);
          doutputs.at(row, n) = Narrow<T>(weights.at(t, j) * Widen(dy.at(t, n)));
          dsum = dsum + Widen(drows.at(row, n));
        }
        y.at(t, n) = Narrow<T>(sum);
        dx.at(t, n) = Narrow<T>(dsum);
      }
      for (std::int64_t j = 0; j < k; ++j) {
        C chain[64] = {};
        for (std::int64_t n = 0; n < x.width(); ++n) {
          chain[n % 64] = std::fma(Widen(dy.at(t, n)),
                                   Widen(outputs.at(groups.row_of[t * k + j], n)), chain[n % 64]);
        }
        for (int h = 32; h >= 1; h /= 2) {
          for (int i = 0; i < h; ++i) chain[i] = chain[i] + chain[i + h];
        }
        dweights.at(t, j) = chain[0];
      }
    }
  }
  void ExpectSameOutputs(const Exchange& expected, const std::string& what) const {
    ExpectSameBits(rows.view(), expected.rows.view(), "rows, " + what);
    ExpectSameBits(y.view(), expected.y.view(), "y, " + what);
    ExpectSameBits(doutputs.view(), expected.doutputs.view(), "doutputs, " + what);
    ExpectSameBits(dweights.view(), expected.dweights.view(), "dweights, " + what);
    ExpectSameBits(dx.view(), expected.dx.view(), "dx, " + what);
    for (const TestMatrix<T>* m : {&rows, &y, &doutputs, &dx}) m->ExpectGapsUntouched();
    dweights.ExpectGapsUntouched();
  }

  const ExpertGroups& groups;
  TestMatrix<T> x, dy, y, dx;                    // [T, N]
  TestMatrix<T> rows, outputs, drows, doutputs;  // [T k, N]
  TestMatrix<C> weights, dweights;               // [T, k]
};

template <typename T>
class Experts : public testing::Test {};
using Storages = testing::Types<float, BFloat16, double>;
TYPED_TEST_SUITE(Experts, Storages);

TYPED_TEST(Experts, DispatchAndCombineEqualTheReference) {
  for (const std::int64_t tokens : {0, 1, 2, 40}) {
    for (const std::int64_t chosen : {1, 4}) {
      const ExpertGroups groups = Groups(tokens, chosen, 9);
      for (const std::int64_t width : kOddSizes) {
        for (const bool specials : {false, true}) {
          Exchange<TypeParam> problem(groups, width, Layout::kStrided, specials);
          Exchange<TypeParam> expected = problem;
          expected.RunReference();
          for (const int threads : {1, 2, 3}) {
            ThreadPool pool(threads);
            Exchange<TypeParam> actual = problem;
            actual.Run(pool);
            actual.ExpectSameOutputs(
                expected, std::to_string(tokens) + " tokens, width " + std::to_string(width));
            if (this->HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

// --- Grouped linear ------------------------------------------------------------------------------

template <typename TIn, typename TOut>
struct Linear {
  using C = Compute<TIn>;
  static constexpr bool kWeights = std::is_same_v<TOut, C>;

  Linear(const ExpertGroups& groups, std::int64_t n, std::int64_t k)
      : groups(groups),
        x(groups.rows(), k, Layout::kStrided),
        dy(groups.rows(), n, Layout::kStrided),
        w(groups.num_experts() * n, k, Layout::kStrided),
        y(groups.rows(), n, Layout::kStrided),
        dx(groups.rows(), k, Layout::kStrided),
        bias(groups.num_experts(), n, Layout::kStrided),
        dbias(bias),
        dw(groups.num_experts() * n, k, Layout::kStrided) {
    Fill(x, 1);
    Fill(dy, 2);
    Fill(w, 3);
    Fill(bias, 4);
    Fill(dw, 5);  // overwritten
  }
  void Run(GemmBackend backend, ThreadPool& pool, bool with_bias = true) {
    GroupedLinearForward<TIn, TOut>(backend, groups.offsets, x.view(), w.view(),
                                    with_bias ? bias.view() : RowSpan<const C>(), y.span(), pool);
    GroupedLinearBackwardInput<TIn, TOut>(backend, groups.offsets, dy.view(), w.view(), dx.span(),
                                          pool);
    GroupedLinearBackwardWeight<TIn>(backend, groups.offsets, dy.view(), x.view(), dw.span(), pool);
    GroupedLinearBackwardBias<TIn>(groups.offsets, dy.view(), dbias.span(), pool);
    y.ExpectGapsUntouched();
    dx.ExpectGapsUntouched();
    dw.ExpectGapsUntouched();
    dbias.ExpectGapsUntouched();
  }
  // The contract product, as one would read it aloud.
  void RunTripleLoop(bool with_bias) {
    const std::int64_t n_out = y.width(), n_in = x.width();
    for (std::int64_t e = 0; e < groups.num_experts(); ++e) {
      const std::int64_t begin = groups.offsets[e], end = groups.offsets[e + 1];
      for (std::int64_t r = begin; r < end; ++r) {
        for (std::int64_t n = 0; n < n_out; ++n) {
          C sum = 0;
          for (std::int64_t k = 0; k < n_in; ++k) {
            sum = std::fma(Widen(x.at(r, k)), Widen(w.at(e * n_out + n, k)), sum);
          }
          y.at(r, n) = Narrow<TOut>(with_bias ? sum + bias.at(e, n) : sum);
        }
        for (std::int64_t k = 0; k < n_in; ++k) {
          C sum = 0;
          for (std::int64_t n = 0; n < n_out; ++n) {
            sum = std::fma(Widen(dy.at(r, n)), Widen(w.at(e * n_out + n, k)), sum);
          }
          dx.at(r, k) = Narrow<TOut>(sum);
        }
      }
      for (std::int64_t n = 0; n < n_out; ++n) {
        for (std::int64_t k = 0; k < n_in; ++k) {
          C sum = 0;
          for (std::int64_t r = begin; r < end; ++r) {
            sum = std::fma(Widen(dy.at(r, n)), Widen(x.at(r, k)), sum);
          }
          dw.at(e * n_out + n, k) = sum;
        }
        C sum = 0;  // at most 64 rows of an expert: one tile
        for (std::int64_t r = begin; r < end; ++r) sum = sum + Widen(dy.at(r, n));
        dbias.at(e, n) = sum;
      }
    }
  }

  ExpertGroups groups;
  TestMatrix<TIn> x, dy, w;
  TestMatrix<TOut> y, dx;
  TestMatrix<C> bias, dbias, dw;
};

template <typename L>
class GroupedLinear : public testing::Test {};
using AllTypes = testing::Types<Linear<float, float>, Linear<BFloat16, BFloat16>,
                                Linear<BFloat16, float>, Linear<double, double>>;
TYPED_TEST_SUITE(GroupedLinear, AllTypes);

TYPED_TEST(GroupedLinear, ContractEqualsTheTripleLoop) {
  bool with_bias = false;
  for (const std::int64_t tokens : {0, 1, 5, 70}) {
    const ExpertGroups groups = Groups(tokens, 2, 6);
    for (const auto& [n, k] : {std::pair{1, 17}, {33, 64}, {20, 0}, {0, 5}}) {
      with_bias = !with_bias;
      TypeParam actual(groups, n, k);
      TypeParam expected = actual;
      expected.RunTripleLoop(with_bias);
      ThreadPool pool(1 + tokens % 3);
      actual.Run(GemmBackend::kContract, pool, with_bias);
      const std::string what =
          std::to_string(tokens) + " tokens, " + std::to_string(n) + " x " + std::to_string(k);
      ExpectSameBits(actual.y.view(), expected.y.view(), "y, " + what);
      ExpectSameBits(actual.dx.view(), expected.dx.view(), "dx, " + what);
      ExpectSameBits(actual.dw.view(), expected.dw.view(), "dw, " + what);
      ExpectSameBits(actual.dbias.view(), expected.dbias.view(), "dbias, " + what);
      if (this->HasFatalFailure()) return;
    }
  }
}

// Every number of rows that is padded, and those that are not.
TYPED_TEST(GroupedLinear, OneDnnIsCloseToTheContractForAnyNumberOfRows) {
  if constexpr (!std::is_same_v<typename TypeParam::C, double>) {
    ExpertGroups groups;
    groups.offsets = {0};
    for (const std::int64_t rows : {0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 63, 64, 65, 100, 0}) {
      groups.offsets.push_back(groups.offsets.back() + rows);
    }
    groups.tokens = groups.offsets.back();
    groups.chosen = 1;
    TypeParam problem(groups, 24, 40);
    TypeParam expected = problem;
    ThreadPool one(1), three(3);
    expected.Run(GemmBackend::kContract, one);
    TypeParam first = problem, second = problem;
    first.Run(GemmBackend::kOneDnn, one);
    second.Run(GemmBackend::kOneDnn, three);
    const auto compare = [](const auto& actual, const auto& same, const auto& wanted,
                            const std::string& what) {
      ExpectSameBits(actual.view(), same.view(), what);
      const double ulp = sizeof(actual.at(0, 0)) == 2 ? 0x1p-8 : 0x1p-20;
      for (std::int64_t r = 0; r < wanted.rows(); ++r) {
        for (std::int64_t c = 0; c < wanted.width(); ++c) {
          const double x = Widen(wanted.at(r, c));
          ASSERT_NEAR(Widen(actual.at(r, c)), x, ulp * (std::abs(x) + 1)) << what << r << ", " << c;
        }
      }
    };
    compare(second.y, first.y, expected.y, "y");
    compare(second.dx, first.dx, expected.dx, "dx");
    compare(second.dw, first.dw, expected.dw, "dw");
    ExpectSameBits(second.dbias.view(), first.dbias.view(), "dbias");
  }
}

TEST(GroupedLinearDeathTest, ShapesThatDoNotFit) {
  ThreadPool pool(1);
  Linear<float, float> p(Groups(4, 2, 3 + 1), 5, 6);
  p.groups.offsets.back() = 7;
  EXPECT_DEATH(p.Run(GemmBackend::kContract, pool), "from 0 to the 8 rows");
  Linear<float, float> q(Groups(4, 2, 4), 5, 6);
  q.w = TestMatrix<float>(19, 6);
  EXPECT_DEATH(q.Run(GemmBackend::kContract, pool), "experts times out_features");
}

// --- All of it -----------------------------------------------------------------------------------

// A layer of experts that are one linear each: y[t] = sum_j w[t][j] (W_e x[t] + b_e).
template <typename T>
struct Layer {
  using C = Compute<T>;

  Layer(std::int64_t num_experts, std::int64_t width)
      : router({.chosen = 3}),
        gate(num_experts, width),
        w(num_experts * width, width),
        bias(num_experts, width) {
    Fill(gate, 1);
    Fill(w, 2, 0.5);
    Fill(bias, 3);
  }
  TestMatrix<T> Forward(const TestMatrix<T>& x, ThreadPool& pool) const {
    TestMatrix<C> logits(x.rows(), gate.rows()), weights(x.rows(), 3);
    LinearForward<T, C>(GemmBackend::kContract, x.view(), gate.view(), {}, logits.span(), pool);
    std::vector<std::int32_t> experts(x.rows() * 3);
    const RowSpan<std::int32_t> choices(experts.data(), x.rows(), 3);
    RouterForward<C>(router, logits.view(), {}, choices, weights.span(), pool);
    const ExpertGroups groups = GroupByExpert(choices, gate.rows());
    TestMatrix<T> rows(groups.rows(), x.width()), outputs(rows), y(x);
    DispatchForward<T>(groups, x.view(), rows.span(), pool);
    GroupedLinearForward<T, T>(GemmBackend::kContract, groups.offsets, rows.view(), w.view(),
                               bias.view(), outputs.span(), pool);
    CombineForward<T>(groups, weights.view(), outputs.view(), y.span(), pool);
    return y;
  }

  Router router;
  TestMatrix<T> gate, w;
  TestMatrix<C> bias;
};

// What lets prefill, decode and a full forward agree.
TYPED_TEST(Experts, TokenAloneEqualsTheTokenInABatch) {
  const Layer<TypeParam> layer(10, 35);
  ThreadPool one(1), three(3);
  TestMatrix<TypeParam> x(90, 35);
  Fill(x, 4);
  const TestMatrix<TypeParam> all = layer.Forward(x, three);
  for (std::int64_t begin = 0; begin < 90;) {
    const std::int64_t count = std::min<std::int64_t>(90 - begin, begin % 2 == 0 ? 1 : 13);
    TestMatrix<TypeParam> part(count, 35);
    std::copy_n(x.view().row(begin), count * 35, part.span().row(0));
    ExpectSameBits<TypeParam>(layer.Forward(part, one).view(), all.view().Rows(begin, count),
                              "tokens from " + std::to_string(begin));
    begin += count;
  }
}

TEST(ExpertsGradients, AreDerivatives) {
  ThreadPool pool(2);
  const ExpertGroups groups = Groups(7, 2, 5);
  Exchange<double> ends(groups, 4, Layout::kContiguous, false);
  Linear<double, double> linear(groups, 4, 4);
  const auto loss = [&] {
    DispatchForward<double>(groups, ends.x.view(), ends.rows.span(), pool);
    GroupedLinearForward<double, double>(GemmBackend::kContract, groups.offsets, ends.rows.view(),
                                         linear.w.view(), linear.bias.view(), ends.outputs.span(),
                                         pool);
    CombineForward<double>(groups, ends.weights.view(), ends.outputs.view(), ends.y.span(), pool);
    double sum = 0;
    for (std::int64_t t = 0; t < 7; ++t) {
      for (std::int64_t n = 0; n < 4; ++n) sum += ends.y.at(t, n) * ends.dy.at(t, n);
    }
    return sum;
  };
  loss();
  CombineBackward<double>(groups, ends.weights.view(), ends.outputs.view(), ends.dy.view(),
                          ends.doutputs.span(), ends.dweights.span(), pool);
  GroupedLinearBackwardInput<double, double>(GemmBackend::kContract, groups.offsets,
                                             ends.doutputs.view(), linear.w.view(),
                                             ends.drows.span(), pool);
  GroupedLinearBackwardWeight<double>(GemmBackend::kContract, groups.offsets, ends.doutputs.view(),
                                      ends.rows.view(), linear.dw.span(), pool);
  GroupedLinearBackwardBias<double>(groups.offsets, ends.doutputs.view(), linear.dbias.span(),
                                    pool);
  DispatchBackward<double>(groups, ends.drows.view(), ends.dx.span(), pool);
  ExpectGradient(ends.x, ends.dx.view(), loss, "dx");
  ExpectGradient(ends.weights, ends.dweights.view(), loss, "dweights");
  ExpectGradient(linear.w, linear.dw.view(), loss, "dw");
  ExpectGradient(linear.bias, linear.dbias.view(), loss, "dbias");
}

}  // namespace
}  // namespace headwise
