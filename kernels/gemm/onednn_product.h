// The oneDNN backend of gemm.h. Internal to kernels/gemm.
#ifndef HEADWISE_KERNELS_GEMM_ONEDNN_PRODUCT_H_
#define HEADWISE_KERNELS_GEMM_ONEDNN_PRODUCT_H_

#include "kernels/common/thread_pool.h"
#include "kernels/gemm/product.h"

namespace headwise::gemm {

// Computes the product by single-threaded oneDNN calls on panels of c that depend on m, n and k
// only, and returns true. Returns false, with c untouched, if oneDNN has no product of these types
// for this processor (bfloat16 without AVX-512). (TIn, TOut): (float, float), (BFloat16, BFloat16),
// (BFloat16, float).
template <typename TIn, typename TOut>
[[nodiscard]] bool OneDnnProduct(const Product<TIn, TOut>& product, ThreadPool& pool);

}  // namespace headwise::gemm

#endif  // HEADWISE_KERNELS_GEMM_ONEDNN_PRODUCT_H_
