#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <vector>

#include "gtest/gtest.h"

namespace headwise {
namespace {

// The number of usable GPUs. Without a driver cudaGetDeviceCount fails and leaves its argument
// alone.
int GpuCount() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

TEST(CudaRuntimeTest, AnswersWithItsOwnVersion) {
  int version = 0;
  ASSERT_EQ(cudaRuntimeGetVersion(&version), cudaSuccess);
  EXPECT_EQ(version, CUDART_VERSION);
}

TEST(CudaRuntimeTest, SaysWhyThereIsNoGpu) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess) {
    EXPECT_GT(count, 0);
  } else {
    EXPECT_TRUE(error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver)
        << cudaGetErrorString(error);
    EXPECT_EQ(count, 0);
  }
}

TEST(CublasTest, MultipliesOrSaysThatItCannot) {
  cublasHandle_t handle = nullptr;
  const cublasStatus_t status = cublasCreate(&handle);
  if (GpuCount() == 0) {
    EXPECT_EQ(status, CUBLAS_STATUS_NOT_INITIALIZED) << cublasGetStatusString(status);
    return;
  }
  ASSERT_EQ(status, CUBLAS_STATUS_SUCCESS) << cublasGetStatusString(status);
  float* x = nullptr;
  ASSERT_EQ(cudaMallocManaged(&x, 4 * sizeof(float)), cudaSuccess);
  for (int i = 0; i < 4; ++i) x[i] = static_cast<float>(i + 1);
  float dot = 0;
  EXPECT_EQ(cublasSdot(handle, 4, x, 1, x, 1, &dot), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(dot, 30.0f);
  cudaFree(x);
  cublasDestroy(handle);
}

}  // namespace
}  // namespace headwise
