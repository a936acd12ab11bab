// Attention problems for tests: inputs, outputs, and both implementations.
#ifndef HEADWISE_KERNELS_ATTENTION_TEST_PROBLEM_H_
#define HEADWISE_KERNELS_ATTENTION_TEST_PROBLEM_H_

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "core/dtype/dtype.h"
#include "gtest/gtest.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/reference.h"
#include "kernels/common/testing/kernel_testing.h"
#include "kernels/common/thread_pool.h"

namespace headwise {

// H over G heads of D, and the usual scale.
inline Attention HeadsOf(std::int64_t query_heads, std::int64_t kv_heads, std::int64_t head_dim,
                         std::int64_t window) {
  return {.query_heads = query_heads,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .scale = 1 / std::sqrt(static_cast<double>(head_dim)),
          .window = window};
}

// Documents side by side, each from its start to its end.
inline std::vector<AttentionSegment> Documents(const std::vector<std::int64_t>& lengths) {
  std::vector<AttentionSegment> segments;
  std::int64_t begin = 0;
  for (const std::int64_t n : lengths) {
    segments.push_back({.query_begin = begin, .num_queries = n, .key_begin = begin, .num_keys = n});
    begin += n;
  }
  return segments;
}

template <typename T>
struct AttentionProblem {
  using C = Compute<T>;

  AttentionProblem(const Attention& op, std::vector<AttentionSegment> segments,
                   std::int64_t queries, std::int64_t keys, Layout layout = Layout::kContiguous)
      : op(op),
        segments(std::move(segments)),
        q(queries, op.query_heads * op.head_dim, layout),
        k(keys, op.kv_heads * op.head_dim, layout),
        v(k),
        d_o(q),
        o(q),
        dq(q),
        dk(k),
        dv(k),
        log_sum_exp(queries, op.query_heads, layout),
        sinks(1, 0),
        d_sinks(1, 0) {
    Fill(q, 1, 2.0);
    Fill(k, 2, 2.0);
    Fill(v, 3);
    Fill(d_o, 4);
  }

  // A sink for every head, of the size of the scores.
  void AddSinks() {
    sinks = d_sinks = TestMatrix<C>(1, op.query_heads);
    Fill(sinks, 5, 2.0);
  }

  void Forward(ThreadPool& pool) {
    AttentionForward<T>(op, segments, q.view(), k.view(), v.view(), Sinks(), o.span(),
                        log_sum_exp.span(), pool);
  }
  void Backward(ThreadPool& pool) {
    AttentionBackward<T>(op, segments, q.view(), k.view(), v.view(), Sinks(), o.view(),
                         log_sum_exp.view(), d_o.view(), dq.span(), dk.span(), dv.span(),
                         SinkGradients(), pool);
  }
  void ForwardReference() {
    AttentionForwardReference<T>(op, segments, q.view(), k.view(), v.view(), Sinks(), o.span(),
                                 log_sum_exp.span());
  }
  void BackwardReference() {
    AttentionBackwardReference<T>(op, segments, q.view(), k.view(), v.view(), Sinks(), o.view(),
                                  log_sum_exp.view(), d_o.view(), dq.span(), dk.span(), dv.span(),
                                  SinkGradients());
  }

  // Outputs equal in every bit, rows of no segment included.
  void ExpectSameOutputs(const AttentionProblem& expected, const std::string& what) const {
    ExpectSameBits(o.view(), expected.o.view(), what + ": o");
    ExpectSameBits(log_sum_exp.view(), expected.log_sum_exp.view(), what + ": log_sum_exp");
    ExpectSameBits(dq.view(), expected.dq.view(), what + ": dq");
    ExpectSameBits(dk.view(), expected.dk.view(), what + ": dk");
    ExpectSameBits(dv.view(), expected.dv.view(), what + ": dv");
    ExpectSameBits(d_sinks.view(), expected.d_sinks.view(), what + ": d_sinks");
    o.ExpectGapsUntouched();
    log_sum_exp.ExpectGapsUntouched();
    dq.ExpectGapsUntouched();
    dk.ExpectGapsUntouched();
    dv.ExpectGapsUntouched();
    d_sinks.ExpectGapsUntouched();
  }

  absl::Span<const C> Sinks() const {
    return absl::MakeConstSpan(sinks.view().data, sinks.width());
  }
  absl::Span<C> SinkGradients() { return absl::MakeSpan(d_sinks.span().data, d_sinks.width()); }

  Attention op;
  std::vector<AttentionSegment> segments;
  TestMatrix<T> q, k, v, d_o;
  TestMatrix<T> o, dq, dk, dv;
  TestMatrix<C> log_sum_exp;
  TestMatrix<C> sinks, d_sinks;  // [1, H], or [1, 0] for none
};

}  // namespace headwise

#endif  // HEADWISE_KERNELS_ATTENTION_TEST_PROBLEM_H_
