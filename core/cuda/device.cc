#include "core/cuda/device.h"

#include <cuda_runtime_api.h>

#include <cstddef>

#include "absl/status/status.h"
#include "core/base/status_macros.h"
#include "core/cuda/cuda_status.h"

namespace headwise {

using internal::CudaStatus;

absl::StatusOr<CudaDevice> CurrentCudaDevice() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count == 0) {
    return absl::FailedPreconditionError("no CUDA device: CUDA's driver finds none");
  }
  if (error != cudaSuccess) {
    cudaGetLastError();  // later calls must not see it
    return absl::FailedPreconditionError(CudaStatus(error, "no CUDA device").message());
  }
  int ordinal = 0;
  HW_RETURN_IF_ERROR(CudaStatus(cudaGetDevice(&ordinal), "cudaGetDevice"));
  cudaDeviceProp properties = {};
  HW_RETURN_IF_ERROR(
      CudaStatus(cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties"));
  CudaDevice device = {.name = properties.name,
                       .major = properties.major,
                       .minor = properties.minor,
                       .multiprocessors = properties.multiProcessorCount,
                       .l2_cache = properties.l2CacheSize};
  std::size_t free = 0, total = 0;
  HW_RETURN_IF_ERROR(CudaStatus(cudaMemGetInfo(&free, &total), "cudaMemGetInfo"));
  device.free_memory = static_cast<std::int64_t>(free);
  device.memory = static_cast<std::int64_t>(total);
  HW_RETURN_IF_ERROR(CudaStatus(cudaDriverGetVersion(&device.driver), "cudaDriverGetVersion"));
  HW_RETURN_IF_ERROR(CudaStatus(cudaRuntimeGetVersion(&device.runtime), "cudaRuntimeGetVersion"));
  return device;
}

}  // namespace headwise
