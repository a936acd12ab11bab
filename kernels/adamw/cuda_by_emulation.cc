// headwise::cuda's launcher, by the emulated kernels: for programs that are tried without a GPU.
#include "kernels/adamw/cuda.h"

namespace headwise::cuda {

absl::Status AdamWStep(const AdamWPlan& plan, const AdamWLaunch& launch) {
  return cuda_emulated::AdamWStep(plan, launch);
}

}  // namespace headwise::cuda
