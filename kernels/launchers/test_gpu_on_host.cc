#include "kernels/launchers/gpu_on_host.h"
#include "kernels/launchers/test_gpu.h"

namespace headwise {

std::unique_ptr<Gpu> CreateTestGpu() { return CreateGpuOnHost(); }
const KernelLaunchers& TestLaunchers() { return OnHostLaunchers(); }

}  // namespace headwise
