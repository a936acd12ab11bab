// The CUDA kernels, emulated, have the bits of attention.h's CPU kernels: every size around the
// tiles, groupings, windows, segments and kinds of values, in three thread orders, with every
// buffer a region whose gaps are out of bounds; and segments outside their rows are found.
#include "kernels/common/testing/emulated.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/dtype/dtype.h"
#include "gtest/gtest.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/cuda.h"
#include "kernels/attention/test_problem.h"
#include "kernels/common/testing/kernel_testing.h"
#include "kernels/emulation/emulation.h"

namespace headwise {
namespace {

constexpr std::uint64_t kNone = ~std::uint64_t{0};

template <typename T>
class EmulatedRun {
 public:
  // Runs forward and backward of `p`, whose outputs they write.
  absl::Status Run(AttentionProblem<T>& p, const emulation::Options& order) {
    first_bad_segment = kNone;
    scratch_.assign(AttentionBackwardScratch(p.op, p.q.rows(), p.sinks.width() > 0),
                    std::numeric_limits<float>::quiet_NaN());
    const AttentionLaunch launch = {.first_bad_segment = &first_bad_segment,
                                    .scratch = scratch_.data()};
    {
      emulation::Session session(order);
      AddInputs(p, session);
      AddMatrix(session, "o", p.o.span());
      AddMatrix(session, "log_sum_exp", p.log_sum_exp.span());
      absl::Status status =
          cuda_emulated::AttentionForward<T>(p.op, p.segments, p.q.view(), p.k.view(), p.v.view(),
                                             p.Sinks(), p.o.span(), p.log_sum_exp.span(), launch);
      if (!status.ok()) return status;
    }
    emulation::Session session(order);
    AddInputs(p, session);
    AddMatrix(session, "d_o", p.d_o.view());
    AddMatrix(session, "o", p.o.view());
    AddMatrix(session, "log_sum_exp", p.log_sum_exp.view());
    AddMatrix(session, "dq", p.dq.span());
    AddMatrix(session, "dk", p.dk.span());
    AddMatrix(session, "dv", p.dv.span());
    AddArray(session, "d_sinks", p.SinkGradients());
    AddArray(session, "scratch", absl::MakeSpan(scratch_));
    return cuda_emulated::AttentionBackward<T>(p.op, p.segments, p.q.view(), p.k.view(), p.v.view(),
                                               p.Sinks(), p.o.view(), p.log_sum_exp.view(),
                                               p.d_o.view(), p.dq.span(), p.dk.span(), p.dv.span(),
                                               p.SinkGradients(), launch);
  }

  std::uint64_t first_bad_segment;

 private:
  void AddInputs(AttentionProblem<T>& p, emulation::Session& session) {
    AddMatrix(session, "q", p.q.view());
    AddMatrix(session, "k", p.k.view());
    AddMatrix(session, "v", p.v.view());
    AddArray(session, "sinks", p.Sinks());
    session.AddRegion("segments", p.segments.data(),
                      static_cast<std::int64_t>(p.segments.size() * sizeof(AttentionSegment)),
                      emulation::Access::kRead);
    session.AddRegion("first_bad_segment", &first_bad_segment, sizeof(first_bad_segment),
                      emulation::Access::kReadWrite);
  }

