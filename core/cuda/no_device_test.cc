// Without a GPU every call says so and nothing crashes. Hides the GPUs of a machine that has some.
#include <cstdlib>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "core/cuda/cublas_library.cuh"
#include "core/cuda/device.h"
#include "core/cuda/device_memory.h"
#include "core/cuda/stream.h"
#include "gtest/gtest.h"

namespace headwise {
namespace {

class NoDevice : public testing::Test {
 protected:
  // Before the first call of CUDA's, which reads it.
  static void SetUpTestSuite() { setenv("CUDA_VISIBLE_DEVICES", "", 1); }
};

TEST_F(NoDevice, EveryCallSaysSo) {
  const absl::Status device = CurrentCudaDevice().status();
  EXPECT_EQ(device.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StartsWith(device.message(), "no CUDA device: ")) << device;
  EXPECT_EQ(DeviceMemory::Allocate(8).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(CudaStream::Create().status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(CudaEvent::Create().status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(NoDevice, NothingIsNoMemory) {
  const absl::StatusOr<DeviceMemory> memory = DeviceMemory::Allocate(0);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(memory->data(), nullptr);
  EXPECT_TRUE(CopyToDevice(memory->data(), nullptr, 0).ok());
}

// cuBLAS itself needs no GPU. Where it is installed all of its functions are found.
TEST_F(NoDevice, CublasSaysSoToo) {
  const absl::StatusOr<const CublasLibrary*> cublas = CublasLibrary::Open();
  if (!cublas.ok()) {
    EXPECT_EQ(cublas.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_TRUE(absl::StrContains(cublas.status().message(), "no cuBLAS (libcublas.so."));
    EXPECT_FALSE(absl::StrContains(cublas.status().message(), "a function is missing"))
        << cublas.status();
    return;
  }
  cublasHandle_t handle = nullptr;
  const absl::Status created = (*cublas)->Status((*cublas)->Create(&handle), "cublasCreate");
  EXPECT_FALSE(created.ok());
  EXPECT_TRUE(absl::StartsWith(created.message(), "cublasCreate: ")) << created;
}

}  // namespace
}  // namespace headwise
