// An error of CUDA's runtime as a Status. Private to this package.
#ifndef HEADWISE_CORE_CUDA_CUDA_STATUS_H_
#define HEADWISE_CORE_CUDA_CUDA_STATUS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace headwise::internal {

// `error` is a cudaError_t. OK for success; kResourceExhausted if memory ran out,
// kFailedPrecondition if no device can be used, else kInternal; "WHAT: CUDA's message".
absl::Status CudaStatus(int error, absl::string_view what);

}  // namespace headwise::internal

#endif  // HEADWISE_CORE_CUDA_CUDA_STATUS_H_
