// The launches of a step, one function each: step.cu puts them in order. G is float or BFloat16,
// the gradient's type; an edge is kSmallEdge or kLargeEdge; `blocks` is the number of units.
#ifndef HEADWISE_KERNELS_MUON_STEP_CUDA_LAUNCHERS_CUH_
#define HEADWISE_KERNELS_MUON_STEP_CUDA_LAUNCHERS_CUH_

#include "absl/status/status.h"
#include "kernels/emulation/cuda_kernel.h"
#include "kernels/muon_step/cuda.h"
#include "kernels/muon_step/cuda/arguments.cuh"

namespace headwise::HW_CUDA_NAMESPACE {

template <typename G>
absl::Status LaunchGram(int edge, const StepArguments& a, unsigned blocks, bool from_scratch,
                        cudaStream_t stream);
template <typename G>
absl::Status LaunchChain(int edge, MuonChainMemory chain, const StepArguments& a, unsigned blocks,
                         MuonStepPlan::Segment steps, cudaStream_t stream);
template <typename G>
absl::Status LaunchApply(int edge, const StepArguments& a, unsigned blocks, ApplyWay way,
                         cudaStream_t stream);

// Gram matrix, chain and O of a segment, on tensor cores.
template <typename G>
absl::Status LaunchTensor(int edge, const TensorLaunch& launch, MuonStepPlan::Segment steps,
                          ApplyWay way, cudaStream_t stream);

template <typename G>
absl::Status LaunchTiledMomentum(const StepArguments& a, unsigned blocks, cudaStream_t stream);
absl::Status LaunchTiledGram(const StepArguments& a, unsigned blocks, int which, int out,
                             bool scales, cudaStream_t stream);
absl::Status LaunchTiledNormalize(const StepArguments& a, unsigned blocks, cudaStream_t stream);
// One product, or two at once.
absl::Status LaunchTiledProducts(const StepArguments& a, unsigned blocks, int products,
                                 const TiledProduct& first, const TiledProduct& second,
                                 cudaStream_t stream);
absl::Status LaunchTiledApply(const StepArguments& a, unsigned blocks, TiledApplyWay way,
                              cudaStream_t stream);

// Whether the GPU lets a kernel have so much dynamic shared memory.
template <typename Kernel>
bool AllowSharedMemory(Kernel* kernel, int bytes) {
  if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes) ==
      cudaSuccess) {
    return true;
  }
  static_cast<void>(cudaGetLastError());  // not the next launch's
  return false;
}

}  // namespace headwise::HW_CUDA_NAMESPACE

#endif  // HEADWISE_KERNELS_MUON_STEP_CUDA_LAUNCHERS_CUH_
