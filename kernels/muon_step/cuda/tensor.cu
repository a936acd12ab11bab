// Launchers of blocks of up to 128 rows on tensor cores.
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/dtype/bf16.h"
#include "kernels/emulation/cuda_kernel.h"
#include "kernels/muon_step/cuda/launchers.cuh"
#include "kernels/muon_step/cuda/tensor_apply.cuh"
#include "kernels/muon_step/cuda/tensor_chain.cuh"
#include "kernels/muon_step/cuda/tensor_gram.cuh"

namespace headwise::HW_CUDA_NAMESPACE {
namespace {

absl::Status TooLittleSharedMemory(const char* kernel) {
  return absl::InternalError(
      absl::StrCat(kernel, ": the GPU has too little shared memory for a block"));
}

template <typename G, int kRows>
absl::Status Launch(const TensorLaunch& launch, MuonStepPlan::Segment steps, ApplyWay way,
                    cudaStream_t stream) {
  constexpr int kChain = kTensorChainBytes<kRows>, kApply = kTensorApplyBytes<kRows>;
  HW_LAUNCH((MuonTensorGram<G, kRows>), launch.chunks, kTensorThreads<kRows>, 0, stream,
            launch.of_chunks, way.from_scratch);
  HW_RETURN_IF_ERROR(LaunchStatus("MuonTensorGram"));
  if (!AllowSharedMemory(MuonTensorChain<G, kRows>, kChain)) {
    return TooLittleSharedMemory("MuonTensorChain");
  }
  HW_LAUNCH((MuonTensorChain<G, kRows>), launch.blocks, kTensorThreads<kRows>, kChain, stream,
            launch.of_blocks, steps);
  HW_RETURN_IF_ERROR(LaunchStatus("MuonTensorChain"));
  if (!AllowSharedMemory(MuonTensorApply<G, kRows>, kApply)) {
    return TooLittleSharedMemory("MuonTensorApply");
  }
  HW_LAUNCH((MuonTensorApply<G, kRows>), launch.chunks, kTensorApplyThreads, kApply, stream,
            launch.of_chunks, way);
  return LaunchStatus("MuonTensorApply");
}

}  // namespace

template <typename G>
absl::Status LaunchTensor(int edge, const TensorLaunch& launch, MuonStepPlan::Segment steps,
                          ApplyWay way, cudaStream_t stream) {
  return edge == muon_step::kSmallEdge ? Launch<G, 64>(launch, steps, way, stream)
                                       : Launch<G, 128>(launch, steps, way, stream);
}

template absl::Status LaunchTensor<float>(int, const TensorLaunch&, MuonStepPlan::Segment, ApplyWay,
                                          cudaStream_t);
template absl::Status LaunchTensor<BFloat16>(int, const TensorLaunch&, MuonStepPlan::Segment,
                                             ApplyWay, cudaStream_t);

}  // namespace headwise::HW_CUDA_NAMESPACE
