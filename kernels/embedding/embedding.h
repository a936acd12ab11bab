// embedding: rows of a table, looked up by token, and the gradient summed back into the table.
#ifndef HEADWISE_KERNELS_EMBEDDING_EMBEDDING_H_
#define HEADWISE_KERNELS_EMBEDDING_EMBEDDING_H_

#include <cstdint>

#include "absl/types/span.h"
#include "core/dtype/dtype.h"
#include "core/tensor/row_span.h"
#include "kernels/common/thread_pool.h"

namespace headwise {

// out[t] = table[tokens[t]].   table [V, N] of fp32 master weights (double for double), out [T, N], one rounding.
// Every token must be in [0, V) (checked).
template <typename T>
void EmbeddingForward(absl::Span<const std::int32_t> tokens, RowSpan<const Compute<T>> table,
                      RowSpan<T> out, ThreadPool& pool);

// dtable[v] = sum over t with tokens[t] == v of dout[t], ascending t, from +0; overwritten (rows never looked up get +0).
template <typename T>
void EmbeddingBackward(absl::Span<const std::int32_t> tokens, RowSpan<const T> dout,
                       RowSpan<Compute<T>> dtable, ThreadPool& pool);

}  // namespace headwise

#endif  // HEADWISE_KERNELS_EMBEDDING_EMBEDDING_H_
