#include "kernels/emulation/cuda_kernel.h"
#include "kernels/emulation/testing/row_sum.h"

namespace headwise::HW_CUDA_NAMESPACE {
namespace {

// One block a row: serial sums per thread, a tree in dynamic shared memory, votes and shuffles for
// the count.
__global__ void __launch_bounds__(1024)
    RowSumKernel(const float* __restrict__ x, float* __restrict__ sums, unsigned* positive,
                 int width) {
  HW_DYNAMIC_SHARED(float, partial, 0);
  HW_SHARED(unsigned, counts, 32);
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const float* row = x + static_cast<long long>(blockIdx.x) * width;
  float sum = 0.0f;
  unsigned count = 0;
  for (int i = thread; i - thread < width; i += threads) {
    const float value = i < width ? LoadGlobal(row + i) : 0.0f;
    sum = __fadd_rn(sum, value);
    count += __popc(__ballot_sync(0xffffffffu, value > 0.0f));
  }
  partial[thread] = sum;
  if (thread % 32 == 0) counts[thread / 32] = count;
  __syncthreads();
#pragma unroll 1
  for (int half = threads / 2; half > 0; half /= 2) {
    if (thread < half) partial[thread] = __fadd_rn(partial[thread], partial[thread + half]);
    __syncthreads();
  }
  if (thread < 32) {
    unsigned total = thread < threads / 32 ? counts[thread] : 0u;
    for (int step = 16; step > 0; step /= 2) total += __shfl_xor_sync(0xffffffffu, total, step);
    if (thread == 0) {
      StoreGlobal(sums + blockIdx.x, partial[0]);
      atomicAdd(positive, total);
    }
  }
}

}  // namespace

absl::Status RowSum(const float* x, float* sums, unsigned* positive, int rows, int width,
                    int threads, void* stream) {
  HW_LAUNCH(RowSumKernel, rows, threads, threads * sizeof(float), static_cast<cudaStream_t>(stream),
            x, sums, positive, width);
  return LaunchStatus("RowSum");
}

}  // namespace headwise::HW_CUDA_NAMESPACE
