// A Gpu for tests, and the launchers for it: what a program does with a GPU, done on the host, where
// it shows what a GPU would hide until it is too late.
//
//   const std::unique_ptr<Gpu> gpu = CreateGpuOnHost();
//   HW_RETURN_IF_ERROR(OnHostLaunchers().f32.Add(a, b, out, gpu->stream()));
//
// * Device memory cannot be touched except by what was enqueued and by copies: a host function that
//   reads a device address dies. Memory that nobody wrote is all ones (a NaN).
// * Kernels run by kernels/emulation and may touch device memory only, which it checks; not, that a
//   kernel keeps to one allocation. Copies and products do, or are kInvalidArgument.
// * Products are the contract GEMM's (kernels/gemm/gemm.h): all bits are those of the CPU.
// * A launch on another stream than the Gpu's is an error, kInvalidArgument.
// * Work is done when it is enqueued; in a capture it is kept, with its arguments as they are then,
//   and done at each launch of the graph: errors of a launcher's arguments, which a GPU's capture
//   returns, come there. kernels() of a graph counts launchers and products.
//
// Targets that depend on it are testonly.
#ifndef HEADWISE_KERNELS_LAUNCHERS_GPU_ON_HOST_H_
#define HEADWISE_KERNELS_LAUNCHERS_GPU_ON_HOST_H_

#include <memory>

#include "core/cuda/gpu.h"
#include "kernels/launchers/launchers.h"

namespace headwise {

// `threads` of the OS run the blocks of a launch and the panels of a product.
std::unique_ptr<Gpu> CreateGpuOnHost(int threads = 1);

// For any Gpu of CreateGpuOnHost().
const KernelLaunchers& OnHostLaunchers();

}  // namespace headwise

#endif  // HEADWISE_KERNELS_LAUNCHERS_GPU_ON_HOST_H_
