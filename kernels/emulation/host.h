// The host's side of a .cu file in the emulation: launches, and the few runtime calls that launchers
// make. Everything happens before the call returns; streams are ignored.
#ifndef HEADWISE_KERNELS_EMULATION_HOST_H_
#define HEADWISE_KERNELS_EMULATION_HOST_H_

#include <cstddef>
#include <tuple>
#include <type_traits>

#include "absl/status/status.h"
#include "kernels/emulation/launch.h"
#include "kernels/emulation/vector_types.h"

struct CUstream_st;  // as cuda_runtime.h has it

namespace headwise::emulation::device {

using cudaStream_t = CUstream_st*;

enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorLaunchFailure = 719 };
enum cudaMemcpyKind {
  cudaMemcpyHostToHost,
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault,
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };

// cudaErrorLaunchFailure if a launch was found wrong since this was last asked (in a session: since
// it began). As CUDA does, asking clears it, except in a session.
inline cudaError_t cudaGetLastError() {
  return TakeLaunchStatus("").ok() ? cudaSuccess : cudaErrorLaunchFailure;
}
const char* cudaGetErrorString(cudaError_t error);

// OK, or kInternal: "KERNEL: launch failed: " and what the referee found.
inline absl::Status LaunchStatus(const char* kernel) { return TakeLaunchStatus(kernel); }

// In a session with regions, the device's side of a copy must lie in one.
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* to, int byte, std::size_t bytes, cudaStream_t stream);

// A kernel needs it to be launched with more than 48 KiB of dynamic shared memory.
template <typename... P>
inline cudaError_t cudaFuncSetAttribute(void (*kernel)(P...), cudaFuncAttribute attribute,
                                        int value) {
  static_cast<void>(attribute);  // there is one
  return AllowDynamicShared(reinterpret_cast<const void*>(kernel), value) ? cudaSuccess
                                                                          : cudaErrorInvalidValue;
}

// What HW_LAUNCH calls. Arguments convert to the kernel's parameters, and each thread gets copies.
template <typename... P>
inline void Launch(const char* name, void (*kernel)(P...), const dim3& grid, const dim3& block,
                   std::size_t dynamic_shared_bytes, cudaStream_t stream,
                   std::type_identity_t<P>... arguments) {
  static_cast<void>(stream);
  struct Call {
    void (*kernel)(P...);
    std::tuple<P...> arguments;

    static void Run(const void* self) {
      const Call& call = *static_cast<const Call*>(self);
      std::apply(call.kernel, call.arguments);
    }
  };
  const Call call{kernel, std::tuple<P...>(arguments...)};
  RunLaunch({.name = name,
             .kernel = reinterpret_cast<const void*>(kernel),
             .grid = grid,
             .block = block,
             .dynamic_shared_bytes = static_cast<std::int64_t>(dynamic_shared_bytes),
             .run_thread = &Call::Run,
             .call = &call});
}

}  // namespace headwise::emulation::device

#define HW_LAUNCH(kernel, grid, block, dynamic_shared_bytes, stream, ...)                   \
  ::headwise::emulation::device::Launch(#kernel, kernel, grid, block, dynamic_shared_bytes, \
                                        stream __VA_OPT__(, ) __VA_ARGS__)

#endif  // HEADWISE_KERNELS_EMULATION_HOST_H_
