// The GPU that this process uses: CUDA's current device.
//
//   const absl::StatusOr<CudaDevice> device = CurrentCudaDevice();
//   if (!device.ok()) Print(device.status());  // "no CUDA device: CUDA driver version is ..."
#ifndef HEADWISE_CORE_CUDA_DEVICE_H_
#define HEADWISE_CORE_CUDA_DEVICE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace headwise {

struct CudaDevice {
  std::string name;          // "NVIDIA H100 80GB HBM3"
  int major = 0, minor = 0;  // compute capability, 9 and 0
  int multiprocessors = 0;
  std::int64_t memory = 0;       // bytes
  std::int64_t free_memory = 0;  // bytes, now
  std::int64_t l2_cache = 0;     // bytes
  int driver = 0, runtime = 0;   // CUDA versions: 13000 is 13.0
};

// kFailedPrecondition, with CUDA's reason, if there is no driver or no device.
absl::StatusOr<CudaDevice> CurrentCudaDevice();

}  // namespace headwise

#endif  // HEADWISE_CORE_CUDA_DEVICE_H_
