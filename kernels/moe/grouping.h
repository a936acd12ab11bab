// grouping: the rows of a batch sorted by the expert that they go to, and brought back.
//
//   const ExpertGroups groups = GroupByExpert(experts, num_experts);     // experts [T, k], of router.h
//   DispatchForward<float>(groups, x, rows, pool);                       // x [T, N] -> rows [T k, N]
//   ...                                                                  // grouped_linear.h
//   CombineForward<float>(groups, weights, outputs, y, pool);            // [T k, N] -> y [T, N]
//
//   y[t] = sum_j weights[t][j] * outputs[row of choice (t, j)]
//
// and backward:
//
//   CombineBackward<float>(groups, weights, outputs, dy, doutputs, dweights, pool);
//   DispatchBackward<float>(groups, drows, dx, pool);                    // summed over a token's k
//
// T tokens, k choices of each (in the router's order), E experts, N width. Grouped rows: all of
// expert 0, then all of expert 1, ...; those of one expert in the order of their tokens, so the same
// token's row has the same neighbours whatever the number of threads. Storage T is float, BFloat16 or
// double; weights are in the compute type C = float (double for double). Row spans of any stride and
// alignment, not owned; outputs must not overlap inputs. Every index is 64 bits wide.
//
// Order of operations, in C, one rounding to storage; a token's bits depend on its own rows and
// weights only:
//
//   rows       a bit copy
//   y          a chain of fma(weights[t][j], outputs[..], .) over j = 0 ... k - 1, from +0
//   doutputs   weights[t][j] * dy[t]
//   dweights   dot of dy[t] and the row, N in 64 chains: element n by fma in chain n mod 64,
//              ascending, from +0; then c[i] + c[i + h], h = 32, 16, 8, 4, 2, 1
//   dx         a chain of adds over j, from +0
#ifndef HEADWISE_KERNELS_MOE_GROUPING_H_
#define HEADWISE_KERNELS_MOE_GROUPING_H_

#include <cstdint>
#include <vector>

#include "core/dtype/dtype.h"
#include "core/tensor/row_span.h"
#include "kernels/common/thread_pool.h"

namespace headwise {

struct ExpertGroups {
  std::int64_t tokens = 0;            // T
  std::int64_t chosen = 0;            // k
  std::vector<std::int64_t> offsets;  // [E + 1]: rows [offsets[e], offsets[e + 1]) are expert e's
  std::vector<std::int64_t> row_of;   // [T k]: the row of choice j of token t, at t * k + j

  std::int64_t rows() const { return tokens * chosen; }
  std::int64_t num_experts() const { return static_cast<std::int64_t>(offsets.size()) - 1; }
  std::int64_t count(std::int64_t expert) const { return offsets[expert + 1] - offsets[expert]; }
};

// experts (in) [T, k]. An expert out of range fails an HW_CHECK that names it and its token.
ExpertGroups GroupByExpert(RowSpan<const std::int32_t> experts, std::int64_t num_experts);

// x (in) [T, N], rows (out) [T k, N]. Shapes that do not agree fail an HW_CHECK, here and below.
template <typename T>
void DispatchForward(const ExpertGroups& groups, RowSpan<const T> x, RowSpan<T> rows,
                     ThreadPool& pool);

// drows (in) [T k, N], dx (out) [T, N].
template <typename T>
void DispatchBackward(const ExpertGroups& groups, RowSpan<const T> drows, RowSpan<T> dx,
                      ThreadPool& pool);

// weights (in) [T, k], outputs (in) [T k, N], y (out) [T, N].
template <typename T>
void CombineForward(const ExpertGroups& groups, RowSpan<const Compute<T>> weights,
                    RowSpan<const T> outputs, RowSpan<T> y, ThreadPool& pool);

// weights, outputs (in) as in the forward, dy (in) [T, N]; doutputs (out) [T k, N], dweights (out)
// [T, k].
template <typename T>
void CombineBackward(const ExpertGroups& groups, RowSpan<const Compute<T>> weights,
                     RowSpan<const T> outputs, RowSpan<const T> dy, RowSpan<T> doutputs,
                     RowSpan<Compute<T>> dweights, ThreadPool& pool);

}  // namespace headwise

#endif  // HEADWISE_KERNELS_MOE_GROUPING_H_
