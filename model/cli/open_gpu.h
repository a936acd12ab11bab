// OpenGpu: the GPU of this process, for --device cuda; CudaDescription: what was built for it. A
// program links one of two libraries behind them: //model/cli:device_gpu, with CUDA, cuBLAS and the
// kernels for GPUs (//model:muse_cuda), or //model/cli:no_gpu, with nothing of CUDA (//model:muse).
//
//   HW_ASSIGN_OR_RETURN(const OpenedGpu opened, OpenGpu());
//   options.gpu = opened.gpu.get();
//   options.launchers = opened.launchers;
#ifndef HEADWISE_MODEL_CLI_OPEN_GPU_H_
#define HEADWISE_MODEL_CLI_OPEN_GPU_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/cuda/gpu.h"
#include "kernels/launchers/launchers.h"

namespace headwise {

struct OpenedGpu {
  std::unique_ptr<Gpu> gpu;
  const KernelLaunchers* launchers = nullptr;  // of the gpu's kernels
};

// kUnimplemented, with the reason and what to try: a program built without CUDA; no driver, or a
// GPU that cannot be used.
absl::StatusOr<OpenedGpu> OpenGpu();

// The toolkit and the GPUs that the program was compiled for, "13.0, for sm_80, sm_90a, sm_100a";
// "built without".
std::string CudaDescription();

}  // namespace headwise

#endif  // HEADWISE_MODEL_CLI_OPEN_GPU_H_
