#include "core/cuda/device_memory.h"

#include <cuda_runtime_api.h>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/cuda/cuda_status.h"

namespace headwise {
namespace {

using internal::CudaStatus;

absl::Status Synchronize() { return CudaStatus(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); }

absl::Status Copy(void* to, const void* from, std::int64_t bytes, cudaMemcpyKind kind) {
  if (bytes == 0) return absl::OkStatus();
  HW_RETURN_IF_ERROR(Synchronize());
  HW_RETURN_IF_ERROR(CudaStatus(cudaMemcpy(to, from, bytes, kind), "cudaMemcpy"));
  return Synchronize();  // a copy to the device may still be on its way when cudaMemcpy returns
}

}  // namespace

absl::StatusOr<DeviceMemory> DeviceMemory::Allocate(std::int64_t bytes) {
  HW_CHECK(bytes >= 0);
  DeviceMemory memory;
  if (bytes == 0) return memory;
  void* data = nullptr;
  const cudaError_t error = cudaMalloc(&data, bytes);
  if (error != cudaSuccess) {
    cudaGetLastError();  // later calls must not see it
    return CudaStatus(error, absl::StrCat("cudaMalloc of ", bytes, " bytes"));
  }
  memory.data_ = static_cast<std::byte*>(data);
  memory.size_ = bytes;
  return memory;
}

DeviceMemory::~DeviceMemory() {
  // An error here was made by an earlier launch, whose caller asks for it.
  if (data_ != nullptr) cudaFree(data_);
}

absl::Status CopyToDevice(void* device, const void* host, std::int64_t bytes) {
  return Copy(device, host, bytes, cudaMemcpyHostToDevice);
}

absl::Status CopyToHost(void* host, const void* device, std::int64_t bytes) {
  return Copy(host, device, bytes, cudaMemcpyDeviceToHost);
}

absl::Status CopyOnDevice(void* to, const void* from, std::int64_t bytes, CUstream_st* stream) {
  return CudaStatus(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream),
                    "cudaMemcpyAsync");
}

absl::Status FillOnDevice(void* to, unsigned char byte, std::int64_t bytes, CUstream_st* stream) {
  return CudaStatus(cudaMemsetAsync(to, byte, bytes, stream), "cudaMemsetAsync");
}

absl::Status FillDevice(void* device, unsigned char byte, std::int64_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  HW_RETURN_IF_ERROR(Synchronize());
  HW_RETURN_IF_ERROR(CudaStatus(cudaMemset(device, byte, bytes), "cudaMemset"));
  return Synchronize();
}

}  // namespace headwise
