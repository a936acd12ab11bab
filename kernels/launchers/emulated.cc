#include "kernels/launchers/emulated.h"

#include "kernels/launchers/table.h"

#define HW_LAUNCHER_OF(...) &cuda_emulated::__VA_ARGS__

namespace headwise {

const KernelLaunchers& EmulatedLaunchers() {
  static constexpr KernelLaunchers kTable = HW_LAUNCHER_TABLE;
  return kTable;
}

}  // namespace headwise
