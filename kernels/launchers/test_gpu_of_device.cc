#include "core/base/check.h"
#include "core/cuda/device_gpu.h"
#include "kernels/launchers/cuda.h"
#include "kernels/launchers/test_gpu.h"

namespace headwise {

std::unique_ptr<Gpu> CreateTestGpu() {
  absl::StatusOr<std::unique_ptr<Gpu>> gpu = CreateDeviceGpu();
  HW_CHECK(gpu.ok()) << gpu.status();
  return *std::move(gpu);
}
const KernelLaunchers& TestLaunchers() { return CudaLaunchers(); }

}  // namespace headwise
