#include "model/report/peak_flops.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include "absl/types/span.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/tensor/row_span.h"
#include "core/tensor/tensor.h"
#include "kernels/gemm/gemm.h"

namespace headwise {
namespace {

template <typename T>
double Measure(ThreadPool& pool) {
  using Clock = std::chrono::steady_clock;
  constexpr std::int64_t kSize = 1024;
  const Tensor x = Tensor::Zeros({kSize, kSize}, kDType<T>, Device::kCpu);
  const Tensor w = Tensor::Zeros({kSize, kSize}, kDType<T>, Device::kCpu);
  const Tensor y = Tensor::Zeros({kSize, kSize}, kDType<T>, Device::kCpu);
  double best = 0;
  const auto begin = Clock::now();
  do {
    const auto start = Clock::now();
    LinearForward<T, T>(GemmBackend::kOneDnn, x.Rows<const T>(), w.Rows<const T>(), {}, y.Rows<T>(),
                        pool);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    best = std::max(best, 2.0 * kSize * kSize * kSize / seconds);
  } while (std::chrono::duration<double>(Clock::now() - begin).count() < 0.25);
  return best;
}

// y = x W^T in square matrices that lie in x, w and y.
template <typename T>
absl::StatusOr<double> Measure(Gpu& gpu, std::int64_t size, void* x, void* w, void* y) {
  using Clock = std::chrono::steady_clock;
  constexpr int kRounds = 6, kProducts = 4;
  const auto rows = [&](void* data) { return RowSpan<T>(static_cast<T*>(data), size, size); };
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    HW_RETURN_IF_ERROR(gpu.Synchronize());
    const auto start = Clock::now();
    for (int i = 0; i < kProducts; ++i) {
      HW_RETURN_IF_ERROR((gpu.LinearForward<T, T>(rows(x), rows(w), rows(y))));
    }
    HW_RETURN_IF_ERROR(gpu.Synchronize());
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    const auto edge = static_cast<double>(size);
    best = std::max(best, kProducts * 2.0 * edge * edge * edge / seconds);
  }
  return best;
}

}  // namespace

double MeasurePeakFlops(DType dtype, ThreadPool& pool) {
  HW_CHECK(dtype == DType::kF32 || dtype == DType::kBF16) << Name(dtype);
  return dtype == DType::kBF16 ? Measure<BFloat16>(pool) : Measure<float>(pool);
}

absl::StatusOr<double> MeasurePeakFlops(DType dtype, Gpu& gpu, std::int64_t size) {
  HW_CHECK(dtype == DType::kF32 || dtype == DType::kBF16) << Name(dtype);
  const std::int64_t bytes = size * size * SizeOf(dtype);
  std::shared_ptr<void> matrices[3];
  for (std::shared_ptr<void>& matrix : matrices) {
    HW_ASSIGN_OR_RETURN(matrix, gpu.Allocate(bytes));
    HW_RETURN_IF_ERROR(gpu.Fill(matrix.get(), 0, bytes));
  }
  void *const x = matrices[0].get(), *const w = matrices[1].get(), *const y = matrices[2].get();
  return dtype == DType::kBF16 ? Measure<BFloat16>(gpu, size, x, w, y)
                               : Measure<float>(gpu, size, x, w, y);
}

}  // namespace headwise