  std::vector<float> scratch_;
};

constexpr absl::Span<const emulation::Options> kAllOrders = kThreadOrders;
constexpr absl::Span<const emulation::Options> kRandomOrder = kAllOrders.subspan(2);

// In bf16, whose rounding hides most of what is wrong, in one thread order.
template <typename T>
void ExpectCpuBits(const AttentionProblem<T>& problem, const std::string& what,
                   absl::Span<const emulation::Options> orders = sizeof(T) == 2 ? kRandomOrder
                                                                                : kAllOrders) {
  AttentionProblem<T> expected = problem;
  ThreadPool pool(1);
  expected.Forward(pool);
  expected.Backward(pool);
  for (const emulation::Options& order : orders) {
    AttentionProblem<T> actual = problem;
    EmulatedRun<T> run;
    ASSERT_EQ(run.Run(actual, order), absl::OkStatus()) << what;
    EXPECT_EQ(run.first_bad_segment, kNone) << what;
    actual.ExpectSameOutputs(expected,
                             what + ", order " + std::to_string(static_cast<int>(order.order)));
    if (testing::Test::HasFailure()) return;
  }
}

struct Case {
  std::vector<std::int64_t> documents;
  std::int64_t query_heads, kv_heads, head_dim, window;
};

template <typename T>
AttentionProblem<T> ProblemOf(const Case& c, Layout layout) {
  std::int64_t tokens = 0;
  for (const std::int64_t n : c.documents) tokens += n;
  return AttentionProblem<T>(HeadsOf(c.query_heads, c.kv_heads, c.head_dim, c.window),
                             Documents(c.documents), tokens, tokens, layout);
}

std::string Describe(const Case& c) {
  std::string name;
  for (const std::int64_t n : c.documents) name += std::to_string(n) + " ";
  return name + "tokens, " + std::to_string(c.query_heads) + "/" + std::to_string(c.kv_heads) +
         " heads of " + std::to_string(c.head_dim) + ", window " + std::to_string(c.window);
}

template <typename T>
class EmulatedAttention : public testing::Test {};
using StorageTypes = testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(EmulatedAttention, StorageTypes);

TYPED_TEST(EmulatedAttention, HasTheCpusBits) {
  const Case cases[] = {
      {{0}, 2, 1, 16, 0},      {{1}, 1, 1, 2, 0},          {{2, 0, 1}, 3, 1, 4, 1},
      {{63, 64}, 6, 2, 12, 0}, {{65, 1, 2}, 5, 1, 10, 64}, {{130, 20}, 2, 1, 34, 65},
      {{257}, 2, 1, 4, 0},     {{64, 65}, 7, 1, 8, 63},    {{100, 28}, 12, 2, 6, 2},
      {{66}, 2, 2, 128, 17},   {{34}, 2, 1, 130, 0},       {{17}, 1, 1, 256, 9},
  };
  for (const Case& c : cases) {
    ExpectCpuBits(ProblemOf<TypeParam>(c, Layout::kStrided), Describe(c));
    if (this->HasFailure()) return;
  }
  ExpectCpuBits(ProblemOf<TypeParam>({{70, 3, 20, 1}, 4, 2, 32, 50}, Layout::kContiguous), "flat");
}

TYPED_TEST(EmulatedAttention, ForSanitizersHasTheCpusBits) {
  AttentionProblem<TypeParam> problem =
      ProblemOf<TypeParam>({{18, 3}, 2, 1, 10, 15}, Layout::kStrided);
  problem.AddSinks();
  ExpectCpuBits(problem, "small", kRandomOrder);
}

// Keys that are gone, rows of no segment, queries that see nothing.
TYPED_TEST(EmulatedAttention, HasTheCpusBitsOfPartsOfASequence) {
  AttentionProblem<TypeParam> gaps(
      HeadsOf(7, 1, 6, 0),
      {{.query_begin = 65, .num_queries = 70, .key_begin = 2, .num_keys = 60, .key_position = 1},
       {.query_begin = 3, .num_queries = 9, .key_begin = 70, .num_keys = 9}},
      200, 80);
  ExpectCpuBits(gaps, "gaps");
  gaps.AddSinks();
  gaps.sinks.at(0, 3) = -std::numeric_limits<float>::infinity();
  ExpectCpuBits(gaps, "gaps with sinks");
  ExpectCpuBits(AttentionProblem<TypeParam>(HeadsOf(4, 2, 32, 100),
                                            {{.query_begin = 1,
                                              .num_queries = 1,
                                              .query_position = 900,
                                              .key_begin = 3,
                                              .num_keys = 150,
                                              .key_position = 751},
                                             {.query_begin = 0,
                                              .num_queries = 1,
                                              .query_position = 70,
                                              .key_begin = 160,
                                              .num_keys = 71}},
                                            3, 240),
                "decoding");
}

TYPED_TEST(EmulatedAttention, HasTheCpusBitsWithSinks) {
  for (const Case& c :
       {Case{{0}, 2, 1, 16, 0}, Case{{1, 65, 2}, 5, 1, 10, 64}, Case{{130}, 8, 4, 18, 40}}) {
    AttentionProblem<TypeParam> problem = ProblemOf<TypeParam>(c, Layout::kStrided);
    problem.AddSinks();
    ExpectCpuBits(problem, "sinks, " + Describe(c));
    const float infinity = std::numeric_limits<float>::infinity();
    const float specials[] = {-infinity, -0.0f, 60, -200, infinity, NAN, 1e-40f};
    for (std::int64_t h = 0; h < c.query_heads; ++h) problem.sinks.at(0, h) = specials[h % 7];
    ExpectCpuBits(problem, "special sinks, " + Describe(c));
    if (this->HasFailure()) return;
  }
}

TYPED_TEST(EmulatedAttention, HasTheCpusBitsOnSpecialValues) {
  for (const int which : {0, 1, 2, 3}) {
    AttentionProblem<TypeParam> problem =
        ProblemOf<TypeParam>({{90, 30}, 4, 2, 18, 33}, Layout::kStrided);
    TestMatrix<TypeParam>* const m[] = {&problem.q, &problem.k, &problem.v, &problem.d_o};
    TestMatrix<TypeParam> specials(1, m[which]->width());
    FillWithSpecials(specials, 7);
    for (const std::int64_t row : {20, 83, 100}) {
      for (std::int64_t i = 0; i < specials.width(); ++i) {
        m[which]->at(row, i) = specials.at(0, i);
      }
    }
    ExpectCpuBits(problem, "specials in input " + std::to_string(which));
  }
}

// Products that round to -0, and zeros between them: were a masked key to take part, it would turn
// a -0 into +0.
TYPED_TEST(EmulatedAttention, HasTheCpusBitsOnSignedZeros) {
  AttentionProblem<TypeParam> problem =
      ProblemOf<TypeParam>({{90}, 4, 2, 18, 20}, Layout::kStrided);
  for (TestMatrix<TypeParam>* m : {&problem.v, &problem.d_o}) {
    for (std::int64_t r = 0; r < m->rows(); ++r) {
      for (std::int64_t i = 0; i < m->width(); ++i) {
        m->at(r, i) =
            Narrow<TypeParam>(r % 2 == 0 ? -std::numeric_limits<float>::denorm_min() : 0.0f);
      }
    }
  }
  ExpectCpuBits(problem, "zeros");
}

TYPED_TEST(EmulatedAttention, SegmentsOutsideTheirRowsAreLeftOutAndReported) {
  AttentionProblem<TypeParam> problem =
      ProblemOf<TypeParam>({{20, 30, 10}, 2, 1, 16, 0}, Layout::kStrided);
  for (const int what : {0, 1, 2, 3}) {
    AttentionProblem<TypeParam> expected = problem, actual = problem;
    expected.segments.erase(expected.segments.begin() + 1);
    AttentionSegment& bad = actual.segments[1];
    if (what == 0) bad.num_queries = 41;
    if (what == 1) bad.num_keys = 41;
    if (what == 2) bad.key_begin = -1;
    if (what == 3) bad.query_begin = std::numeric_limits<std::int64_t>::max();
    ThreadPool pool(1);
    expected.Forward(pool);
    expected.Backward(pool);
    EmulatedRun<TypeParam> run;
    ASSERT_EQ(run.Run(actual, kThreadOrders[2]), absl::OkStatus());
    EXPECT_EQ(run.first_bad_segment, 1);
    actual.ExpectSameOutputs(expected, "segment " + std::to_string(what));
  }
}

TEST(EmulatedAttentionErrors, WhatCudaLacksIsRefused) {
  AttentionProblem<float> wide = ProblemOf<float>({{3}, 1, 1, 257, 0}, Layout::kContiguous);
  EmulatedRun<float> run;
  EXPECT_EQ(run.Run(wide, {}).code(), absl::StatusCode::kInvalidArgument);
  AttentionProblem<float> many = ProblemOf<float>({{3}, 1, 1, 4, 0}, Layout::kContiguous);
  many.segments.resize(65536);
  EXPECT_EQ(run.Run(many, {}).code(), absl::StatusCode::kInvalidArgument);
}

// A block's rows once, and its keys and values once for its 16 rows: of 64 tokens with four heads a
// block has four, which see 4, 8, ... 64 keys.
TEST(EmulatedAttentionTraffic, IsKeysAndValuesOnceForSixteenRows) {
  AttentionProblem<BFloat16> p = ProblemOf<BFloat16>({{64}, 4, 1, 32, 0}, Layout::kContiguous);
  std::uint64_t bad = kNone;
  emulation::Session session({.count_traffic = true});
  AddMatrix(session, "q", p.q.view());
  AddMatrix(session, "k", p.k.view());
  AddMatrix(session, "v", p.v.view());
  AddMatrix(session, "o", p.o.span());
  session.AddRegion("segments", p.segments.data(), sizeof(AttentionSegment),
                    emulation::Access::kRead);
  ASSERT_EQ(cuda_emulated::AttentionForward<BFloat16>(p.op, p.segments, p.q.view(), p.k.view(),
                                                      p.v.view(), {}, p.o.span(), {},
                                                      {.first_bad_segment = &bad}),
            absl::OkStatus());
  constexpr std::int64_t kHead = 32 * 2, kKeys = 4 * (16 * 17 / 2);
  EXPECT_EQ(session.traffic("q").loads, 64 * 4 * kHead);
  EXPECT_EQ(session.traffic("o").stores, 64 * 4 * kHead);
  EXPECT_EQ(session.traffic("k").loads, kKeys * kHead);
  EXPECT_EQ(session.traffic("v").loads, kKeys * kHead);
}

TEST(EmulatedAttentionLaunches, AreWhatTheHeaderSays) {
  for (const bool sinks : {false, true}) {
    AttentionProblem<float> p = ProblemOf<float>({{70}, 2, 1, 4, 0}, Layout::kContiguous);
    if (sinks) p.AddSinks();
    std::vector<float> scratch(AttentionBackwardScratch(p.op, 70, sinks));
    std::uint64_t bad = kNone;
    const AttentionLaunch launch = {.first_bad_segment = &bad, .scratch = scratch.data()};
    emulation::Session session;
    ASSERT_TRUE(cuda_emulated::AttentionForward<float>(p.op, p.segments, p.q.view(), p.k.view(),
                                                       p.v.view(), p.Sinks(), p.o.span(),
                                                       p.log_sum_exp.span(), launch)
                    .ok());
    EXPECT_EQ(session.launches().size(), 1);
    ASSERT_TRUE(cuda_emulated::AttentionBackward<float>(
                    p.op, p.segments, p.q.view(), p.k.view(), p.v.view(), p.Sinks(), p.o.view(),
                    p.log_sum_exp.view(), p.d_o.view(), p.dq.span(), p.dk.span(), p.dv.span(),
                    p.SinkGradients(), launch)
                    .ok());
    EXPECT_EQ(session.launches().size(), sinks ? 6 : 4);
  }
}

}  // namespace
}  // namespace headwise
