#include "kernels/emulation/cuda_kernel.h"
#include "kernels/emulation/testing/benchmark_kernels.h"

namespace headwise::HW_CUDA_NAMESPACE {
namespace {

__global__ void ThreadsKernel() {}

__global__ void ShufflesKernel(int times) {
  float value = static_cast<float>(threadIdx.x);
  for (int i = 0; i < times; ++i) value = __shfl_xor_sync(0xffffffffu, value, 1 + i % 31);
}

__global__ void BarriersKernel(int times) {
  for (int i = 0; i < times; ++i) __syncthreads();
}

__global__ void GlobalKernel(int times, float* data) {
  float* const own = data + blockIdx.x * blockDim.x + threadIdx.x;
  for (int i = 0; i < times; ++i) StoreGlobal(own, __fadd_rn(LoadGlobal(own), 1.0f));
}

__global__ void SharedKernel(int times) {
  HW_SHARED(float, values, 1024);
  values[threadIdx.x] = 0.0f;
  for (int i = 0; i < times; ++i) values[threadIdx.x] = __fadd_rn(values[threadIdx.x], 1.0f);
}

}  // namespace

absl::Status RunThreads(int blocks, int threads) {
  HW_LAUNCH(ThreadsKernel, blocks, threads, 0, nullptr);
  return LaunchStatus("RunThreads");
}

absl::Status RunShuffles(int blocks, int threads, int times) {
  HW_LAUNCH(ShufflesKernel, blocks, threads, 0, nullptr, times);
  return LaunchStatus("RunShuffles");
}

absl::Status RunBarriers(int blocks, int threads, int times) {
  HW_LAUNCH(BarriersKernel, blocks, threads, 0, nullptr, times);
  return LaunchStatus("RunBarriers");
}

absl::Status RunGlobal(int blocks, int threads, int times, float* data) {
  HW_LAUNCH(GlobalKernel, blocks, threads, 0, nullptr, times, data);
  return LaunchStatus("RunGlobal");
}

absl::Status RunShared(int blocks, int threads, int times) {
  HW_LAUNCH(SharedKernel, blocks, threads, 0, nullptr, times);
  return LaunchStatus("RunShared");
}

}  // namespace headwise::HW_CUDA_NAMESPACE
