// headwise::cuda's launcher, by the emulated kernels: for programs that are tried without a GPU.
#include "kernels/muon_step/cuda.h"

namespace headwise::cuda {

absl::Status MuonStep(const MuonStepPlan& plan, const MuonStepLaunch& launch) {
  return cuda_emulated::MuonStep(plan, launch);
}

}  // namespace headwise::cuda
