// The contract backend of gemm.h. Internal to kernels/gemm.
#ifndef HEADWISE_KERNELS_GEMM_CONTRACT_PRODUCT_H_
#define HEADWISE_KERNELS_GEMM_CONTRACT_PRODUCT_H_

#include "kernels/common/thread_pool.h"
#include "kernels/gemm/product.h"

namespace headwise::gemm {

// c[i][j] = round(chain + bias[j]), where chain is fma(a[i][p], b[p][j], chain) over ascending p
// from +0, in Compute<TIn>. How the output is cut into tiles shows in no bit. Types as
// LinearForward's.
template <typename TIn, typename TOut>
void ContractProduct(const Product<TIn, TOut>& product, ThreadPool& pool);

}  // namespace headwise::gemm

#endif  // HEADWISE_KERNELS_GEMM_CONTRACT_PRODUCT_H_
