#include "kernels/gemm/gemm.h"

#include <type_traits>

#include "core/base/check.h"
#include "kernels/common/reductions.h"
#include "kernels/gemm/contract_product.h"
#include "kernels/gemm/onednn_product.h"
#include "kernels/gemm/product.h"

namespace headwise {
namespace {

// The backend's product, and what no backend does: empty dimensions.
template <typename TIn, typename TOut>
void Multiply(GemmBackend backend, const gemm::Product<TIn, TOut>& product, ThreadPool& pool) {
  if (product.m == 0 || product.n == 0) return;
  if (product.k == 0) {
    for (std::int64_t i = 0; i < product.m; ++i) {
      TOut* out = product.c.row(i);
      for (std::int64_t j = 0; j < product.n; ++j) {
        out[j] = Narrow<TOut>(product.bias == nullptr ? 0 : product.bias[j]);
      }
    }
    return;
  }
  if constexpr (std::is_same_v<TIn, double>) {
    HW_CHECK(backend == GemmBackend::kContract) << "oneDNN has no product in double";
  } else if (backend == GemmBackend::kOneDnn && gemm::OneDnnProduct(product, pool)) {
    return;
  }
  gemm::ContractProduct(product, pool);
}

}  // namespace

const char* Name(GemmBackend backend) {
  switch (backend) {
    case GemmBackend::kOneDnn:
      return "onednn";
    case GemmBackend::kContract:
      return "contract";
  }
  HW_CHECK(false) << "not a GemmBackend: " << static_cast<int>(backend);
}

template <typename TIn, typename TOut>
void LinearForward(GemmBackend backend, RowSpan<const TIn> x, RowSpan<const TIn> w,
                   absl::Span<const Compute<TIn>> bias, RowSpan<TOut> y, ThreadPool& pool) {
  HW_CHECK_EQ(x.rows, y.rows) << "tokens of x and y";
  HW_CHECK_EQ(x.width, w.width) << "in_features of x and w";
  HW_CHECK_EQ(w.rows, y.width) << "out_features of w and y";
  HW_CHECK(bias.empty() || static_cast<std::int64_t>(bias.size()) == y.width)
      << "bias has " << bias.size() << " elements, y is " << y.width << " wide";
  Multiply(backend,
           gemm::Product<TIn, TOut>{.m = y.rows,
                                    .n = y.width,
                                    .k = x.width,
                                    .a = gemm::Plain<TIn>(x),
                                    .b = gemm::Transposed<TIn>(w),
                                    .bias = bias.empty() ? nullptr : bias.data(),
                                    .c = y},
           pool);
}

template <typename TIn, typename TOut>
void LinearBackwardInput(GemmBackend backend, RowSpan<const TIn> dy, RowSpan<const TIn> w,
                         RowSpan<TOut> dx, ThreadPool& pool) {
  HW_CHECK_EQ(dy.rows, dx.rows) << "tokens of dy and dx";
  HW_CHECK_EQ(dy.width, w.rows) << "out_features of dy and w";
  HW_CHECK_EQ(w.width, dx.width) << "in_features of w and dx";
  Multiply(backend,
           gemm::Product<TIn, TOut>{.m = dx.rows,
                                    .n = dx.width,
                                    .k = dy.width,
                                    .a = gemm::Plain<TIn>(dy),
                                    .b = gemm::Plain<TIn>(w),
                                    .c = dx},
           pool);
}

template <typename T>
void LinearBackwardWeight(GemmBackend backend, RowSpan<const T> dy, RowSpan<const T> x,
                          RowSpan<Compute<T>> dw, ThreadPool& pool) {
  HW_CHECK_EQ(dy.rows, x.rows) << "tokens of dy and x";
  HW_CHECK_EQ(dy.width, dw.rows) << "out_features of dy and dw";
  HW_CHECK_EQ(x.width, dw.width) << "in_features of x and dw";
  Multiply(backend,
           gemm::Product<T, Compute<T>>{.m = dw.rows,
                                        .n = dw.width,
                                        .k = x.rows,
                                        .a = gemm::Transposed<T>(dy),
                                        .b = gemm::Plain<T>(x),
                                        .c = dw},
           pool);
}

template <typename T>
void LinearBackwardBias(RowSpan<const T> dy, absl::Span<Compute<T>> dbias, ThreadPool& pool) {
  using C = Compute<T>;
  HW_CHECK_EQ(static_cast<std::int64_t>(dbias.size()), dy.width) << "dbias and dy";
  SumOverTokens(dy.rows, dbias, pool, [&](std::int64_t begin, std::int64_t end, C* sum) {
    for (std::int64_t t = begin; t < end; ++t) {
      const T* row = dy.row(t);
      for (std::int64_t n = 0; n < dy.width; ++n) sum[n] += Widen(row[n]);
    }
  });
}

#define HEADWISE_GEMM_INSTANTIATE(TIn, TOut)                                               \
  template void LinearForward(GemmBackend, RowSpan<const TIn>, RowSpan<const TIn>,         \
                              absl::Span<const Compute<TIn>>, RowSpan<TOut>, ThreadPool&); \
  template void LinearBackwardInput(GemmBackend, RowSpan<const TIn>, RowSpan<const TIn>,   \
                                    RowSpan<TOut>, ThreadPool&);
HEADWISE_GEMM_INSTANTIATE(float, float)
HEADWISE_GEMM_INSTANTIATE(BFloat16, BFloat16)
HEADWISE_GEMM_INSTANTIATE(BFloat16, float)
HEADWISE_GEMM_INSTANTIATE(double, double)
#undef HEADWISE_GEMM_INSTANTIATE

#define HEADWISE_GEMM_INSTANTIATE(T)                                                  \
  template void LinearBackwardWeight(GemmBackend, RowSpan<const T>, RowSpan<const T>, \
                                     RowSpan<Compute<T>>, ThreadPool&);               \
  template void LinearBackwardBias(RowSpan<const T>, absl::Span<Compute<T>>, ThreadPool&);
HEADWISE_GEMM_INSTANTIATE(float)
HEADWISE_GEMM_INSTANTIATE(BFloat16)
HEADWISE_GEMM_INSTANTIATE(double)
#undef HEADWISE_GEMM_INSTANTIATE

}  // namespace headwise
