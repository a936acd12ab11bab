// DeviceBlas on the host, beside //kernels/common/testing:cuda_on_host: the products are the contract GEMM's, done when
// they are enqueued.
#include <memory>
#include <utility>

#include "core/cuda/blas.h"
#include "core/cuda/stream.h"
#include "core/dtype/bf16.h"
#include "core/tensor/row_span.h"
#include "kernels/common/thread_pool.h"
#include "kernels/gemm/gemm.h"

namespace headwise {

struct DeviceBlas::Impl {
  ThreadPool pool{1};
};

DeviceBlas::DeviceBlas(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DeviceBlas::DeviceBlas(DeviceBlas&& other) noexcept = default;
DeviceBlas& DeviceBlas::operator=(DeviceBlas&& other) noexcept = default;
DeviceBlas::~DeviceBlas() = default;

absl::StatusOr<DeviceBlas> DeviceBlas::Create(const CudaStream&) {
  return DeviceBlas(std::make_unique<Impl>());
}

template <typename In, typename Out>
absl::Status DeviceBlas::LinearForward(RowSpan<const In> x, RowSpan<const In> w,
                                       RowSpan<Out> y) const {
  headwise::LinearForward<In, Out>(GemmBackend::kContract, x, w, {}, y, impl_->pool);
  return absl::OkStatus();
}

template <typename In, typename Out>
absl::Status DeviceBlas::LinearBackwardInput(RowSpan<const In> dy, RowSpan<const In> w,
                                             RowSpan<Out> dx) const {
  headwise::LinearBackwardInput<In, Out>(GemmBackend::kContract, dy, w, dx, impl_->pool);
  return absl::OkStatus();
}

template <typename T>
absl::Status DeviceBlas::LinearBackwardWeight(RowSpan<const T> dy, RowSpan<const T> x,
                                              RowSpan<float> dw) const {
  headwise::LinearBackwardWeight<T>(GemmBackend::kContract, dy, x, dw, impl_->pool);
  return absl::OkStatus();
}

#define HW_INSTANTIATE(In, Out)                                                               \
  template absl::Status DeviceBlas::LinearForward(RowSpan<const In>, RowSpan<const In>,       \
                                                  RowSpan<Out>) const;                        \
  template absl::Status DeviceBlas::LinearBackwardInput(RowSpan<const In>, RowSpan<const In>, \
                                                        RowSpan<Out>) const
HW_INSTANTIATE(float, float);
HW_INSTANTIATE(BFloat16, BFloat16);
HW_INSTANTIATE(BFloat16, float);
#undef HW_INSTANTIATE
template absl::Status DeviceBlas::LinearBackwardWeight(RowSpan<const float>, RowSpan<const float>,
                                                       RowSpan<float>) const;
template absl::Status DeviceBlas::LinearBackwardWeight(RowSpan<const BFloat16>,
                                                       RowSpan<const BFloat16>,
                                                       RowSpan<float>) const;

}  // namespace headwise
