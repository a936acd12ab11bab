#include "core/cuda/device_gpu.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/launchers/cuda.h"
#include "model/cli/cuda_build.h"
#include "model/cli/open_gpu.h"

namespace headwise {

absl::StatusOr<OpenedGpu> OpenGpu() {
  absl::StatusOr<std::unique_ptr<Gpu>> gpu = CreateDeviceGpu();
  if (!gpu.ok()) {
    return absl::UnimplementedError(absl::StrCat(
        "--device cuda: ", gpu.status().message(),
        "; expected an NVIDIA GPU with its driver; see nvidia-smi, or try --device cpu, or "
        "--device cuda-emulated"));
  }
  return OpenedGpu{.gpu = *std::move(gpu), .launchers = &CudaLaunchers()};
}

std::string CudaDescription() { return absl::StrCat(kCudaVersion, ", for ", kCudaArchs); }

}  // namespace headwise
