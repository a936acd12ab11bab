#include "kernels/emulation/cuda_kernel.h"
#include "kernels/emulation/testing/traffic_kernels.h"

namespace headwise::HW_CUDA_NAMESPACE {
namespace {

// What is loaded goes somewhere, or the compiler leaves the load out.
__device__ void Use(float value) {
  if (value == 12345.0f) __syncwarp(1u << threadIdx.x);
}

template <typename T>
__global__ void CopyStridedKernel(const T* x, T* y, int n, int stride) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) StoreGlobal(y + i * stride, LoadGlobal(x + i * stride));
}

__global__ void CopyRowsKernel(const float* x, float* y, int width, int stride) {
  const int row = static_cast<int>(blockIdx.x);
  for (int i = static_cast<int>(threadIdx.x); i < width; i += 32) {
    StoreStreaming(y + row * width + i, LoadStreaming(x + row * stride + i));
  }
}

__global__ void LoadTheSameKernel(const float* x) { Use(LoadCached(x)); }

__global__ void LoadTriangleKernel(const float* x) {
  for (unsigned i = 0; i <= threadIdx.x; ++i) Use(LoadGlobal(x + i));
}

__global__ void LoadPairKernel(const float* x) {
  Use(__fadd_rn(LoadGlobal(x + threadIdx.x), LoadGlobal(x + 32 + threadIdx.x)));
}

__global__ void AddToEightKernel(unsigned* counters) { atomicAdd(counters + threadIdx.x % 8, 1u); }

template <typename T>
void LaunchCopyStrided(const void* x, void* y, int n, int stride) {
  HW_LAUNCH(CopyStridedKernel<T>, (n + 63) / 64, 64, 0, nullptr, static_cast<const T*>(x),
            static_cast<T*>(y), n, stride);
}

}  // namespace

absl::Status CopyStrided(const void* x, void* y, int n, int stride, int bytes) {
  if (bytes == 1) LaunchCopyStrided<unsigned char>(x, y, n, stride);
  if (bytes == 2) LaunchCopyStrided<__nv_bfloat16>(x, y, n, stride);
  if (bytes == 4) LaunchCopyStrided<float>(x, y, n, stride);
  if (bytes == 8) LaunchCopyStrided<uint2>(x, y, n, stride);
  if (bytes == 16) LaunchCopyStrided<uint4>(x, y, n, stride);
  return LaunchStatus("CopyStrided");
}
absl::Status CopyRows(const float* x, float* y, int rows, int width, int stride) {
  HW_LAUNCH(CopyRowsKernel, rows, 32, 0, nullptr, x, y, width, stride);
  return LaunchStatus("CopyRows");
}
absl::Status LoadTheSame(const float* x) {
  HW_LAUNCH(LoadTheSameKernel, 1, 32, 0, nullptr, x);
  return LaunchStatus("LoadTheSame");
}
absl::Status LoadTriangle(const float* x) {
  HW_LAUNCH(LoadTriangleKernel, 1, 32, 0, nullptr, x);
  return LaunchStatus("LoadTriangle");
}
absl::Status LoadPair(const float* x) {
  HW_LAUNCH(LoadPairKernel, 1, 32, 0, nullptr, x);
  return LaunchStatus("LoadPair");
}
absl::Status AddToEight(unsigned* counters) {
  HW_LAUNCH(AddToEightKernel, 1, 64, 0, nullptr, counters);
  return LaunchStatus("AddToEight");
}

}  // namespace headwise::HW_CUDA_NAMESPACE
