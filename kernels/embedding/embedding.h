// embedding: rows of a table, looked up by token, and the gradient summed back into the table.
//
//   EmbeddingForward<BFloat16>(tokens, table, hidden, pool);
//
// T tokens, V vocabulary, N width. The table is the fp32 master weight (double for storage double);
// the rows come out in storage type T: float, BFloat16 or double. Matrices are row spans of any
// stride and alignment, not owned, and do not overlap. A token outside [0, V) is a programmer's
// error (the data loader checks the text against the vocabulary): an HW_CHECK names the token, its
// index and V, before anything is written.
//
// A table may hold a shard of the vocabulary, ids [begin, begin + R) of V:
//
//   EmbeddingForward<float>(tokens, rows, out, pool, {.begin = begin, .vocabulary = V});
//
// A token of another shard then gives a row of +0 and adds to no gradient. So the shards' lookups,
// added in any order, are the whole table's (a -0 of the table becomes +0), and the shards'
// gradients, one below the other, are the whole's, bit for bit.
#ifndef HEADWISE_KERNELS_EMBEDDING_EMBEDDING_H_
#define HEADWISE_KERNELS_EMBEDDING_EMBEDDING_H_

#include <cstdint>

#include "absl/types/span.h"
#include "core/dtype/dtype.h"
#include "core/tensor/row_span.h"
#include "kernels/common/thread_pool.h"
#include "kernels/common/vocabulary_shard.h"

namespace headwise {

// out[t] = table[tokens[t] - begin], one rounding; +0 where the table does not hold the token.
// tokens (in) [T], table (in) [R, N], out (out) [T, N]; R = V without a shard.
template <typename T>
void EmbeddingForward(absl::Span<const std::int32_t> tokens, RowSpan<const Compute<T>> table,
                      RowSpan<T> out, ThreadPool& pool, VocabularyShard shard = {});

// dtable[v] = the sum of dout[t] over all t with tokens[t] == begin + v: a serial sum from +0, t
// ascending, one add each, in fp32 (double for double). Overwritten; rows never looked up get +0.
// tokens (in) [T], dout (in) [T, N], dtable (out) [R, N].
template <typename T>
void EmbeddingBackward(absl::Span<const std::int32_t> tokens, RowSpan<const T> dout,
                       RowSpan<Compute<T>> dtable, ThreadPool& pool, VocabularyShard shard = {});

}  // namespace headwise

#endif  // HEADWISE_KERNELS_EMBEDDING_EMBEDDING_H_
