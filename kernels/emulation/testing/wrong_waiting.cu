#include "kernels/emulation/cuda_kernel.h"
#include "kernels/emulation/testing/wrong_waiting.h"

namespace headwise::HW_CUDA_NAMESPACE {
namespace {

constexpr unsigned kAll = 0xffffffffu;

__device__ bool WrongBlock() { return blockIdx.x == 1 && blockIdx.y == 2; }
__device__ unsigned ThreadOfBlock() { return threadIdx.y * blockDim.x + threadIdx.x; }

__global__ void ReturnsBeforeBarrierKernel(unsigned who) {
  __syncthreads();
  if (WrongBlock() && ThreadOfBlock() == who) return;
  __syncthreads();  // HERE: returns before barrier
}

__global__ void DifferentBarriersKernel() {
  if (WrongBlock() && threadIdx.y == 1) {
    __syncthreads();  // HERE: one barrier
  } else {
    __syncthreads();  // HERE: the other barrier
  }
}

__global__ void MaskWithoutCallerKernel() {
  if (WrongBlock() && ThreadOfBlock() == 37) {
    __syncwarp(0x1u);  // HERE: mask without caller
  }
}

__global__ void MaskOfAllKernel() {
  if (WrongBlock()) __syncwarp(kAll);  // HERE: mask of all
}

__global__ void ReturnsBeforeVoteKernel(unsigned who) {
  if (WrongBlock() && ThreadOfBlock() == who) return;
  if (WrongBlock()) __any_sync(kAll, 1);  // HERE: returns before vote
}

__global__ void DifferentOperationsKernel() {
  if (!WrongBlock()) return;
  if (threadIdx.x < 16) {
    __syncwarp(kAll);  // HERE: sync
  } else {
    __ballot_sync(kAll, 1);  // HERE: ballot
  }
}

__global__ void DifferentLinesKernel() {
  if (!WrongBlock()) return;
  if (threadIdx.x < 16) {
    __shfl_sync(kAll, 1, 0);  // HERE: lower lanes
  } else {
    __shfl_sync(kAll, 1, 0);  // HERE: upper lanes
  }
}

__global__ void DifferentMasksKernel() {
  const unsigned lane = threadIdx.x;
  if (!WrongBlock() || lane > 2) return;
  __syncwarp(lane == 0 ? 0x3u : 0x7u);  // HERE: different masks
}

__global__ void ShuffleFromOutsideKernel() {
  if (WrongBlock() && threadIdx.x < 16) {
    __shfl_down_sync(0xffffu, 1.0f, 5);  // HERE: shuffle from outside
  }
}

__global__ void ShuffleWidthKernel(int width) {
  if (WrongBlock()) __shfl_sync(kAll, 1, 0, width);  // HERE: shuffle width
}

__global__ void BarrierAgainstShuffleKernel() {
  if (WrongBlock() && threadIdx.x < 12) {
    __shfl_xor_sync(kAll, 1, 1);  // HERE: shuffle
  } else {
    __syncthreads();
  }
}

}  // namespace

#define HW_LAUNCH_WRONG(kernel, ...)                                                      \
  HW_LAUNCH(kernel, dim3(2, 3), dim3(block_x, 2), 0, nullptr __VA_OPT__(, ) __VA_ARGS__); \
  return LaunchStatus(#kernel)

absl::Status ReturnsBeforeBarrier(int block_x, unsigned who) {
  HW_LAUNCH_WRONG(ReturnsBeforeBarrierKernel, who);
}
absl::Status DifferentBarriers(int block_x) { HW_LAUNCH_WRONG(DifferentBarriersKernel); }
absl::Status MaskWithoutCaller(int block_x) { HW_LAUNCH_WRONG(MaskWithoutCallerKernel); }
absl::Status MaskOfAll(int block_x) { HW_LAUNCH_WRONG(MaskOfAllKernel); }
absl::Status ReturnsBeforeVote(int block_x, unsigned who) {
  HW_LAUNCH_WRONG(ReturnsBeforeVoteKernel, who);
}
absl::Status DifferentOperations(int block_x) { HW_LAUNCH_WRONG(DifferentOperationsKernel); }
absl::Status DifferentLines(int block_x) { HW_LAUNCH_WRONG(DifferentLinesKernel); }
absl::Status DifferentMasks(int block_x) { HW_LAUNCH_WRONG(DifferentMasksKernel); }
absl::Status ShuffleFromOutside(int block_x) { HW_LAUNCH_WRONG(ShuffleFromOutsideKernel); }
absl::Status ShuffleWidth(int block_x, int width) { HW_LAUNCH_WRONG(ShuffleWidthKernel, width); }
absl::Status BarrierAgainstShuffle(int block_x) { HW_LAUNCH_WRONG(BarrierAgainstShuffleKernel); }
}  // namespace headwise::HW_CUDA_NAMESPACE
