#include "kernels/emulation/cuda_kernel.h"
#include "kernels/emulation/testing/racy.h"

namespace headwise::HW_CUDA_NAMESPACE {
namespace {

constexpr unsigned kAll = 0xffffffffu;

__global__ void PassOnKernel(unsigned* out, bool barrier) {
  HW_SHARED(unsigned, values, 64);
  const unsigned i = threadIdx.x, neighbour = (i + 1) % 64;
  values[i] = 0u;
  __syncthreads();
  values[i] = i;
  if (barrier) __syncthreads();
  StoreGlobal(out + i, values[neighbour]);
}

__global__ void PassOnGlobalKernel(unsigned* scratch, unsigned* out, bool barrier) {
  const unsigned i = threadIdx.x, neighbour = (i + 1) % 64;
  StoreGlobal(scratch + i, i);
  if (barrier) __syncthreads();
  StoreGlobal(out + i, LoadGlobal(scratch + neighbour));
}

__global__ void PassOnInWarpKernel(unsigned* out, int wait) {
  HW_SHARED(unsigned, values, 64);
  const unsigned i = threadIdx.x, neighbour = i ^ 1u;
  values[i] = 0u;
  __syncthreads();
  values[i] = i;
  if (wait == 1) __syncwarp();
  if (wait == 2) __shfl_sync(kAll, 1, 0);
  StoreGlobal(out + i, values[neighbour]);
}

__global__ void CountBlocksKernel(unsigned* sum, bool atomic) {
  if (atomic) {
    atomicAdd(sum, 1u);
  } else {
    StoreGlobal(sum, LoadGlobal(sum) + 1u);
  }
}

__global__ void StorePerBlockKernel(unsigned* out, bool own) {
  const unsigned to = own ? blockIdx.x : blockIdx.x / 2;
  if (threadIdx.x == 5) StoreGlobal(out + to, 1u);
  __syncthreads();
}

// The threads' second values overwrite what slow readers of the first have yet to read.
__global__ void TwoRoundsKernel(unsigned* out, bool barrier) {
  HW_SHARED(unsigned, values, 64);
  const unsigned i = threadIdx.x, neighbour = (i + 1) % 64;
  unsigned sum = 0;
  for (unsigned round = 0; round < 2; ++round) {
    values[i] = i + round;
    __syncthreads();
    sum += values[neighbour];
    if (barrier) __syncthreads();
  }
  StoreGlobal(out + i, sum);
}

}  // namespace

absl::Status PassOn(unsigned* out, bool barrier) {
  HW_LAUNCH(PassOnKernel, 1, 64, 0, nullptr, out, barrier);
  return LaunchStatus("PassOn");
}
absl::Status PassOnGlobal(unsigned* scratch, unsigned* out, bool barrier) {
  HW_LAUNCH(PassOnGlobalKernel, 1, 64, 0, nullptr, scratch, out, barrier);
  return LaunchStatus("PassOnGlobal");
}
absl::Status PassOnInWarp(unsigned* out, int wait) {
  HW_LAUNCH(PassOnInWarpKernel, 1, 64, 0, nullptr, out, wait);
  return LaunchStatus("PassOnInWarp");
}
absl::Status CountBlocks(unsigned* sum, int blocks, bool atomic) {
  HW_LAUNCH(CountBlocksKernel, blocks, 1, 0, nullptr, sum, atomic);
  return LaunchStatus("CountBlocks");
}
absl::Status StorePerBlock(unsigned* out, int blocks, bool own) {
  HW_LAUNCH(StorePerBlockKernel, blocks, 64, 0, nullptr, out, own);
  return LaunchStatus("StorePerBlock");
}
absl::Status TwoRounds(unsigned* out, bool barrier) {
  HW_LAUNCH(TwoRoundsKernel, 1, 64, 0, nullptr, out, barrier);
  return LaunchStatus("TwoRounds");
}

}  // namespace headwise::HW_CUDA_NAMESPACE
