// The GPU of this process as a Gpu: a stream, device memory, CUDA graphs, and cuBLAS for products.
//
//   HW_ASSIGN_OR_RETURN(const std::unique_ptr<Gpu> gpu, CreateDeviceGpu());
//   Print(gpu->Describe());  // "NVIDIA H200, sm_90, 139.8 GiB, CUDA 13.0"
//
// Products have the bits that core/cuda/blas.h describes.
#ifndef HEADWISE_CORE_CUDA_DEVICE_GPU_H_
#define HEADWISE_CORE_CUDA_DEVICE_GPU_H_

#include <memory>

#include "absl/status/statusor.h"
#include "core/cuda/gpu.h"

namespace headwise {

// On CUDA's current device. kFailedPrecondition, with CUDA's reason, if there is none.
absl::StatusOr<std::unique_ptr<Gpu>> CreateDeviceGpu();

}  // namespace headwise

#endif  // HEADWISE_CORE_CUDA_DEVICE_GPU_H_
