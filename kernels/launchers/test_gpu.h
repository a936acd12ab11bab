// The Gpu that a test is linked with: the one on the host, or this machine's.
#ifndef HEADWISE_KERNELS_LAUNCHERS_TEST_GPU_H_
#define HEADWISE_KERNELS_LAUNCHERS_TEST_GPU_H_

#include <memory>

#include "core/cuda/gpu.h"
#include "kernels/launchers/launchers.h"

namespace headwise {

// Fails the process if there is none.
std::unique_ptr<Gpu> CreateTestGpu();
const KernelLaunchers& TestLaunchers();

}  // namespace headwise

#endif  // HEADWISE_KERNELS_LAUNCHERS_TEST_GPU_H_
