#include <concepts>

#include "tests/third_party/triple.h"
#include "tests/third_party/triple_launch.h"

#if !defined(HW_TRIPLE_LAUNCH) || !defined(HW_TRIPLE_WITH_CUDA)
#error "cuda_library must pass its own defines and those of its deps to nvcc."
#endif

namespace headwise::testing {
namespace {

template <std::floating_point T>
__global__ void TripleAndAddKernel(const T* x, T* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = T{HW_TRIPLE_FACTOR} * x[i] + y[i];
}

cudaError_t Run(const float* x, float* y, int n, float* device) {
  const size_t bytes = n * sizeof(float);
  cudaError_t error = cudaMemcpy(device, x, bytes, cudaMemcpyHostToDevice);
  if (error != cudaSuccess) return error;
  error = cudaMemcpy(device + n, y, bytes, cudaMemcpyHostToDevice);
  if (error != cudaSuccess) return error;
  TripleAndAddKernel<<<BlocksFor(n, 128), 128>>>(device, device + n, n);
  error = cudaGetLastError();
  if (error != cudaSuccess) return error;
  return cudaMemcpy(y, device + n, bytes, cudaMemcpyDeviceToHost);
}

}  // namespace

int TripleAndAdd(const float* x, float* y, int n) {
  float* device = nullptr;
  cudaError_t error = cudaMalloc(&device, 2 * n * sizeof(float));
  if (error == cudaSuccess) error = Run(x, y, n, device);
  cudaFree(device);
  return error;
}

}  // namespace headwise::testing
