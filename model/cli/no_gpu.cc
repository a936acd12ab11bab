#include "model/cli/open_gpu.h"

namespace headwise {

absl::StatusOr<OpenedGpu> OpenGpu() {
  return absl::UnimplementedError(
      "--device cuda: this binary was built without CUDA; try bazel run //model:muse_cuda where a "
      "CUDA toolkit is, or --device cpu, or --device cuda-emulated");
}

std::string CudaDescription() { return "built without"; }

}  // namespace headwise
