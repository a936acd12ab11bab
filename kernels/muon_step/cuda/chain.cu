// Launchers of the chains of blocks of up to 128 rows.
#include "core/dtype/bf16.h"
#include "kernels/emulation/cuda_kernel.h"
#include "kernels/muon_step/cuda/chain.cuh"
#include "kernels/muon_step/cuda/launchers.cuh"

namespace headwise::HW_CUDA_NAMESPACE {
namespace {

// False, and nothing launched, if the GPU has too little shared memory.
template <typename G, int kEdge, template <int> class Storage>
bool Launched(const StepArguments& a, unsigned blocks, MuonStepPlan::Segment steps,
              cudaStream_t stream) {
  constexpr int kBytes = kChainBytes<kEdge, Storage>;
  if (!AllowSharedMemory(MuonChain<G, kEdge, Storage>, kBytes)) return false;
  HW_LAUNCH((MuonChain<G, kEdge, Storage>), blocks, kLowerThreads, kBytes, stream, a, steps);
  return true;
}

}  // namespace

template <typename G>
absl::Status LaunchChain(int edge, MuonChainMemory chain, const StepArguments& a, unsigned blocks,
                         MuonStepPlan::Segment steps, cudaStream_t stream) {
  bool launched = false;
  if (edge == muon_step::kSmallEdge) {
    launched = Launched<G, muon_step::kSmallEdge, Squares>(a, blocks, steps, stream);
  } else {
    launched = (chain != MuonChainMemory::kTriangles &&
                Launched<G, muon_step::kLargeEdge, Squares>(a, blocks, steps, stream)) ||
               Launched<G, muon_step::kLargeEdge, Triangles>(a, blocks, steps, stream);
  }
  if (!launched) {
    return absl::InternalError("MuonChain: the GPU has too little shared memory for a block");
  }
  return LaunchStatus("MuonChain");
}

template absl::Status LaunchChain<float>(int, MuonChainMemory, const StepArguments&, unsigned,
                                         MuonStepPlan::Segment, cudaStream_t);
template absl::Status LaunchChain<BFloat16>(int, MuonChainMemory, const StepArguments&, unsigned,
                                            MuonStepPlan::Segment, cudaStream_t);

}  // namespace headwise::HW_CUDA_NAMESPACE
