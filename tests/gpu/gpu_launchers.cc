#include "kernels/launchers/cuda.h"
#include "tests/gpu/launchers.h"

namespace headwise {

const KernelLaunchers& Kernels() { return CudaLaunchers(); }

}  // namespace headwise
