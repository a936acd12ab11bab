// gemm: the products of a linear layer, y = x W^T, and its two backward products, on the CPU.
//
// Two backends with one meaning:
//
//   kOneDnn     oneDNN, called single-threaded on fixed panels of the output (its own threaded
//               products change bits with the thread count on some shapes). Fastest, and bf16 uses
//               the processor's matrix unit where there is one. Same bits for any number of
//               threads; not promised across machines or shapes: a row's bits may change with the
//               rows beside it. Where oneDNN has no bfloat16 (no AVX-512), it runs as kContract.
//   kContract   every output element is one serial fma chain over ascending k from +0, then one
//               rounding. A row's bits depend on that row and W only: the same on every machine,
//               in every batch.
//
// Shape letters: T tokens (rows), N out_features, K in_features. Weights are in PyTorch's order
// [N, K]. Storage types: float, BFloat16 (products exact in fp32, sums in fp32), and double
// (kContract only: gradient tests). Memory belongs to the caller. Shapes that do not fit are a
// failed HW_CHECK. Calls may run at once if each has its own pool and output. oneDNN's first
// product of a shape takes some milliseconds more, to make code that is kept.
//
//   ThreadPool pool(2);
//   LinearForward<float, float>(GemmBackend::kOneDnn, x, w, bias, y, pool);
//   LinearBackwardInput<float, float>(GemmBackend::kOneDnn, dy, w, dx, pool);
//   LinearBackwardWeight<float>(GemmBackend::kOneDnn, dy, x, dw, pool);
//   LinearBackwardBias<float>(dy, dbias, pool);
//
// Equivalent in PyTorch: y = linear(x, w, bias); dx = dy @ w; dw = dy.T @ x; dbias = dy.sum(0).
#ifndef HEADWISE_KERNELS_GEMM_GEMM_H_
#define HEADWISE_KERNELS_GEMM_GEMM_H_

#include "absl/types/span.h"
#include "core/dtype/dtype.h"
#include "core/tensor/row_span.h"
#include "kernels/common/thread_pool.h"

namespace headwise {

enum class GemmBackend { kOneDnn, kContract };

const char* Name(GemmBackend backend);

// y[t][n] = sum_k x[t][k] w[n][k] (+ bias[n], one add, before the rounding to TOut).
//   x [T, K], w [N, K], y [T, N]; bias [N] or empty. (TIn, TOut): (float, float), (BFloat16,
//   BFloat16), (BFloat16, float), (double, double). Rows may be strided. y must not overlap an
//   input. T, N or K may be 0 (K = 0 gives zeros + bias).
template <typename TIn, typename TOut>
void LinearForward(GemmBackend backend, RowSpan<const TIn> x, RowSpan<const TIn> w,
                   absl::Span<const Compute<TIn>> bias, RowSpan<TOut> y, ThreadPool& pool);

// dx[t][k] = sum_n dy[t][n] w[n][k].   dy [T, N], w [N, K], dx [T, K]. Types as above.
template <typename TIn, typename TOut>
void LinearBackwardInput(GemmBackend backend, RowSpan<const TIn> dy, RowSpan<const TIn> w,
                         RowSpan<TOut> dx, ThreadPool& pool);

// dw[n][k] = sum_t dy[t][n] x[t][k], always in fp32 (double for double), overwritten.   dy [T, N],
// x [T, K], dw [N, K].
template <typename T>
void LinearBackwardWeight(GemmBackend backend, RowSpan<const T> dy, RowSpan<const T> x,
                          RowSpan<Compute<T>> dw, ThreadPool& pool);

// dbias[n] = sum_t dy[t][n]: token tiles of 64, each a serial chain of adds from +0 over ascending
// t, then an adjacent-pair tree over tiles. Overwritten.
template <typename T>
void LinearBackwardBias(RowSpan<const T> dy, absl::Span<Compute<T>> dbias, ThreadPool& pool);

}  // namespace headwise

#endif  // HEADWISE_KERNELS_GEMM_GEMM_H_
