// attention: grouped-query softmax attention with causal, sliding-window and document masks;
// forward and backward; never materialises a T x T matrix.
//
//   o[i, h] = sum_j p[i, j] v[j, g],   p = softmax_j(scale * q[i, h] . k[j, g]),   g = h / (H/G)
//   over keys j of i's own segment with   position(j) <= position(i)   and   position(i) -
//   position(j) < window.
//
// Online softmax (FlashAttention, arXiv:2205.14135) over key tiles of 64 positions, the tile grid
// anchored at position 0 of the segment: a query's bits depend on its own segment, position and
// keys only, never on the batch, the chunking (prefill and decode agree with a full forward), the
// threads, or where the segment lies in memory. A key outside the mask takes no part in the
// arithmetic, so evicted keys and masked keys give the same bits.
//
// Shape letters: T queries, S keys, H query heads, G kv heads, D head_dim. q, o [T, H * D]; k, v
// [S, G * D]; rows may be strided (v may lie inside the packed projection).
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
// softmax denominator, needed by the backward). Segments must not share rows of q; rows of no
// segment are not written. A query with no visible key gives zeros and log_sum_exp = -infinity. T
// is float, BFloat16 or double.
template <typename T>
void AttentionForward(const Attention& op, absl::Span<const AttentionSegment> segments,
                      RowSpan<const T> q, RowSpan<const T> k, RowSpan<const T> v, RowSpan<T> o,
                      RowSpan<Compute<T>> log_sum_exp, ThreadPool& pool);

// Gradients from d_o, recomputing the probabilities. Writes dq [T, H * D], dk, dv [S, G * D] (rows
// of no segment are not written; segments must not share rows of k). Inputs as the forward's; o and
// log_sum_exp as it wrote them.
template <typename T>
void AttentionBackward(const Attention& op, absl::Span<const AttentionSegment> segments,
                       RowSpan<const T> q, RowSpan<const T> k, RowSpan<const T> v,
                       RowSpan<const T> o, RowSpan<const Compute<T>> log_sum_exp,
                       RowSpan<const T> d_o, RowSpan<T> dq, RowSpan<T> dk, RowSpan<T> dv,
                       ThreadPool& pool);

}  // namespace headwise

#endif  // HEADWISE_KERNELS_ATTENTION_ATTENTION_H_
