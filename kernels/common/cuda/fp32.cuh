// Fp32: a float in device code whose operators are the intrinsics that say their rounding, and the
// vocabulary of kernels/common/simd.h for it. Arithmetic of kernels is written with it:
//
//   Fp32 y = Fma(a, x, b * c);     // __fmaf_rn(a, x, __fmul_rn(b, c)): nothing is contracted
//   StoreGlobal(p, y.value);
//
// A literal of type float converts; so does a float, which is exact.
#ifndef HEADWISE_KERNELS_COMMON_CUDA_FP32_CUH_
#define HEADWISE_KERNELS_COMMON_CUDA_FP32_CUH_

#include <cstdint>
#include <limits>

#include "kernels/emulation/cuda_kernel.h"

namespace headwise::HW_CUDA_NAMESPACE {

inline constexpr unsigned kAllLanes = 0xffffffffu;  // of a warp

struct Fp32 {
  float value;

  Fp32() = default;                             // uninitialised
  __device__ __forceinline__ Fp32(float value)  // NOLINT(google-explicit-constructor)
      : value(value) {}

  __device__ __forceinline__ friend Fp32 operator+(Fp32 a, Fp32 b) {
    return __fadd_rn(a.value, b.value);
  }
  __device__ __forceinline__ friend Fp32 operator-(Fp32 a, Fp32 b) {
    return __fsub_rn(a.value, b.value);
  }
  __device__ __forceinline__ friend Fp32 operator*(Fp32 a, Fp32 b) {
    return __fmul_rn(a.value, b.value);
  }
  __device__ __forceinline__ friend Fp32 operator/(Fp32 a, Fp32 b) {
    return __fdiv_rn(a.value, b.value);
  }
  // The sign bit flipped, also of zeros and NaN.
  __device__ __forceinline__ friend Fp32 operator-(Fp32 a) { return -a.value; }

  __device__ __forceinline__ friend bool operator<(Fp32 a, Fp32 b) { return a.value < b.value; }
  __device__ __forceinline__ friend bool operator<=(Fp32 a, Fp32 b) { return a.value <= b.value; }
  __device__ __forceinline__ friend bool operator>(Fp32 a, Fp32 b) { return a.value > b.value; }
  __device__ __forceinline__ friend bool operator==(Fp32 a, Fp32 b) { return a.value == b.value; }
};

// a * b + c, rounded once.
__device__ __forceinline__ Fp32 Fma(Fp32 a, Fp32 b, Fp32 c) {
  return __fmaf_rn(a.value, b.value, c.value);
}
__device__ __forceinline__ Fp32 Sqrt(Fp32 a) { return __fsqrt_rn(a.value); }
__device__ __forceinline__ Fp32 Select(bool condition, Fp32 a, Fp32 b) { return condition ? a : b; }
// a > b ? a : b and a < b ? a : b, so b if either is NaN or both are zeros.
__device__ __forceinline__ Fp32 Max(Fp32 a, Fp32 b) { return Select(a > b, a, b); }
__device__ __forceinline__ Fp32 Min(Fp32 a, Fp32 b) { return Select(a < b, a, b); }

__device__ __forceinline__ int ToBits(Fp32 x) { return __float_as_int(x.value); }
__device__ __forceinline__ Fp32 FromBits(int bits) { return __int_as_float(bits); }
__device__ __forceinline__ Fp32 Abs(Fp32 x) {
  return FromBits(ToBits(x) & std::numeric_limits<int>::max());
}
// `magnitude` has no sign bit.
__device__ __forceinline__ Fp32 CopySign(Fp32 magnitude, Fp32 sign) {
  return FromBits(ToBits(magnitude) | (ToBits(sign) & std::numeric_limits<int>::min()));
}

// Correctly rounded 1 / sqrt(v): double holds more than twice the digits.
__device__ __forceinline__ float ReciprocalRoot(float v) {
  return __double2float_rn(__ddiv_rn(1.0, __dsqrt_rn(static_cast<double>(v))));
}
__device__ __forceinline__ Fp32 ReciprocalRoot(Fp32 v) { return ReciprocalRoot(v.value); }

// The value of lane ^ distance. Every lane of the warp must call it.
__device__ __forceinline__ Fp32 FromLaneAcross(Fp32 x, int distance) {
  return __shfl_xor_sync(kAllLanes, x.value, distance);
}

}  // namespace headwise::HW_CUDA_NAMESPACE

#endif  // HEADWISE_KERNELS_COMMON_CUDA_FP32_CUH_
