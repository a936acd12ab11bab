#include "kernels/emulation/cuda_kernel.h"
#include "kernels/emulation/testing/launches.h"

namespace headwise::HW_CUDA_NAMESPACE {
namespace {

__global__ void CountKernel(unsigned* counts, int wrong_from, int wrong_to) {
  HW_SHARED(float, unused, 10);
  const int block =
      static_cast<int>((blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x);
  const bool first = threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0;
  if (first) unused[0] = 0.0f;
  atomicAdd(counts + block, 1u);
  if (block >= wrong_from && block < wrong_to && threadIdx.x == 7) return;
  __syncthreads();
}

template <int kAdd, typename T>
__global__ void CountTemplateKernel(unsigned* counts) {
  atomicAdd(counts, static_cast<unsigned>(T{kAdd}));
}

__global__ void NoteOrderKernel(unsigned* order) {
  HW_SHARED(unsigned, next, 1);
  if (threadIdx.x == 0) next[0] = 0u;
  __syncthreads();
  StoreGlobal(order + blockIdx.x * blockDim.x + threadIdx.x, atomicAdd(&next[0], 1u));
}

__global__ void NoteBlockOrderKernel(unsigned* order, unsigned* next) {
  StoreGlobal(order + blockIdx.x, atomicAdd(next, 1u));
}

__global__ void TakeTicketsKernel(unsigned* first, unsigned* second, unsigned* next) {
  const unsigned one = atomicAdd(next, 1u), two = atomicAdd(next, 1u);
  StoreGlobal(first + threadIdx.x, one);
  StoreGlobal(second + threadIdx.x, two);
}

struct Numbers {
  int values[3];
};

__global__ void ChangeArgumentsKernel(int* out, Numbers numbers, int shift) {
  const int sum = numbers.values[0] + numbers.values[1] + numbers.values[2];
  StoreGlobal(out + threadIdx.x, sum << shift);
  __syncwarp();
  numbers.values[1] = -1000;
  shift = 7;
  __syncwarp();
  if (numbers.values[1] > 0 || shift != 7) StoreGlobal(out + threadIdx.x, 0);
}

}  // namespace

absl::Status Count(unsigned* counts, const emulation::Dim3& grid, const emulation::Dim3& block,
                   int dynamic_shared_bytes, int wrong_block) {
  HW_LAUNCH(CountKernel, dim3(grid.x, grid.y, grid.z), dim3(block.x, block.y, block.z),
            dynamic_shared_bytes, nullptr, counts, wrong_block, wrong_block + 1);
  return LaunchStatus("Count");
}
absl::Status CountWrongFrom(unsigned* counts, int blocks, int from) {
  HW_LAUNCH(CountKernel, blocks, 32, 0, nullptr, counts, from, blocks);
  return LaunchStatus("CountWrongFrom");
}
absl::Status CountTemplate(unsigned* counts) {
  HW_LAUNCH((CountTemplateKernel<3, int>), 1, 1, 0, nullptr, counts);
  return LaunchStatus("CountTemplate");
}
absl::Status NoteOrder(unsigned* order) {
  HW_LAUNCH(NoteOrderKernel, 2, 64, 0, nullptr, order);
  return LaunchStatus("NoteOrder");
}
absl::Status NoteBlockOrder(unsigned* order, unsigned* next, int n) {
  HW_LAUNCH(NoteBlockOrderKernel, n, 1, 0, nullptr, order, next);
  return LaunchStatus("NoteBlockOrder");
}
absl::Status TakeTickets(unsigned* first, unsigned* second, unsigned* next) {
  HW_LAUNCH(TakeTicketsKernel, 1, 64, 0, nullptr, first, second, next);
  return LaunchStatus("TakeTickets");
}
absl::Status ChangeArguments(int* out) {
  HW_LAUNCH(ChangeArgumentsKernel, 1, 64, 0, nullptr, out, Numbers{{1, 2, 18}}, 1);
  return LaunchStatus("ChangeArguments");
}

}  // namespace headwise::HW_CUDA_NAMESPACE
