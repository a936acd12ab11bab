#include "kernels/launchers/cuda.h"

#include "kernels/launchers/table.h"

#define HW_LAUNCHER_OF(...) &cuda::__VA_ARGS__

namespace headwise {

const KernelLaunchers& CudaLaunchers() {
  static constexpr KernelLaunchers kTable = HW_LAUNCHER_TABLE;
  return kTable;
}

}  // namespace headwise
