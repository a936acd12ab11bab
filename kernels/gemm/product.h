// What the two backends of gemm.h compute: C[i][j] = sum_p A(i, p) B(p, j) (+ bias[j]). Internal to
// kernels/gemm.
//
// The three products of a linear layer differ only in how A and B lie in memory, which Operand
// says:
//
//   forward          C = y  [T, N]   A = x            B = w transposed
//   input gradient   C = dx [T, K]   A = dy           B = w
//   weight gradient  C = dw [N, K]   A = dy transposed   B = x
#ifndef HEADWISE_KERNELS_GEMM_PRODUCT_H_
#define HEADWISE_KERNELS_GEMM_PRODUCT_H_

#include <cstdint>

#include "absl/types/span.h"
#include "core/dtype/dtype.h"
#include "core/tensor/row_span.h"

namespace headwise::gemm {

// A matrix in memory that is not owned. Element (i, j) is data[i * row_stride + j * col_stride];
// one of the strides is 1.
template <typename T>
struct Operand {
  const T* data = nullptr;
  std::int64_t row_stride = 0;
  std::int64_t col_stride = 0;

  const T* at(std::int64_t i, std::int64_t j) const {
    return data + i * row_stride + j * col_stride;
  }
};

template <typename T>
Operand<T> Plain(RowSpan<const T> m) {
  return {m.data, m.stride, 1};
}
template <typename T>
Operand<T> Transposed(RowSpan<const T> m) {
  return {m.data, 1, m.stride};
}

// One product. a is [m, k], b is [k, n], c is [m, n]; bias [n], or null for none. m, n and k are
// positive.
template <typename TIn, typename TOut>
struct Product {
  std::int64_t m = 0, n = 0, k = 0;
  Operand<TIn> a, b;
  const Compute<TIn>* bias = nullptr;
  RowSpan<TOut> c;
};

}  // namespace headwise::gemm

#endif  // HEADWISE_KERNELS_GEMM_PRODUCT_H_
