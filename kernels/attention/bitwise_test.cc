// The fast path returns the reference's bits: every size around the tiles, every grouping, window
// and kind of value, on any number of threads; and both return the bits on record.
//
// Break it to believe it: sum the sixteen lanes in another order in forward.cc, or let RowsOf in
// group.h start one row later, and EqualsTheReference fails.
#include <cmath>
#include <cstdint>
#include <limits>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

#include "core/dtype/dtype.h"
#include "core/io/checksum.h"
#include "gtest/gtest.h"
#include "kernels/attention/test_problem.h"

namespace headwise {
namespace {

struct Case {
  std::vector<std::int64_t> documents;
  std::int64_t query_heads, kv_heads, head_dim, window;
};

std::string Describe(const Case& c) {
  std::ostringstream out;
  out << "documents";
  for (const std::int64_t n : c.documents) out << " " << n;
  out << ", " << c.query_heads << "/" << c.kv_heads << " heads of " << c.head_dim << ", window "
      << c.window;
  return out.str();
}

// Every length, group, head_dim and window that matters, each with some of the others.
std::vector<Case> Cases() {
  return {
      {{0}, 2, 1, 16, 0},           {{1}, 1, 1, 2, 0},          {{2, 0, 1}, 3, 1, 4, 1},
      {{63, 64}, 6, 2, 16, 0},      {{65, 1, 2}, 5, 1, 10, 64}, {{255}, 4, 2, 32, 0},
      {{256, 63}, 2, 1, 34, 65},    {{257}, 8, 1, 64, 0},       {{257, 130}, 3, 3, 18, 1},
      {{64, 65, 63}, 7, 1, 48, 63}, {{130}, 12, 1, 66, 100},    {{100, 28}, 12, 2, 6, 2},
      {{129}, 2, 2, 128, 17},       {{70}, 6, 1, 130, 0},       {{66}, 1, 1, 512, 40},
      {{300}, 1, 1, 8, 0},
  };
}

template <typename T>
class AttentionBits : public testing::Test {};
using Storages = testing::Types<float, BFloat16, double>;
TYPED_TEST_SUITE(AttentionBits, Storages);

template <typename T>
AttentionProblem<T> ProblemOf(const Case& c, Layout layout) {
  std::int64_t tokens = 0;
  for (const std::int64_t n : c.documents) tokens += n;
  return AttentionProblem<T>(HeadsOf(c.query_heads, c.kv_heads, c.head_dim, c.window),
                             Documents(c.documents), tokens, tokens, layout);
}

template <typename T>
void ExpectReferenceBits(const AttentionProblem<T>& problem, const std::string& what) {
  AttentionProblem<T> expected = problem;
  expected.ForwardReference();
  expected.BackwardReference();
  for (const int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    AttentionProblem<T> actual = problem;
    actual.Forward(pool);
    actual.Backward(pool);
    actual.ExpectSameOutputs(expected, what + ", " + std::to_string(threads) + " threads");
    if (testing::Test::HasFatalFailure()) return;
  }
}

TYPED_TEST(AttentionBits, EqualsTheReference) {
  for (const Case& c : Cases()) {
    ExpectReferenceBits(ProblemOf<TypeParam>(c, Layout::kStrided), Describe(c));
    if (this->HasFatalFailure()) return;
  }
}

// One gradient is the same whether its task does all of a group, or one key tile, or some queries:
// with eight segments all kinds run, depending on the number of threads.
TYPED_TEST(AttentionBits, EqualsTheReferenceWithManyDocuments) {
  const Case c = {{70, 3, 64, 1, 90, 0, 65, 20}, 4, 1, 16, 50};
  ExpectReferenceBits(ProblemOf<TypeParam>(c, Layout::kContiguous), Describe(c));
}

// Sinks far below, among and far above the scores, and those that are no number. A segment whose
// first query sees no key is among the rows of d_sinks, and so are rows of no segment.
TYPED_TEST(AttentionBits, EqualsTheReferenceWithSinks) {
  using C = Compute<TypeParam>;
  const Case cases[] = {{{0}, 2, 1, 16, 0},
                        {{1, 65, 2}, 5, 1, 10, 64},
                        {{130, 20}, 9, 3, 18, 40},
                        {{70}, 8, 4, 34, 0}};
  for (const Case& c : cases) {
    AttentionProblem<TypeParam> problem = ProblemOf<TypeParam>(c, Layout::kStrided);
    problem.AddSinks();
    ExpectReferenceBits(problem, "sinks, " + Describe(c));
    const C infinity = std::numeric_limits<C>::infinity();
    const C specials[] = {-infinity, C(-0.0), C(60), C(-200), infinity, C(NAN), C(1e-40)};
    for (std::int64_t h = 0; h < c.query_heads; ++h) problem.sinks.at(0, h) = specials[h % 7];
    ExpectReferenceBits(problem, "special sinks, " + Describe(c));
    if (this->HasFatalFailure()) return;
  }
  AttentionProblem<TypeParam> gaps(
      HeadsOf(7, 1, 6, 0),
      {{.query_begin = 65, .num_queries = 70, .key_begin = 2, .num_keys = 60, .key_position = 1},
       {.query_begin = 3, .num_queries = 9, .key_begin = 70, .num_keys = 9}},
      200, 80);
  gaps.AddSinks();
  gaps.sinks.at(0, 3) = -std::numeric_limits<C>::infinity();
  ExpectReferenceBits(gaps, "rows of no segment");
}

TYPED_TEST(AttentionBits, EqualsTheReferenceOnInfinitiesNansZerosAndSubnormals) {
  const Case c = {{100, 60}, 4, 2, 18, 33};
  for (const int which : {0, 1, 2, 3}) {
    AttentionProblem<TypeParam> problem = ProblemOf<TypeParam>(c, Layout::kStrided);
    // A few rows with specials: elsewhere results stay finite and must not be touched by them.
    TestMatrix<TypeParam>* const m[] = {&problem.q, &problem.k, &problem.v, &problem.d_o};
    TestMatrix<TypeParam> specials(1, m[which]->width());
    FillWithSpecials(specials, 7);
    for (const std::int64_t row : {20, 83, 120}) {
      for (std::int64_t i = 0; i < specials.width(); ++i) {
        m[which]->at(row, i) = specials.at(0, i);
      }
    }
    ExpectReferenceBits(problem, "specials in input " + std::to_string(which));
  }
}

// Values so small that most of their products round to -0, and zeros between them: were a masked
// key to take part with probability zero, it would turn a -0 into +0.
TYPED_TEST(AttentionBits, EqualsTheReferenceOnSignedZeros) {
  using C = Compute<TypeParam>;
  AttentionProblem<TypeParam> problem =
      ProblemOf<TypeParam>({{90}, 4, 2, 18, 20}, Layout::kStrided);
  for (TestMatrix<TypeParam>* m : {&problem.v, &problem.d_o}) {
    for (std::int64_t r = 0; r < m->rows(); ++r) {
      for (std::int64_t i = 0; i < m->width(); ++i) {
        m->at(r, i) = Narrow<TypeParam>(r % 2 == 0 ? -std::numeric_limits<C>::denorm_min() : C{0});
      }
    }
  }
  ExpectReferenceBits(problem, "zeros");
}

template <typename T>
std::uint64_t Checksum(bool with_sinks) {
  AttentionProblem<T> problem = ProblemOf<T>({{150, 1, 70}, 6, 2, 34, 90}, Layout::kContiguous);
  if (with_sinks) problem.AddSinks();
  ThreadPool pool(2);
  problem.Forward(pool);
  problem.Backward(pool);
  Fnv1a64 sum;
  AddToChecksum(sum, problem.o.view());
  AddToChecksum(sum, problem.log_sum_exp.view());
  AddToChecksum(sum, problem.dq.view());
  AddToChecksum(sum, problem.dk.view());
  AddToChecksum(sum, problem.dv.view());
  AddToChecksum(sum, problem.d_sinks.view());  // nothing without sinks
  return sum.value();
}

// Every machine and instruction set. A change of these numbers is a change of kContractVersion.
TEST(AttentionGolden, BitsOnRecord) {
  EXPECT_EQ(Checksum<float>(false), 2880272114744953257u);
  EXPECT_EQ(Checksum<BFloat16>(false), 16202840279283729196u);
  EXPECT_EQ(Checksum<float>(true), 3522496422728104846u);
  EXPECT_EQ(Checksum<BFloat16>(true), 657873461122046915u);
}

}  // namespace
}  // namespace headwise
