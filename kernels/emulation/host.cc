#include "kernels/emulation/host.h"

#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/emulation/session_state.h"

namespace headwise::emulation::device {
namespace {

// Whether the device may use these bytes; if not, it is the session's finding.
bool Check(const char* call, const void* data, std::size_t bytes, Use use) {
  SessionState* const session = CurrentSession();
  if (session == nullptr || session->regions.empty() || bytes == 0) return true;
  if (!session->finding.empty()) return false;
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const auto size = static_cast<std::int64_t>(bytes);
  if (session->regions.Allowing(address, size, use) >= 0) return true;
  session->finding = absl::StrCat(call, ": ", session->regions.Explain(address, size, use));
  return false;
}

}  // namespace

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorLaunchFailure:
      return "unspecified launch failure";
  }
  return "unrecognized error code";
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  static_cast<void>(stream);
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  if (from_device && !Check("cudaMemcpyAsync", from, bytes, Use::kLoad)) {
    return cudaErrorInvalidValue;
  }
  if (to_device && !Check("cudaMemcpyAsync", to, bytes, Use::kStore)) return cudaErrorInvalidValue;
  if (bytes != 0) std::memcpy(to, from, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* to, int byte, std::size_t bytes, cudaStream_t stream) {
  static_cast<void>(stream);
  if (!Check("cudaMemsetAsync", to, bytes, Use::kStore)) return cudaErrorInvalidValue;
  if (bytes != 0) std::memset(to, byte, bytes);
  return cudaSuccess;
}

}  // namespace headwise::emulation::device
