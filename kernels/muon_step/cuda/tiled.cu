// Launchers of blocks of more than 128 rows.
#include "core/dtype/bf16.h"
#include "kernels/emulation/cuda_kernel.h"
#include "kernels/muon_step/cuda/launchers.cuh"
#include "kernels/muon_step/cuda/tiled.cuh"

namespace headwise::HW_CUDA_NAMESPACE {

template <typename G>
absl::Status LaunchTiledMomentum(const StepArguments& a, unsigned blocks, cudaStream_t stream) {
  HW_LAUNCH((MuonTiledMomentum<G>), blocks, kTiledThreads, 0, stream, a);
  return LaunchStatus("MuonTiledMomentum");
}
template absl::Status LaunchTiledMomentum<float>(const StepArguments&, unsigned, cudaStream_t);
template absl::Status LaunchTiledMomentum<BFloat16>(const StepArguments&, unsigned, cudaStream_t);

absl::Status LaunchTiledGram(const StepArguments& a, unsigned blocks, int which, int out,
                             bool scales, cudaStream_t stream) {
  HW_LAUNCH(MuonTiledGram, blocks, kTiledThreads, 0, stream, a, which, out, scales);
  return LaunchStatus("MuonTiledGram");
}

absl::Status LaunchTiledNormalize(const StepArguments& a, unsigned blocks, cudaStream_t stream) {
  HW_LAUNCH(MuonTiledNormalize, blocks, kTiledThreads, 0, stream, a);
  return LaunchStatus("MuonTiledNormalize");
}

absl::Status LaunchTiledProducts(const StepArguments& a, unsigned blocks, int products,
                                 const TiledProduct& first, const TiledProduct& second,
                                 cudaStream_t stream) {
  HW_LAUNCH(MuonTiledProduct, dim3(blocks, products), kTiledThreads, 0, stream, a, first, second);
  return LaunchStatus("MuonTiledProduct");
}

absl::Status LaunchTiledApply(const StepArguments& a, unsigned blocks, TiledApplyWay way,
                              cudaStream_t stream) {
  HW_LAUNCH(MuonTiledApply, blocks, kTiledThreads, 0, stream, a, way);
  return LaunchStatus("MuonTiledApply");
}

}  // namespace headwise::HW_CUDA_NAMESPACE
