#include "kernels/emulation/cuda_kernel.h"
#include "kernels/emulation/testing/names.h"

namespace headwise::HW_CUDA_NAMESPACE {
namespace {

constexpr unsigned kAll = 0xffffffffu;

// 1 + 2 + 4 + 8 + 16 bytes, of values that end where the next begin, from the back.
template <typename Load, typename Store>
__device__ void CopyAll(const unsigned char* x, unsigned char* y, Load load, Store store) {
  store(reinterpret_cast<uint4*>(y + 16), load(reinterpret_cast<const uint4*>(x + 16)));
  store(reinterpret_cast<float2*>(y + 8), load(reinterpret_cast<const float2*>(x + 8)));
  store(reinterpret_cast<int*>(y + 4), load(reinterpret_cast<const int*>(x + 4)));
  store(reinterpret_cast<__nv_bfloat16*>(y + 2),
        load(reinterpret_cast<const __nv_bfloat16*>(x + 2)));
  store(y + 1, load(x + 1));
}

struct PlainLoad {
  template <typename T>
  __device__ T operator()(const T* p) const {
    return LoadGlobal(p);
  }
};
struct StreamingLoad {
  template <typename T>
  __device__ T operator()(const T* p) const {
    return LoadStreaming(p);
  }
};
struct CachedLoad {
  template <typename T>
  __device__ T operator()(const T* p) const {
    return LoadCached(p);
  }
};
struct PlainStore {
  template <typename T>
  __device__ void operator()(T* p, const T& value) const {
    StoreGlobal(p, value);
  }
};
struct StreamingStore {
  template <typename T>
  __device__ void operator()(T* p, const T& value) const {
    StoreStreaming(p, value);
  }
};

__global__ void CopyByWidthsKernel(const unsigned char* x, unsigned char* y) {
  CopyAll(x, y, PlainLoad(), PlainStore());
  CopyAll(x + 32, y + 32, StreamingLoad(), StreamingStore());
  CopyAll(x + 64, y + 64, CachedLoad(), PlainStore());
}

template <typename T>
__device__ T UseAtomics(T* p, T value) {
  const T old = atomicAdd(p, value);
  atomicMin(p + 1, value);
  atomicMax(p + 2, value);
  T seen = 0, expected;
  do {
    expected = seen;
    seen = atomicCAS(p + 3, expected, expected + 1);
  } while (seen != expected);
  return old;
}

__global__ void AtomicsKernel(int* v, unsigned* u, unsigned long long* l, int* old) {
  const unsigned lane = threadIdx.x;
  const int before = UseAtomics(v, (static_cast<int>(lane) - 16) * 3);
  UseAtomics(u, lane);
  UseAtomics<unsigned long long>(l, lane);
  if (lane == 31) StoreGlobal(old, before);
}

template <typename T>
__device__ T ShuffleBy(int how, T value, int argument, int width) {
  if (how == 0) return __shfl_sync(kAll, value, argument, width);
  if (how == 1) return __shfl_xor_sync(kAll, value, argument, width);
  if (how == 2) return __shfl_up_sync(kAll, value, static_cast<unsigned>(argument), width);
  return __shfl_down_sync(kAll, value, static_cast<unsigned>(argument), width);
}

template <typename T>
__global__ void ShuffleKernel(int* out, int how, int argument, int width) {
  const T value = static_cast<T>(100 + threadIdx.x);
  StoreGlobal(out + threadIdx.x, static_cast<int>(ShuffleBy(how, value, argument, width)));
}

__global__ void VoteKernel(unsigned* out, unsigned voters, unsigned votes) {
  const unsigned lane = threadIdx.x;
  if ((voters >> lane & 1u) == 0) return;
  const int vote = static_cast<int>(votes >> lane & 1u);
  StoreGlobal(out + lane, __ballot_sync(voters, vote));
  StoreGlobal(out + 32 + lane, __any_sync(voters, vote) != 0 ? 1u : 0u);
  StoreGlobal(out + 64 + lane, __all_sync(voters, vote) != 0 ? 1u : 0u);
}

__global__ void CoordinatesKernel(unsigned* out) {
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  unsigned* own = out + 12 * (block * blockDim.x * blockDim.y * blockDim.z + thread);
  const unsigned all[12] = {threadIdx.x, threadIdx.y, threadIdx.z, blockIdx.x,
                            blockIdx.y,  blockIdx.z,  blockDim.x,  blockDim.y,
                            blockDim.z,  gridDim.x,   gridDim.y,   gridDim.z};
  for (int i = 0; i < 12; ++i) StoreGlobal(own + i, all[i]);
}

__device__ void Reverse(const SharedArray<unsigned>& values, unsigned i) {
  const unsigned mine = values[i];
  __syncthreads();
  values[63 - i] = mine;
  __syncthreads();
}

__global__ void __launch_bounds__(64) SharedKindsKernel(unsigned* out) {
  HW_SHARED(unsigned, fixed, 64);
  HW_DYNAMIC_SHARED(unsigned, low, 0);
  HW_DYNAMIC_SHARED(uint2, high, 64 * sizeof(unsigned));
  const unsigned i = threadIdx.x;
  fixed[i] = i;
  low[i] = 0u;
  __syncthreads();
  Reverse(fixed, i);
  low[i] = fixed[i];
  low[i] += fixed[i];
  __syncthreads();
  if (i % 4 == 0) {
    uint4 four = low.Load<uint4>(i);
    four.w |= 1u;
    low.Store(i, four);
  }
  __syncwarp();
  if (i % 4 != 3) atomicAdd(&low[i], 1u);
  __syncthreads();
  high[i] = make_uint2(low[i], i);
  const uint2 pair = high[i];
  StoreGlobal(out + i, pair.y == i ? pair.x : 0u);
}

__global__ void MultiplyKernel(const unsigned* a, const unsigned* b, float* d, int times) {
  const unsigned lane = threadIdx.x;
  unsigned x[4], y[2];
  float sums[4];
  for (int i = 0; i < 4; ++i) x[i] = LoadGlobal(a + 4 * lane + i);
  for (int i = 0; i < 2; ++i) y[i] = LoadGlobal(b + 2 * lane + i);
  for (int i = 0; i < 4; ++i) sums[i] = LoadGlobal(d + 4 * lane + i);
  for (int i = 0; i < times; ++i) MultiplyHalves(x, y, sums);
  for (int i = 0; i < 4; ++i) StoreGlobal(d + 4 * lane + i, sums[i]);
}

template <typename T>
void LaunchShuffle(int* out, int how, int argument, int width) {
  HW_LAUNCH(ShuffleKernel<T>, 1, warpSize, 0, nullptr, out, how, argument, width);
}

}  // namespace

absl::Status CopyByWidths(const unsigned char* x, unsigned char* y) {
  HW_LAUNCH(CopyByWidthsKernel, 1, 1, 0, nullptr, x, y);
  return LaunchStatus("CopyByWidths");
}
absl::Status Atomics(int* v, unsigned* u, unsigned long long* l, int* old) {
  HW_LAUNCH(AtomicsKernel, 1, 32, 0, nullptr, v, u, l, old);
  return LaunchStatus("Atomics");
}
absl::Status Shuffle(int* out, int how, int argument, int width, int type) {
  if (type == 0) LaunchShuffle<int>(out, how, argument, width);
  if (type == 1) LaunchShuffle<unsigned>(out, how, argument, width);
  if (type == 2) LaunchShuffle<long long>(out, how, argument, width);
  if (type == 3) LaunchShuffle<float>(out, how, argument, width);
  if (type == 4) LaunchShuffle<double>(out, how, argument, width);
  return LaunchStatus("Shuffle");
}
absl::Status Vote(unsigned* out, unsigned voters, unsigned votes) {
  HW_LAUNCH(VoteKernel, 1, 32, 0, nullptr, out, voters, votes);
  return LaunchStatus("Vote");
}
absl::Status Coordinates(unsigned* out) {
  HW_LAUNCH(CoordinatesKernel, dim3(2, 3, 2), dim3(3, 5, 2), 0, nullptr, out);
  return LaunchStatus("Coordinates");
}
absl::Status SharedKinds(unsigned* out) {
  HW_LAUNCH(SharedKindsKernel, 1, 64, 64 * (sizeof(unsigned) + sizeof(uint2)), nullptr, out);
  return LaunchStatus("SharedKinds");
}
absl::Status Multiply(const unsigned* a, const unsigned* b, float* d, int times) {
  HW_LAUNCH(MultiplyKernel, 1, 32, 0, nullptr, a, b, d, times);
  return LaunchStatus("Multiply");
}

}  // namespace headwise::HW_CUDA_NAMESPACE
