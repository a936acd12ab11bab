#include "kernels/launchers/emulated.h"
#include "tests/gpu/launchers.h"

namespace headwise {

const KernelLaunchers& Kernels() { return EmulatedLaunchers(); }

}  // namespace headwise
