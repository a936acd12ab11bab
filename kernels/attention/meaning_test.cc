// What attention computes, against the definition: a T x T softmax in double, differences, and the
// masks.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "core/dtype/dtype.h"
#include "gtest/gtest.h"
#include "kernels/attention/test_problem.h"

namespace headwise {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// o and log_sum_exp by the definition: all scores of a query, then softmax, then the sum.
// `document[t]` is the document of token t; queries and keys are the same tokens.
template <typename T>
void ExpectDefinition(const AttentionProblem<T>& p, const std::vector<int>& document,
                      double tolerance, const std::string& what) {
  const Attention& op = p.op;
  const std::int64_t tokens = p.q.rows(), dim = op.head_dim;
  for (std::int64_t i = 0; i < tokens; ++i) {
    for (std::int64_t h = 0; h < op.query_heads; ++h) {
      const std::int64_t g = h * op.kv_heads / op.query_heads;
      std::vector<double> score(tokens, -kInfinity);
      for (std::int64_t j = 0; j < tokens; ++j) {
        const bool window = op.window == 0 || i - j < op.window;
        if (j > i || !window || document[i] != document[j]) continue;
        double dot = 0;
        for (std::int64_t d = 0; d < dim; ++d) {
          dot += double{Widen(p.q.at(i, h * dim + d))} * Widen(p.k.at(j, g * dim + d));
        }
        score[j] = dot * op.scale;
      }
      double max = *std::max_element(score.begin(), score.end());
      double sum = 0;
      if (p.sinks.width() != 0) {
        max = std::max<double>(max, p.sinks.at(0, h));
        sum = std::exp(p.sinks.at(0, h) - max);
      }
      for (const double s : score) sum += std::exp(s - max);
      ASSERT_NEAR(p.log_sum_exp.at(i, h), max + std::log(sum), tolerance * 10) << what;
      for (std::int64_t d = 0; d < dim; ++d) {
        double expected = 0;
        for (std::int64_t j = 0; j < tokens; ++j) {
          expected += std::exp(score[j] - max) / sum * Widen(p.v.at(j, g * dim + d));
        }
        ASSERT_NEAR(Widen(p.o.at(i, h * dim + d)), expected, tolerance)
            << what << ": query " << i << " head " << h << " element " << d;
      }
    }
  }
}

template <typename T>
class AttentionMeaning : public testing::Test {
 protected:
  static double Tolerance() {
    return std::is_same_v<T, double> ? 1e-13 : std::is_same_v<T, float> ? 2e-6 : 5e-3;
  }
};
using Storages = testing::Types<float, BFloat16, double>;
TYPED_TEST_SUITE(AttentionMeaning, Storages);

TYPED_TEST(AttentionMeaning, EqualsTheSoftmaxOfTheDefinition) {
  ThreadPool pool(2);
  const std::vector<std::int64_t> lengths = {70, 5, 1, 66};
  std::vector<int> document;
  for (std::size_t i = 0; i < lengths.size(); ++i) document.insert(document.end(), lengths[i], i);
  for (const std::int64_t window : {0, 1, 2, 30, 64, 65, 1000}) {
    AttentionProblem<TypeParam> p(HeadsOf(6, 2, 18, window), Documents(lengths), 142, 142);
    p.Forward(pool);
    ExpectDefinition(p, document, this->Tolerance(), "window " + std::to_string(window));
    p.AddSinks();
    p.Forward(pool);
    ExpectDefinition(p, document, this->Tolerance(), "sinks, window " + std::to_string(window));
    if (this->HasFatalFailure()) return;
  }
}

// A sink of -infinity is no sink, to the bit.
TYPED_TEST(AttentionMeaning, SinksOfMinusInfinityAreNone) {
  ThreadPool pool(2);
  AttentionProblem<TypeParam> none(HeadsOf(6, 2, 18, 30), Documents({70, 66}), 136, 136);
  AttentionProblem<TypeParam> infinite = none;
  infinite.AddSinks();
  for (std::int64_t h = 0; h < 6; ++h) infinite.sinks.at(0, h) = -kInfinity;
  for (AttentionProblem<TypeParam>* p : {&none, &infinite}) {
    p->Forward(pool);
    p->Backward(pool);
  }
  for (std::int64_t h = 0; h < 6; ++h) EXPECT_EQ(infinite.d_sinks.at(0, h), 0);
  none.d_sinks = infinite.d_sinks;
  infinite.ExpectSameOutputs(none, "sinks of -infinity");
}

TEST(AttentionGradients, EqualDifferencesInDouble) {
  ThreadPool pool(1);
  for (const std::int64_t window : {0, 7}) {
    AttentionProblem<double> p(HeadsOf(4, 2, 6, window), Documents({13, 1, 9}), 23, 23);
    const auto loss = [&] {
      p.Forward(pool);
      double sum = 0;
      for (std::int64_t r = 0; r < p.o.rows(); ++r) {
        for (std::int64_t c = 0; c < p.o.width(); ++c) sum += p.o.at(r, c) * p.d_o.at(r, c);
      }
      return sum;
    };
    loss();
    p.Backward(pool);
    ExpectGradient(p.q, p.dq.view(), loss, "dq");
    ExpectGradient(p.k, p.dk.view(), loss, "dk");
    ExpectGradient(p.v, p.dv.view(), loss, "dv");
  }
}

// Two tiles of rows, so that the sums of d_sinks meet. The probabilities and the differences know the
// sink through log_sum_exp.
TEST(AttentionGradients, EqualDifferencesWithSinks) {
  ThreadPool pool(1);
  AttentionProblem<double> p(HeadsOf(4, 2, 3, 5), Documents({13, 1, 55}), 69, 69);
  p.AddSinks();
  const auto loss = [&] {
    p.Forward(pool);
    double sum = 0;
    for (std::int64_t r = 0; r < p.o.rows(); ++r) {
      for (std::int64_t c = 0; c < p.o.width(); ++c) sum += p.o.at(r, c) * p.d_o.at(r, c);
    }
    return sum;
  };
  loss();
  p.Backward(pool);
  ExpectGradient(p.sinks, p.d_sinks.view(), loss, "d_sinks");
  ExpectGradient(p.q, p.dq.view(), loss, "dq");
  ExpectGradient(p.k, p.dk.view(), loss, "dk");
  ExpectGradient(p.v, p.dv.view(), loss, "dv");
}

// More than one tile, so that gradients meet across tiles and blocks of rows.
TEST(AttentionGradients, EqualDifferencesAcrossTiles) {
  ThreadPool pool(1);
  AttentionProblem<double> p(HeadsOf(2, 1, 2, 70), Documents({90}), 90, 90);
  const auto loss = [&] {
    p.Forward(pool);
    double sum = 0;
    for (std::int64_t r = 0; r < p.o.rows(); ++r) {
      for (std::int64_t c = 0; c < p.o.width(); ++c) sum += p.o.at(r, c) * p.d_o.at(r, c);
    }
    return sum;
  };
  loss();
  p.Backward(pool);
  ExpectGradient(p.q, p.dq.view(), loss, "dq");
  ExpectGradient(p.k, p.dk.view(), loss, "dk");
  ExpectGradient(p.v, p.dv.view(), loss, "dv");
}

// The window counts the query itself: changing the key just outside changes nothing, the key just
// inside something.
TYPED_TEST(AttentionMeaning, WindowEndsExactlyWhereItSays) {
  ThreadPool pool(1);
  for (const std::int64_t window : {1, 2, 63, 64, 65}) {
    AttentionProblem<TypeParam> p(HeadsOf(2, 1, 8, window), Documents({130}), 130, 130);
    p.Forward(pool);
    const std::int64_t query = 100;
    const auto changes = [&](std::int64_t key) {
      AttentionProblem<TypeParam> other = p;
      for (std::int64_t d = 0; d < 8; ++d) other.v.at(key, d) = Narrow<TypeParam>(50);
      other.Forward(pool);
      return !SameBits(other.o.at(query, 0), p.o.at(query, 0));
    };
    EXPECT_FALSE(changes(query - window)) << window;
    EXPECT_TRUE(changes(query - window + 1)) << window;
    EXPECT_TRUE(changes(query)) << window;
    EXPECT_FALSE(changes(query + 1)) << window;
  }
}

TYPED_TEST(AttentionMeaning, QueryWithoutKeysGivesZeros) {
  ThreadPool pool(2);
  // Position 3 of a segment whose keys start at position 5, or that has none.
  for (const std::int64_t num_keys : {0, 4}) {
    AttentionProblem<TypeParam> p(HeadsOf(2, 1, 18, 0),
                                  {{.query_begin = 1,
                                    .num_queries = 1,
                                    .query_position = 3,
                                    .key_begin = 0,
                                    .num_keys = num_keys,
                                    .key_position = 5}},
                                  3, 4);
    p.Forward(pool);
    EXPECT_EQ(p.log_sum_exp.at(1, 0), -std::numeric_limits<Compute<TypeParam>>::infinity());
    p.AddSinks();
    p.Forward(pool);
    p.Backward(pool);
    for (std::int64_t h = 0; h < 2; ++h) {
      EXPECT_EQ(p.log_sum_exp.at(1, h), p.sinks.at(0, h));
      EXPECT_EQ(p.d_sinks.at(0, h), 0);
    }
    for (std::int64_t i = 0; i < p.o.width(); ++i) {
      EXPECT_EQ(Widen(p.o.at(1, i)), 0);
      EXPECT_EQ(Widen(p.dq.at(1, i)), 0);
    }
    for (std::int64_t j = 0; j < num_keys; ++j) {
      EXPECT_EQ(Widen(p.dk.at(j, 0)), 0);
      EXPECT_EQ(Widen(p.dv.at(j, 0)), 0);
    }
  }
}

TEST(AttentionDeathTest, ShapesThatDoNotFit) {
  ThreadPool pool(1);
  AttentionProblem<float> heads(HeadsOf(4, 2, 8, 0), Documents({3}), 3, 3);
  heads.op.kv_heads = 3;
  EXPECT_DEATH(heads.Forward(pool), "4 query heads over 3 kv heads");
  AttentionProblem<float> rows(HeadsOf(4, 2, 8, 0), Documents({4}), 3, 4);
  EXPECT_DEATH(rows.Forward(pool), "queries 0 \\+ 4 of 3");
  AttentionProblem<float> sinks(HeadsOf(4, 2, 8, 0), Documents({3}), 3, 3);
  sinks.sinks = sinks.d_sinks = TestMatrix<float>(1, 2);
  EXPECT_DEATH(sinks.Forward(pool), "2 sinks for 4 query heads");
}

}  // namespace
}  // namespace headwise
