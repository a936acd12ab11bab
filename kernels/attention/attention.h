// attention: grouped-query softmax attention with causal, sliding-window and document masks and
// optional sinks; forward and backward; never materialises a T x T matrix.
//
//   o[i, h] = sum_j p[i, j] v[j, g],   p = softmax_j(scale * q[i, h] . k[j, g]),   g = h / (H/G)
//   over the keys j of i's own segment with position(j) <= position(i) and
//   position(i) - position(j) < window.
//
// A sink is a learned logit of a query head that adds exp(sink[h]) to the softmax's denominator and
// nothing else: what a head gives to it, it gives to no key (GPT-OSS; modeling_gpt_oss.py of
// transformers).
//
// Shape letters: T queries, S keys, H query heads, G kv heads, D head_dim (any). q, o [T, H * D];
// k, v [S, G * D]; rows may be strided (v may lie inside the packed projection). Storage is float,
// BFloat16 (arithmetic in fp32, one rounding at the end) or double (derivative checks).
//
// Example, training on two documents packed into one batch:
//
//   const Attention op = {.query_heads = 8, .kv_heads = 2, .head_dim = 64, .scale = 0.125};
//   const AttentionSegment documents[] = {
//       {.query_begin = 0, .num_queries = 300, .key_begin = 0, .num_keys = 300},
//       {.query_begin = 300, .num_queries = 212, .key_begin = 300, .num_keys = 212}};
//   AttentionForward<float>(op, documents, q, k, v, sinks, o, log_sum_exp, pool);
//   AttentionBackward<float>(op, documents, q, k, v, sinks, o, log_sum_exp, d_o, dq, dk, dv, d_sinks,
//                            pool);  // sinks and d_sinks: {} for none
//
// and decoding one token at position 900, of which the cache still holds keys 512 to 900:
//
//   {.query_begin = 0, .num_queries = 1, .query_position = 900,
//    .key_begin = 0, .num_keys = 389, .key_position = 512}
//
// Equivalent in PyTorch, without sinks: scaled_dot_product_attention(q, k, v, mask, scale=scale,
// enable_gqa=True).
//
// The order of operations is a contract (docs/numerics.md), in fp32 with math.h's Exp and Log. A
// query's bits depend on its own segment, position and keys only: not on the batch, the chunking
// (prefill and decode agree with a full forward), the threads, or where the segment lies in memory.
// A key outside the mask takes no part in the arithmetic, whatever it holds, so evicted keys and
// masked keys give the same bits.
//
//   Forward: online softmax (FlashAttention, arXiv:2205.14135) over tiles of 64 key positions, the
//   grid anchored at position 0 of the segment, ascending. At first m = -inf, l = +0, a[d] = +0; with
//   a sink, as if a key of value zero had been seen before all others, m = sink, l = 1. (A sink of
//   -inf gives the bits of none: Exp(-inf) takes the 1 away.) For every tile with a visible key:
//     s[j] = chain(q, k[j]) * scale                chain: fma over ascending d, from +0
//     n = max(m, max of s), c = Exp(m - n), m = n
//     p[j] = Exp(s[j] - n)
//     l = fma(l, c, sum of p)                      key j in chain j mod 16, ascending, from +0;
//                                                  then lane[i] + lane[i + h] for h = 8, 4, 2, 1
//     a[d] = a[d] * c, then fma(p[j], v[j][d], a[d]) over ascending j
//   o[d] = a[d] * (1 / l), rounded to storage; log_sum_exp = m + Log(l).
//
//   Backward: p[j] = Exp(s[j] - log_sum_exp); dp[j] = chain(d_o, v[j]); ds[j] = p[j] * (dp[j] - r);
//   r = d_o . o with element d in chain d mod 16, D padded with zeros to a multiple of 16, and the
//   same halving sum. Each gradient element is one fma chain from +0 and one rounding to storage:
//     dq[d] = (fma(ds[j], k[j][d], .) over ascending j) * scale
//     dk[d] = (fma(ds, q[d], .) over queries by position, the heads of the group in turn) * scale
//     dv[d] =  fma(p, d_o[d], .) in the same order
//   d_sink[h] is a sum over the rows of q, in fp32: tiles of 64 rows, each a chain fma(-p, r, .) from
//   +0 over ascending rows, p = Exp(sink[h] - log_sum_exp); then an adjacent-pair tree over tiles
//   (kernels/common/reductions.h). Rows of no segment, and those whose log_sum_exp is -infinity, are
//   left out.
#ifndef HEADWISE_KERNELS_ATTENTION_ATTENTION_H_
#define HEADWISE_KERNELS_ATTENTION_ATTENTION_H_

#include <cstdint>

#include "absl/types/span.h"
#include "core/dtype/dtype.h"
#include "core/tensor/row_span.h"
#include "kernels/common/thread_pool.h"

namespace headwise {

// One document of a training batch, or one row of a decoding batch: queries and keys at consecutive
// positions. Queries of a segment see keys of the same segment only.
struct AttentionSegment {
  std::int64_t query_begin = 0;  // first row of q
  std::int64_t num_queries = 0;
  std::int64_t query_position = 0;  // position of the first query, counted from the segment's start
  std::int64_t key_begin = 0;       // first row of k and v
  std::int64_t num_keys = 0;
  std::int64_t key_position =
      0;  // position of the first key: 0, or more if older keys were evicted
};

struct Attention {
  std::int64_t query_heads = 0;  // H
  std::int64_t kv_heads = 0;     // G; divides H
  std::int64_t head_dim = 0;     // D
  double scale = 1.0;            // rounded once to the compute type; usually D^-1/2
  std::int64_t window = 0;       // keys a query sees, itself included; 0: all before it
};

// Writes o [T, H * D] and, unless its data is null, log_sum_exp [T, H] (natural logarithm of the
// softmax denominator, its sink included; needed by the backward). sinks [H], or empty for none.
// Segments must not share rows of q; rows of no segment are neither read nor written. A query with no
// visible key gives zeros and log_sum_exp = the sink, without one -infinity. A visible score that is
// NaN or infinite may make its own query NaN, never another; a sink that is NaN or +infinity its own
// head. Outputs must not overlap inputs. Shapes that do not fit, and segments outside their rows, are
// a failed HW_CHECK.
template <typename T>
void AttentionForward(const Attention& op, absl::Span<const AttentionSegment> segments,
                      RowSpan<const T> q, RowSpan<const T> k, RowSpan<const T> v,
                      absl::Span<const Compute<T>> sinks, RowSpan<T> o,
                      RowSpan<Compute<T>> log_sum_exp, ThreadPool& pool);

// Gradients from d_o, recomputing the probabilities. Writes dq [T, H * D], dk and dv [S, G * D]
// (rows of no segment are neither read nor written; segments must not share rows of q or of k), and
// d_sinks, as long as sinks.
// Inputs as the forward's; o and log_sum_exp as it wrote them. Outputs must not overlap inputs.
template <typename T>
void AttentionBackward(const Attention& op, absl::Span<const AttentionSegment> segments,
                       RowSpan<const T> q, RowSpan<const T> k, RowSpan<const T> v,
                       absl::Span<const Compute<T>> sinks, RowSpan<const T> o,
                       RowSpan<const Compute<T>> log_sum_exp, RowSpan<const T> d_o, RowSpan<T> dq,
                       RowSpan<T> dk, RowSpan<T> dv, absl::Span<Compute<T>> d_sinks,
                       ThreadPool& pool);

}  // namespace headwise

#endif  // HEADWISE_KERNELS_ATTENTION_ATTENTION_H_
