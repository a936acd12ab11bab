#include "model/report/peak_flops.h"

#include <algorithm>
#include <chrono>

#include "absl/types/span.h"
#include "core/base/check.h"
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

}  // namespace

double MeasurePeakFlops(DType dtype, ThreadPool& pool) {
  HW_CHECK(dtype == DType::kF32 || dtype == DType::kBF16) << Name(dtype);
  return dtype == DType::kBF16 ? Measure<BFloat16>(pool) : Measure<float>(pool);
}

}  // namespace headwise
