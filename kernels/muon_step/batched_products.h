// For gpu_benchmark: products of batches of bf16 matrices, by cuBLAS on a GPU (batched_products_cublas.cc)
// or by loops on the host (batched_products_on_host.cc). cuBLAS is opened at run time, so that the
// program starts where there is none.
//
// Matrices lie by columns, as in BLAS: c <- alpha op(a) b + beta c, of op(a) [m, k], b [k, n], c [m, n].
#ifndef HEADWISE_KERNELS_MUON_STEP_BATCHED_PRODUCTS_H_
#define HEADWISE_KERNELS_MUON_STEP_BATCHED_PRODUCTS_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/dtype/dtype.h"

struct CUstream_st;

namespace headwise {

// A matrix of each of a batch: the distance of columns, and from one matrix to the next.
template <typename T>
struct MatrixBatch {
  T* data;
  std::int64_t stride, next;
};

class BatchedProducts {
 public:
  // kNotFound, saying where it looked, if there is no cuBLAS.
  static absl::StatusOr<std::unique_ptr<BatchedProducts>> Create();
  virtual ~BatchedProducts() = default;

  // Enqueued; sums in fp32; can be captured.
  virtual absl::Status Multiply(bool transpose_a, std::int64_t m, std::int64_t n, std::int64_t k,
                                float alpha, const MatrixBatch<const BFloat16>& a,
                                const MatrixBatch<const BFloat16>& b, float beta,
                                const MatrixBatch<BFloat16>& c, std::int64_t count,
                                CUstream_st* stream) = 0;
};

}  // namespace headwise

#endif  // HEADWISE_KERNELS_MUON_STEP_BATCHED_PRODUCTS_H_
