// cuda_kernel.h as g++ sees it: CUDA's names, run by the emulation. They live in
// headwise::emulation::device, which the kernels' namespace sees as if they were its own, so that
// they clash neither with CUDA's in the same binary nor with anybody else's.
#ifndef HEADWISE_KERNELS_EMULATION_EMULATED_H_
#define HEADWISE_KERNELS_EMULATION_EMULATED_H_

#include "kernels/emulation/global_memory.h"
#include "kernels/emulation/host.h"
#include "kernels/emulation/intrinsics.h"
#include "kernels/emulation/shared_memory.h"
#include "kernels/emulation/vector_types.h"
#include "kernels/emulation/warp.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

#ifdef HW_CUDA_NAMESPACE
namespace headwise::HW_CUDA_NAMESPACE {
using namespace ::headwise::emulation::device;  // NOLINT(google-build-using-namespace)
}  // namespace headwise::HW_CUDA_NAMESPACE
#endif

#endif  // HEADWISE_KERNELS_EMULATION_EMULATED_H_
