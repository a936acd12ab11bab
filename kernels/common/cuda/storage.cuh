// Storage types T, float and BFloat16, in device code: packing, rounding, and loads and stores of N
// elements in one access.
//
//   Fp32 x[8];
//   LoadElements(row + i, x);    // T = BFloat16: 16 bytes, whose address must be a multiple of 16
#ifndef HEADWISE_KERNELS_COMMON_CUDA_STORAGE_CUH_
#define HEADWISE_KERNELS_COMMON_CUDA_STORAGE_CUH_

#include <cstring>

#include "core/dtype/bf16.h"
#include "kernels/common/cuda/fp32.cuh"
#include "kernels/emulation/cuda_kernel.h"

namespace headwise::HW_CUDA_NAMESPACE {

// Two floats as bf16, `a` in the low half, each rounded to nearest even; NaN gives 0x7fff.
__device__ __forceinline__ unsigned PackBFloat16(float a, float b) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(a, b);
  unsigned bits;
  memcpy(&bits, &pair, sizeof(bits));
  return bits;
}
__device__ __forceinline__ float LowBFloat16(unsigned bits) { return __uint_as_float(bits << 16); }
__device__ __forceinline__ float HighBFloat16(unsigned bits) {
  return __uint_as_float(bits & 0xffff0000u);
}

// To storage and back.
template <typename T>
__device__ __forceinline__ Fp32 RoundToStorage(Fp32 x) {
  if constexpr (sizeof(T) == 2) {
    return LowBFloat16(PackBFloat16(x.value, 0.0f));
  } else {
    return x;
  }
}

// N elements at p, which is aligned to all of them; N sizeof(T) is 2, 4, 8 or 16.
template <typename T, int N>
__device__ __forceinline__ void LoadElements(const T* p, Fp32 (&x)[N]) {
  constexpr int kBytes = N * static_cast<int>(sizeof(T));
  if constexpr (kBytes == 2) {
    x[0] = LowBFloat16(LoadGlobal(reinterpret_cast<const unsigned short*>(p)));
  } else {
    unsigned words[kBytes / 4];
    if constexpr (kBytes == 4) {
      words[0] = LoadGlobal(reinterpret_cast<const unsigned*>(p));
    } else if constexpr (kBytes == 8) {
      const uint2 v = LoadGlobal(reinterpret_cast<const uint2*>(p));
      words[0] = v.x, words[1] = v.y;
    } else {
      const uint4 v = LoadGlobal(reinterpret_cast<const uint4*>(p));
      words[0] = v.x, words[1] = v.y, words[2] = v.z, words[3] = v.w;
    }
#pragma unroll
    for (int i = 0; i < kBytes / 4; ++i) {
      if constexpr (sizeof(T) == 2) {
        x[2 * i] = LowBFloat16(words[i]);
        x[2 * i + 1] = HighBFloat16(words[i]);
      } else {
        x[i] = __uint_as_float(words[i]);
      }
    }
  }
}

// The same for stores, each element rounded once.
template <typename T, int N>
__device__ __forceinline__ void StoreElements(T* p, const Fp32 (&x)[N]) {
  constexpr int kBytes = N * static_cast<int>(sizeof(T));
  if constexpr (kBytes == 2) {
    const unsigned bits = PackBFloat16(x[0].value, 0.0f);
    StoreGlobal(reinterpret_cast<unsigned short*>(p), static_cast<unsigned short>(bits & 0xffffu));
  } else {
    unsigned words[kBytes / 4];
#pragma unroll
    for (int i = 0; i < kBytes / 4; ++i) {
      if constexpr (sizeof(T) == 2) {
        words[i] = PackBFloat16(x[2 * i].value, x[2 * i + 1].value);
      } else {
        words[i] = __float_as_uint(x[i].value);
      }
    }
    if constexpr (kBytes == 4) {
      StoreGlobal(reinterpret_cast<unsigned*>(p), words[0]);
    } else if constexpr (kBytes == 8) {
      StoreGlobal(reinterpret_cast<uint2*>(p), make_uint2(words[0], words[1]));
    } else {
      StoreGlobal(reinterpret_cast<uint4*>(p), make_uint4(words[0], words[1], words[2], words[3]));
    }
  }
}

// N floats that nobody writes during the launch; p is a multiple of 16 bytes where 4 divides N.
template <int N>
__device__ __forceinline__ void LoadCachedFloats(const float* p, Fp32 (&x)[N]) {
  if constexpr (N % 4 == 0) {
#pragma unroll
    for (int i = 0; i < N; i += 4) {
      const float4 v = LoadCached(reinterpret_cast<const float4*>(p + i));
      x[i] = v.x, x[i + 1] = v.y, x[i + 2] = v.z, x[i + 3] = v.w;
    }
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = LoadCached(p + i);
  }
}

template <typename T>
__device__ __forceinline__ Fp32 LoadElement(const T* p) {
  Fp32 x[1];
  LoadElements(p, x);
  return x[0];
}
template <typename T>
__device__ __forceinline__ void StoreElement(T* p, Fp32 x) {
  const Fp32 one[1] = {x};
  StoreElements(p, one);
}

}  // namespace headwise::HW_CUDA_NAMESPACE

#endif  // HEADWISE_KERNELS_COMMON_CUDA_STORAGE_CUH_
