// The launchers under test. What the program links decides whose they are: :gpu_launchers, of the
// kernels that nvcc compiled, or :emulated_launchers.
//
//   HW_RETURN_IF_ERROR(Kernels<BFloat16>().RmsNormForward(op, x, weight, y, stream));
//   HW_RETURN_IF_ERROR(Kernels().AdamWStep(plan, launch));
#ifndef HEADWISE_TESTS_GPU_LAUNCHERS_H_
#define HEADWISE_TESTS_GPU_LAUNCHERS_H_

#include "kernels/launchers/launchers.h"

namespace headwise {

const KernelLaunchers& Kernels();

template <typename T>
const StorageLaunchers<T>& Kernels() {
  return Kernels().Of<T>();
}

}  // namespace headwise

#endif  // HEADWISE_TESTS_GPU_LAUNCHERS_H_
