#include "core/cuda/cuda_status.h"

#include <cuda_runtime_api.h>

#include "absl/strings/str_cat.h"

namespace headwise::internal {

absl::Status CudaStatus(int error, absl::string_view what) {
  const auto code = static_cast<cudaError_t>(error);
  const auto message = [&] { return absl::StrCat(what, ": ", cudaGetErrorString(code)); };
  switch (code) {
    case cudaSuccess:
      return absl::OkStatus();
    case cudaErrorMemoryAllocation:
      return absl::ResourceExhaustedError(message());
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
    case cudaErrorDevicesUnavailable:
    case cudaErrorInitializationError:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
      return absl::FailedPreconditionError(message());
    default:
      return absl::InternalError(message());
  }
}

}  // namespace headwise::internal
