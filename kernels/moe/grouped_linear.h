// grouped_linear: one linear layer per expert on rows grouped by expert (grouping.h), and its
// backward products.
//
//   y[r] = x[r] W_e^T (+ bias_e)    for every row r of expert e: offsets[e] <= r < offsets[e + 1]
//
//   GroupedLinearForward<float, float>(backend, groups.offsets, x, w, bias, y, pool);
//   GroupedLinearBackwardInput<float, float>(backend, groups.offsets, dy, w, dx, pool);
//   GroupedLinearBackwardWeight<float>(backend, groups.offsets, dy, x, dw, pool);
//   GroupedLinearBackwardBias<float>(groups.offsets, dy, dbias, pool);
//
// Shape letters: R rows (tokens times choices), E experts, N out_features, K in_features. The weights
// of all experts are one matrix of E N rows, W_e being rows [e N, (e + 1) N); biases are [E, N]. An
// expert may have no rows: its weight and bias gradients are then +0. Types and the products are
// those of kernels/gemm, an expert at a time:
//
//   kContract   every element is one serial fma chain, so a row's bits depend on that row and its
//               expert's weights only, not on the other rows of the batch or on how many experts there
//               are: prefill and decode agree. The weight gradient's chain runs over the expert's rows,
//               ascending.
//   kOneDnn     the same bits for any number of threads; a row's bits may change with the number of
//               its expert's rows. oneDNN makes code for every number of rows, and batches bring ever
//               new ones: rows are padded with zeros in scratch memory, to 1, 2, 4, 8, then multiples
//               of 8, from 64 on of 16. Zeros add nothing.
//
// bias gradient: kernels/gemm's tiles and tree, over the expert's rows. Memory belongs to the caller;
// outputs must not overlap inputs. Shapes that do not fit, and offsets that are not ascending from 0
// to R, fail an HW_CHECK.
#ifndef HEADWISE_KERNELS_MOE_GROUPED_LINEAR_H_
#define HEADWISE_KERNELS_MOE_GROUPED_LINEAR_H_

#include <cstdint>

#include "absl/types/span.h"
#include "core/dtype/dtype.h"
#include "core/tensor/row_span.h"
#include "kernels/common/thread_pool.h"
#include "kernels/gemm/gemm.h"

namespace headwise {

// offsets (in) [E + 1], x (in) [R, K], w (in) [E N, K], bias (in) [E, N] or data == nullptr for none,
// y (out) [R, N].
template <typename TIn, typename TOut>
void GroupedLinearForward(GemmBackend backend, absl::Span<const std::int64_t> offsets,
                          RowSpan<const TIn> x, RowSpan<const TIn> w,
                          RowSpan<const Compute<TIn>> bias, RowSpan<TOut> y, ThreadPool& pool);

// dy (in) [R, N], w (in) [E N, K], dx (out) [R, K].
template <typename TIn, typename TOut>
void GroupedLinearBackwardInput(GemmBackend backend, absl::Span<const std::int64_t> offsets,
                                RowSpan<const TIn> dy, RowSpan<const TIn> w, RowSpan<TOut> dx,
                                ThreadPool& pool);

// dy (in) [R, N], x (in) [R, K], dw (out) [E N, K] in fp32 (double for double), overwritten.
template <typename T>
void GroupedLinearBackwardWeight(GemmBackend backend, absl::Span<const std::int64_t> offsets,
                                 RowSpan<const T> dy, RowSpan<const T> x, RowSpan<Compute<T>> dw,
                                 ThreadPool& pool);

// dy (in) [R, N], dbias (out) [E, N], overwritten.
template <typename T>
void GroupedLinearBackwardBias(absl::Span<const std::int64_t> offsets, RowSpan<const T> dy,
                               RowSpan<Compute<T>> dbias, ThreadPool& pool);

}  // namespace headwise

#endif  // HEADWISE_KERNELS_MOE_GROUPED_LINEAR_H_
