// A query's bits depend on its own segment, position and keys, and on nothing else: not on how a
// sequence is fed, what was evicted, which other segments run beside it, or what they hold.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "core/dtype/dtype.h"
#include "gtest/gtest.h"
#include "kernels/attention/test_problem.h"

namespace headwise {
namespace {

template <typename T>
class AttentionInvariance : public testing::Test {};
using Storages = testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(AttentionInvariance, Storages);

template <typename T>
void CopyRow(const TestMatrix<T>& from, std::int64_t from_row, TestMatrix<T>& to,
             std::int64_t to_row) {
  for (std::int64_t i = 0; i < from.width(); ++i) to.at(to_row, i) = from.at(from_row, i);
}

// Feeds a sequence of 200 in chunks, forgetting old keys, and compares with all at once. A second
// sequence of other length and position runs in the same batch.
TYPED_TEST(AttentionInvariance, ChunkedPrefillAndDecodeEqualTheFullForward) {
  constexpr std::int64_t kTokens = 200;
  ThreadPool pool(2);
  for (const std::int64_t window : {0, 40, 64}) {
    const Attention op = HeadsOf(6, 2, 18, window);
    AttentionProblem<TypeParam> full(op, Documents({kTokens}), kTokens, kTokens);
    full.AddSinks();
    full.Forward(pool);
    std::int64_t position = 0;
    for (const std::int64_t chunk : {50, 1, 63, 1, 1, 80, 1, 3}) {
      // Keys that the chunk's first query still sees, and a few that nobody does.
      const std::int64_t needed =
          window == 0 ? 0 : std::max<std::int64_t>(0, position - window + 1);
      const std::int64_t oldest = std::max<std::int64_t>(0, needed - chunk % 3);
      const std::int64_t end = position + chunk;
      const AttentionSegment mine = {.query_begin = 2,
                                     .num_queries = chunk,
                                     .query_position = position,
                                     .key_begin = 11,
                                     .num_keys = end - oldest,
                                     .key_position = oldest};
      const AttentionSegment other = {.query_begin = 2 + chunk,
                                      .num_queries = 2,
                                      .query_position = 8,
                                      .key_begin = 0,
                                      .num_keys = 10,
                                      .key_position = 0};
      AttentionProblem<TypeParam> part(op, {other, mine}, chunk + 4, end - oldest + 11,
                                       Layout::kStrided);
      part.sinks = full.sinks;
      part.d_sinks = full.d_sinks;
      for (std::int64_t i = 0; i < chunk; ++i) CopyRow(full.q, position + i, part.q, 2 + i);
      for (std::int64_t j = oldest; j < end; ++j) {
        CopyRow(full.k, j, part.k, 11 + j - oldest);
        CopyRow(full.v, j, part.v, 11 + j - oldest);
      }
      part.Forward(pool);
      const std::string what = "chunk of " + std::to_string(chunk) + " at " +
                               std::to_string(position) + ", window " + std::to_string(window);
      ExpectSameBits<TypeParam>(part.o.view().Rows(2, chunk), full.o.view().Rows(position, chunk),
                                what);
      ExpectSameBits<float>(part.log_sum_exp.view().Rows(2, chunk),
                            full.log_sum_exp.view().Rows(position, chunk), what);
      if (this->HasFatalFailure()) return;
      position = end;
    }
    ASSERT_EQ(position, kTokens);
  }
}

TYPED_TEST(AttentionInvariance, SegmentAloneEqualsTheSegmentInABatch) {
  ThreadPool pool(3);
  const Attention op = HeadsOf(4, 2, 18, 50);
  const std::vector<std::int64_t> lengths = {33, 100, 7, 64, 0, 70};
  AttentionProblem<TypeParam> batch(op, Documents(lengths), 274, 274);
  batch.Forward(pool);
  batch.Backward(pool);
  for (const AttentionSegment& s : batch.segments) {
    const std::int64_t n = s.num_queries;
    AttentionProblem<TypeParam> alone(op, Documents({n}), n, n);
    for (std::int64_t i = 0; i < n; ++i) {
      CopyRow(batch.q, s.query_begin + i, alone.q, i);
      CopyRow(batch.k, s.key_begin + i, alone.k, i);
      CopyRow(batch.v, s.key_begin + i, alone.v, i);
      CopyRow(batch.d_o, s.query_begin + i, alone.d_o, i);
    }
    alone.Forward(pool);
    alone.Backward(pool);
    ExpectSameBits<TypeParam>(alone.o.view(), batch.o.view().Rows(s.query_begin, n), "o");
    ExpectSameBits<TypeParam>(alone.dq.view(), batch.dq.view().Rows(s.query_begin, n), "dq");
    ExpectSameBits<TypeParam>(alone.dk.view(), batch.dk.view().Rows(s.key_begin, n), "dk");
    ExpectSameBits<TypeParam>(alone.dv.view(), batch.dv.view().Rows(s.key_begin, n), "dv");
    if (this->HasFatalFailure()) return;
  }
}

// NaN in everything of one segment; the segments before and after keep their bits.
TYPED_TEST(AttentionInvariance, NansStayInTheirSegment) {
  ThreadPool pool(2);
  AttentionProblem<TypeParam> clean(HeadsOf(4, 2, 18, 0), Documents({70, 10, 70}), 150, 150);
  AttentionProblem<TypeParam> dirty = clean;
  const TypeParam nan = Narrow<TypeParam>(std::numeric_limits<float>::quiet_NaN());
  for (TestMatrix<TypeParam>* m : {&dirty.q, &dirty.k, &dirty.v, &dirty.d_o}) {
    for (std::int64_t r = 70; r < 80; ++r) {
      for (std::int64_t i = 0; i < m->width(); ++i) m->at(r, i) = nan;
    }
  }
  for (AttentionProblem<TypeParam>* p : {&clean, &dirty}) {
    p->Forward(pool);
    p->Backward(pool);
  }
  for (const std::int64_t begin : {0, 80}) {
    ExpectSameBits<TypeParam>(dirty.o.view().Rows(begin, 70), clean.o.view().Rows(begin, 70), "o");
    ExpectSameBits<TypeParam>(dirty.dq.view().Rows(begin, 70), clean.dq.view().Rows(begin, 70),
                              "dq");
    ExpectSameBits<TypeParam>(dirty.dk.view().Rows(begin, 70), clean.dk.view().Rows(begin, 70),
                              "dk");
    ExpectSameBits<TypeParam>(dirty.dv.view().Rows(begin, 70), clean.dv.view().Rows(begin, 70),
                              "dv");
  }
  EXPECT_TRUE(std::isnan(Widen(dirty.o.at(75, 0))));
}

// A key that a query does not see may hold anything.
TYPED_TEST(AttentionInvariance, MaskedKeysDoNotMatter) {
  ThreadPool pool(2);
  constexpr std::int64_t kWindow = 20;
  AttentionProblem<TypeParam> clean(HeadsOf(4, 2, 18, kWindow), Documents({150}), 150, 150);
  for (const float junk :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    AttentionProblem<TypeParam> dirty = clean;
    constexpr std::int64_t kKey = 70;
    for (std::int64_t i = 0; i < dirty.k.width(); ++i) {
      dirty.k.at(kKey, i) = dirty.v.at(kKey, i) = Narrow<TypeParam>(junk);
    }
    for (AttentionProblem<TypeParam>* p : {&clean, &dirty}) {
      p->Forward(pool);
      p->Backward(pool);
    }
    for (std::int64_t i = 0; i < 150; ++i) {
      const bool sees = i >= kKey && i - kKey < kWindow;
      for (std::int64_t c = 0; c < dirty.o.width(); ++c) {
        ASSERT_EQ(SameBits(dirty.o.at(i, c), clean.o.at(i, c)), !sees) << "o of query " << i;
        ASSERT_EQ(SameBits(dirty.dq.at(i, c), clean.dq.at(i, c)), !sees) << "dq of query " << i;
      }
    }
  }
}

// Rows of no segment, of inputs and outputs.
TYPED_TEST(AttentionInvariance, RowsOfNoSegmentAreNeitherReadNorWritten) {
  ThreadPool pool(2);
  const std::vector<AttentionSegment> segments = {
      {.query_begin = 3, .num_queries = 20, .key_begin = 5, .num_keys = 20},
      {.query_begin = 30, .num_queries = 0, .key_begin = 30, .num_keys = 0}};
  AttentionProblem<TypeParam> p(HeadsOf(4, 2, 18, 0), segments, 40, 40);
  const TypeParam nan = Narrow<TypeParam>(std::numeric_limits<float>::quiet_NaN());
  const TypeParam mark = Narrow<TypeParam>(42.0f);
  for (std::int64_t r = 0; r < 40; ++r) {
    for (std::int64_t i = 0; i < p.q.width(); ++i) {
      p.o.at(r, i) = p.dq.at(r, i) = mark;
      if (r < 3 || r >= 23) p.q.at(r, i) = p.d_o.at(r, i) = nan;
    }
    for (std::int64_t i = 0; i < p.k.width(); ++i) {
      p.dk.at(r, i) = p.dv.at(r, i) = mark;
      if (r < 5 || r >= 25) p.k.at(r, i) = p.v.at(r, i) = nan;
    }
  }
  p.Forward(pool);
  p.Backward(pool);
  for (std::int64_t r = 0; r < 40; ++r) {
    const bool query = r >= 3 && r < 23, key = r >= 5 && r < 25;
    for (std::int64_t i = 0; i < p.q.width(); ++i) {
      ASSERT_EQ(p.o.at(r, i) == mark, !query) << r;
      ASSERT_EQ(p.dq.at(r, i) == mark, !query) << r;
      if (query) {
        ASSERT_TRUE(std::isfinite(Widen(p.o.at(r, i)))) << r;
        ASSERT_TRUE(std::isfinite(Widen(p.dq.at(r, i)))) << r;
      }
    }
    for (std::int64_t i = 0; i < p.k.width(); ++i) {
      ASSERT_EQ(p.dk.at(r, i) == mark, !key) << r;
      ASSERT_EQ(p.dv.at(r, i) == mark, !key) << r;
      if (key) {
        ASSERT_TRUE(std::isfinite(Widen(p.dk.at(r, i)))) << r;
        ASSERT_TRUE(std::isfinite(Widen(p.dv.at(r, i)))) << r;
      }
    }
  }
}

// d_sinks is summed over rows: not over segments, in whatever order they come, and not over rows of
// none.
TYPED_TEST(AttentionInvariance, SinkGradientsDoNotDependOnTheOrderOfSegments) {
  std::vector<AttentionSegment> segments = Documents({70, 1, 90, 33});
  segments.erase(segments.begin() + 1);
  AttentionProblem<TypeParam> first(HeadsOf(4, 2, 18, 0), segments, 194, 194);
  first.AddSinks();
  AttentionProblem<TypeParam> second = first;
  std::reverse(second.segments.begin(), second.segments.end());
  const TypeParam nan = Narrow<TypeParam>(std::numeric_limits<float>::quiet_NaN());
  for (TestMatrix<TypeParam>* m : {&second.q, &second.d_o, &second.o}) m->at(70, 3) = nan;
  second.log_sum_exp.at(70, 0) = std::numeric_limits<float>::quiet_NaN();
  ThreadPool one(1), three(3);
  first.Forward(one);
  first.Backward(one);
  second.Forward(three);
  second.Backward(three);
  ExpectSameBits<float>(second.d_sinks.view(), first.d_sinks.view(), "d_sinks");
  EXPECT_TRUE(std::isfinite(first.d_sinks.at(0, 0)));
}

TYPED_TEST(AttentionInvariance, LogSumExpMayBeLeftOut) {
  ThreadPool pool(1);
  AttentionProblem<TypeParam> with(HeadsOf(4, 2, 18, 0), Documents({70}), 70, 70);
  AttentionProblem<TypeParam> without = with;
  with.Forward(pool);
  AttentionForward<TypeParam>(without.op, without.segments, without.q.view(), without.k.view(),
                              without.v.view(), {}, without.o.span(), {}, pool);
  ExpectSameBits<TypeParam>(without.o.view(), with.o.view(), "o");
}

}  // namespace
}  // namespace headwise
