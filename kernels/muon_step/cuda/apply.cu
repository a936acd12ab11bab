// Launchers of the last product and the write of blocks of up to 128 rows.
#include "core/dtype/bf16.h"
#include "kernels/emulation/cuda_kernel.h"
#include "kernels/muon_step/cuda/apply.cuh"
#include "kernels/muon_step/cuda/launchers.cuh"

namespace headwise::HW_CUDA_NAMESPACE {
namespace {

template <typename G, int kEdge>
absl::Status Launch(const StepArguments& a, unsigned blocks, ApplyWay way, cudaStream_t stream) {
  if (!AllowSharedMemory(MuonApply<G, kEdge>, kApplyBytes<kEdge>)) {
    return absl::InternalError("MuonApply: the GPU has too little shared memory for a block");
  }
  HW_LAUNCH((MuonApply<G, kEdge>), blocks, kApplyThreads, kApplyBytes<kEdge>, stream, a, way);
  return LaunchStatus("MuonApply");
}

}  // namespace

template <typename G>
absl::Status LaunchApply(int edge, const StepArguments& a, unsigned blocks, ApplyWay way,
                         cudaStream_t stream) {
  return edge == muon_step::kSmallEdge ? Launch<G, muon_step::kSmallEdge>(a, blocks, way, stream)
                                       : Launch<G, muon_step::kLargeEdge>(a, blocks, way, stream);
}

template absl::Status LaunchApply<float>(int, const StepArguments&, unsigned, ApplyWay,
                                         cudaStream_t);
template absl::Status LaunchApply<BFloat16>(int, const StepArguments&, unsigned, ApplyWay,
                                            cudaStream_t);

}  // namespace headwise::HW_CUDA_NAMESPACE
