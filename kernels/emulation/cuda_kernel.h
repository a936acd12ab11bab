// What a .cu file includes, and all that it may use. The same text is compiled twice (the macro
// cuda_kernels of cuda_kernels.bzl): by nvcc for the GPU, and by g++ for the emulation, which runs
// it on the CPU, checks it and counts what it touches (emulation.h, docs/cuda.md).
//
//   // scale.h
//   namespace headwise::cuda { absl::Status Scale(const float* x, float* y, int n, void* stream); }
//   namespace headwise::cuda_emulated { ... the same ... }
//
//   // scale.cu
//   #include "kernels/emulation/cuda_kernel.h"
//   #include "kernels/scale/scale.h"
//
//   namespace headwise::HW_CUDA_NAMESPACE {
//   namespace {
//
//   __global__ void __launch_bounds__(128) ScaleKernel(const float* x, float* y, int n) {
//     const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
//     if (i < n) StoreGlobal(y + i, __fmul_rn(2.0f, LoadGlobal(x + i)));
//   }
//
//   }  // namespace
//
//   absl::Status Scale(const float* x, float* y, int n, void* stream) {
//     HW_LAUNCH(ScaleKernel, (n + 127) / 128, 128, 0, static_cast<cudaStream_t>(stream), x, y, n);
//     return LaunchStatus("Scale");
//   }
//
//   }  // namespace headwise::HW_CUDA_NAMESPACE
//
// The build defines HW_CUDA_NAMESPACE: `cuda` under nvcc, `cuda_emulated` under g++. One binary may
// hold both.
//
// What there is, all of it in that namespace or in the global one:
//
//   threadIdx blockIdx blockDim gridDim warpSize, __global__ __device__ __host__ __forceinline__
//   __launch_bounds__ __restrict__.
//   Global memory: LoadGlobal(p), StoreGlobal(p, v): values of 1, 2, 4, 8 or 16 bytes, trivially
//     copyable, aligned to their size. LoadStreaming, StoreStreaming for data touched once;
//     LoadCached for what nobody writes during the launch. Kernels do not write *p: the emulation
//     would not see it.
//   atomicAdd atomicMin atomicMax atomicCAS on int, unsigned and unsigned long long.
//   Shared memory: HW_SHARED(T, name, count), HW_DYNAMIC_SHARED(T, name, byte_offset) declare
//     `name`, a SharedArray<T>: `x = name[i]`, `name[i] = x`, `&name[i]` for atomics, and
//     name.Load<uint4>(i), name.Store(i, uint4) for several elements at once, from element i.
//   __syncthreads __syncwarp __shfl_sync __shfl_xor_sync __shfl_up_sync __shfl_down_sync
//     __ballot_sync __any_sync __all_sync. MultiplyHalves, the product of tensor cores: an error
//     bound, no bits.
//   Arithmetic with the same bits everywhere: see intrinsics.h. Vectors: vector_types.h. Not there,
//     on purpose: rsqrtf, __expf, __sincosf, __frsqrt_rn and their like, float atomics, __activemask.
//   Host: HW_LAUNCH(kernel, grid, block, dynamic_shared_bytes, stream, args...), LaunchStatus(name),
//     cudaStream_t, cudaGetLastError, cudaMemcpyAsync, cudaMemsetAsync, cudaFuncSetAttribute.
#ifndef HEADWISE_KERNELS_EMULATION_CUDA_KERNEL_H_
#define HEADWISE_KERNELS_EMULATION_CUDA_KERNEL_H_

#ifdef __CUDACC__
#include "kernels/emulation/nvcc.cuh"
#else
#include "kernels/emulation/emulated.h"
#endif

#endif  // HEADWISE_KERNELS_EMULATION_CUDA_KERNEL_H_
