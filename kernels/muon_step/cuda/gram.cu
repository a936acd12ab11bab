// Launchers of the Gram matrices of blocks of up to 128 rows.
#include "core/dtype/bf16.h"
#include "kernels/emulation/cuda_kernel.h"
#include "kernels/muon_step/cuda/gram.cuh"
#include "kernels/muon_step/cuda/launchers.cuh"

namespace headwise::HW_CUDA_NAMESPACE {

template <typename G>
absl::Status LaunchGram(int edge, const StepArguments& a, unsigned blocks, bool from_scratch,
                        cudaStream_t stream) {
  if (edge == muon_step::kSmallEdge) {
    HW_LAUNCH((MuonGram<G, muon_step::kSmallEdge>), blocks, kLowerThreads, 0, stream, a,
              from_scratch);
  } else {
    HW_LAUNCH((MuonGram<G, muon_step::kLargeEdge>), blocks, kLowerThreads, 0, stream, a,
              from_scratch);
  }
  return LaunchStatus("MuonGram");
}

template absl::Status LaunchGram<float>(int, const StepArguments&, unsigned, bool, cudaStream_t);
template absl::Status LaunchGram<BFloat16>(int, const StepArguments&, unsigned, bool, cudaStream_t);

}  // namespace headwise::HW_CUDA_NAMESPACE
