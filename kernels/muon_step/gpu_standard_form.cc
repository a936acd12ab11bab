#include "kernels/muon_step/gpu_standard_form.h"

#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "kernels/newton_schulz/coefficients.h"

namespace headwise {

absl::StatusOr<GpuStandardForm> GpuStandardForm::Create(std::int64_t blocks, std::int64_t d,
                                                        std::int64_t n,
                                                        absl::Span<const BFloat16> x) {
  GpuStandardForm form;
  form.blocks_ = blocks;
  form.d_ = d;
  form.n_ = n;
  HW_ASSIGN_OR_RETURN(form.products_, BatchedProducts::Create());
  HW_ASSIGN_OR_RETURN(form.x_, DeviceArray<BFloat16>::Of(x));
  HW_ASSIGN_OR_RETURN(form.next_, DeviceArray<BFloat16>::Allocate(blocks * d * n));
  HW_ASSIGN_OR_RETURN(form.a_, DeviceArray<BFloat16>::Allocate(blocks * d * d));
  HW_ASSIGN_OR_RETURN(form.b_, DeviceArray<BFloat16>::Allocate(blocks * d * d));
  return form;
}

// What lies by rows is its transpose by columns; A and B are symmetric.
absl::Status GpuStandardForm::Enqueue(CUstream_st* stream) const {
  constexpr std::int64_t kBytes = sizeof(BFloat16);
  const MatrixBatch<BFloat16> a = {a_.data(), d_, d_ * d_}, b = {b_.data(), d_, d_ * d_};
  const auto constant = [](const MatrixBatch<BFloat16>& m) {
    return MatrixBatch<const BFloat16>{m.data, m.stride, m.next};
  };
  MatrixBatch<BFloat16> x = {x_.data(), n_, d_ * n_}, next = {next_.data(), n_, d_ * n_};
  for (const QuinticStep& step : Quintic5().steps) {
    HW_RETURN_IF_ERROR(products_->Multiply(/*transpose_a=*/true, d_, d_, n_, 1.0f, constant(x),
                                           constant(x), 0.0f, a, blocks_, stream));
    HW_RETURN_IF_ERROR(CopyOnDevice(b.data, a.data, blocks_ * d_ * d_ * kBytes, stream));
    HW_RETURN_IF_ERROR(products_->Multiply(false, d_, d_, d_, step.c, constant(a), constant(a),
                                           step.b, b, blocks_, stream));
    HW_RETURN_IF_ERROR(CopyOnDevice(next.data, x.data, blocks_ * d_ * n_ * kBytes, stream));
    HW_RETURN_IF_ERROR(products_->Multiply(false, n_, d_, d_, 1.0f, constant(x), constant(b),
                                           step.a, next, blocks_, stream));
    std::swap(x, next);
  }
  HW_CHECK(x.data == next_.data());
  return absl::OkStatus();
}

}  // namespace headwise
