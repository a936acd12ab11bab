#include "kernels/common/cuda/math.cuh"
#include "kernels/common/cuda/math_probe.h"
#include "kernels/emulation/cuda_kernel.h"

namespace headwise::HW_CUDA_NAMESPACE {
namespace {

__global__ void __launch_bounds__(128) ProbeMathKernel(const float* x, float* results, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= n) return;
  const Fp32 v = LoadGlobal(x + i);
  StoreGlobal(results + 5 * i, Exp(v).value);
  StoreGlobal(results + 5 * i + 1, Log(v).value);
  StoreGlobal(results + 5 * i + 2, Tanh(v).value);
  StoreGlobal(results + 5 * i + 3, Sigmoid(v).value);
  StoreGlobal(results + 5 * i + 4, Sigmoids(v).complement.value);
}

}  // namespace

absl::Status ProbeMath(const float* x, float* results, int n) {
  HW_LAUNCH(ProbeMathKernel, (n + 127) / 128, 128, 0, nullptr, x, results, n);
  return LaunchStatus("ProbeMath");
}

}  // namespace headwise::HW_CUDA_NAMESPACE
