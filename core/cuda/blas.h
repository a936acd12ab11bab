// DeviceBlas: the products of a linear layer on the GPU, by cuBLAS, on one stream.
//
//   HW_ASSIGN_OR_RETURN(const DeviceBlas blas, DeviceBlas::Create(stream));
//   HW_RETURN_IF_ERROR(blas.LinearForward<BFloat16, BFloat16>(x, w, y));        // y = x W^T
//   HW_RETURN_IF_ERROR(blas.LinearBackwardInput<BFloat16, BFloat16>(dy, w, dx));  // dx = dy W
//   HW_RETURN_IF_ERROR(blas.LinearBackwardWeight<BFloat16>(dy, x, dw));         // dw = dy^T x
//
// Sums are in fp32: no TF32, no reductions in bf16, no atomics. The bits of a product are those of
// every run with the same shapes, strides, cuBLAS and kind of GPU (cuBLAS's documentation,
// "Reproducibility of results"); they are not those of kernels/gemm, and a row's bits may change
// with the rows beside it. The workspace is allocated once, so a product never allocates, never
// waits, and can be captured in a CUDA graph.
//
// Programs link //core/cuda:blas, or for tests on the host //kernels/gemm:blas_on_host,
// which is the contract GEMM of kernels/gemm. Movable, not thread-safe.
//
// Shape letters: T tokens, N out_features, K in_features.
#ifndef HEADWISE_CORE_CUDA_BLAS_H_
#define HEADWISE_CORE_CUDA_BLAS_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/cuda/stream.h"
#include "core/tensor/row_span.h"

namespace headwise {

class DeviceBlas {
 public:
  // `stream` is not owned and must outlive this: products are enqueued there. kFailedPrecondition
  // without a GPU, kResourceExhausted if there is too little memory for the workspace.
  static absl::StatusOr<DeviceBlas> Create(const CudaStream& stream);
  DeviceBlas(DeviceBlas&& other) noexcept;
  DeviceBlas& operator=(DeviceBlas&& other) noexcept;
  ~DeviceBlas();

  // All matrices are device memory of the caller, rows may be strided, the output overlaps no
  // input. T, N or K may be 0; a sum of nothing is +0. Shapes that do not fit, and sizes above
  // 2^31 - 1, are a failed HW_CHECK; kInternal with cuBLAS's message if a product cannot be
  // enqueued.

  // y[t][n] = sum_k x[t][k] w[n][k].  x [T, K], w [N, K] (in), y [T, N] (out). (In, Out): (float,
  // float), (BFloat16, BFloat16), (BFloat16, float).
  template <typename In, typename Out>
  absl::Status LinearForward(RowSpan<const In> x, RowSpan<const In> w, RowSpan<Out> y) const;

  // dx[t][k] = sum_n dy[t][n] w[n][k].  dy [T, N], w [N, K] (in), dx [T, K] (out). Types as above.
  template <typename In, typename Out>
  absl::Status LinearBackwardInput(RowSpan<const In> dy, RowSpan<const In> w,
                                   RowSpan<Out> dx) const;

  // dw[n][k] = sum_t dy[t][n] x[t][k], overwritten.  dy [T, N], x [T, K] (in), dw [N, K] (out). T
  // is float or BFloat16.
  template <typename T>
  absl::Status LinearBackwardWeight(RowSpan<const T> dy, RowSpan<const T> x,
                                    RowSpan<float> dw) const;

 private:
  struct Impl;  // of the library that is linked
  explicit DeviceBlas(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace headwise

#endif  // HEADWISE_CORE_CUDA_BLAS_H_
