// The CUDA kernels of all families, on the GPU: arguments are device memory.
#ifndef HEADWISE_KERNELS_LAUNCHERS_CUDA_H_
#define HEADWISE_KERNELS_LAUNCHERS_CUDA_H_

#include "kernels/launchers/launchers.h"

namespace headwise {

const KernelLaunchers& CudaLaunchers();

}  // namespace headwise

#endif  // HEADWISE_KERNELS_LAUNCHERS_CUDA_H_
