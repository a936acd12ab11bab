// Both compilations of one kernel in one program, and with a GPU the same bits from both. Passes
// without a GPU too: the launch then says why it failed.
#include <cuda_runtime.h>

#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/emulation/testing/row_sum.h"

namespace headwise {
namespace {

constexpr int kRows = 7, kWidth = 1001, kThreads = 128;

bool HasGpu() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

TEST(Backends, TheSameBits) {
  std::vector<float> x(kRows * kWidth), sums(kRows), gpu_sums(kRows);
  for (int i = 0; i < kRows * kWidth; ++i) x[i] = (i * 37 % 1001 - 500) * 0.1f;
  unsigned positive = 0, gpu_positive = 0;
  ASSERT_EQ(
      cuda_emulated::RowSum(x.data(), sums.data(), &positive, kRows, kWidth, kThreads, nullptr),
      absl::OkStatus());
  if (!HasGpu()) {
    const absl::Status status =
        cuda::RowSum(x.data(), sums.data(), &positive, kRows, kWidth, kThreads, nullptr);
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(status.message()), ::testing::StartsWith("RowSum: launch failed: "));
    return;
  }
  float *device_x = nullptr, *device_sums = nullptr;
  unsigned* device_positive = nullptr;
  ASSERT_EQ(cudaMalloc(&device_x, x.size() * sizeof(float)), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&device_sums, kRows * sizeof(float)), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&device_positive, sizeof(unsigned)), cudaSuccess);
  cudaMemcpy(device_x, x.data(), x.size() * sizeof(float), cudaMemcpyHostToDevice);
  cudaMemset(device_positive, 0, sizeof(unsigned));
  EXPECT_EQ(cuda::RowSum(device_x, device_sums, device_positive, kRows, kWidth, kThreads, nullptr),
            absl::OkStatus());
  cudaMemcpy(gpu_sums.data(), device_sums, kRows * sizeof(float), cudaMemcpyDeviceToHost);
  cudaMemcpy(&gpu_positive, device_positive, sizeof(unsigned), cudaMemcpyDeviceToHost);
  EXPECT_EQ(gpu_sums, sums);
  EXPECT_EQ(gpu_positive, positive);
  cudaFree(device_positive);
  cudaFree(device_sums);
  cudaFree(device_x);
}

}  // namespace
}  // namespace headwise
