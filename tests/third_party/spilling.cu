// Kernels that device_code_test must refuse, and one that it must not.

namespace headwise::testing {
namespace {

// 512 registers' worth of live values in a thread that may have 64.
__global__ void __launch_bounds__(1024) Spilling(float* x, int n) {
  float v[512];
#pragma unroll
  for (int i = 0; i < 512; ++i) v[i] = x[i * n + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 512; ++i) x[i * n + threadIdx.x] = v[511 - i] + v[i];
}

__global__ void Approximate(float* x) { x[threadIdx.x] = rsqrtf(x[threadIdx.x]); }

// Without a rounding, ptxas may make an fma of it and another.
__global__ void Contractible(float* x) {
  float y = x[threadIdx.x];
  asm("mul.f32 %0, %0, %0;" : "+f"(y));
  x[threadIdx.x] = y;
}

__global__ void Clean(float* x) { x[threadIdx.x] = __fdiv_rn(1.0f, x[threadIdx.x]); }

}  // namespace

void LaunchAll(float* x, int n) {
  Spilling<<<1, 1024>>>(x, n);
  Approximate<<<1, 32>>>(x);
  Contractible<<<1, 32>>>(x);
  Clean<<<1, 32>>>(x);
}

}  // namespace headwise::testing
