// The device functions whose bits are the same on every GPU and here. All round to nearest, ties to
// even; subnormals are kept. docs/numerics.md says why there are no others: a kernel that calls
// rsqrtf, expf or __sinf does not compile.
#ifndef HEADWISE_KERNELS_EMULATION_INTRINSICS_H_
#define HEADWISE_KERNELS_EMULATION_INTRINSICS_H_

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/dtype/bf16.h"
#include "core/dtype/fp16.h"
#include "kernels/emulation/vector_types.h"

namespace headwise::emulation::device {

// --- float and double -----------------------------------------------------------------------------

inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __dsqrt_rn(double a) { return std::sqrt(a); }
inline double __drcp_rn(double a) { return 1.0 / a; }
inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }

// --- Conversions ----------------------------------------------------------------------------------

inline float __double2float_rn(double a) { return static_cast<float>(a); }
inline float __int2float_rn(int a) { return static_cast<float>(a); }
inline float __uint2float_rn(unsigned a) { return static_cast<float>(a); }

namespace internal {

// What is out of range becomes the nearest int, NaN becomes 0.
inline int SaturateToInt(float integral) {
  if (integral != integral) return 0;
  if (integral >= 0x1p31f) return std::numeric_limits<int>::max();
  if (integral < -0x1p31f) return std::numeric_limits<int>::min();
  return static_cast<int>(integral);
}

}  // namespace internal

inline int __float2int_rn(float a) { return internal::SaturateToInt(std::nearbyint(a)); }
inline int __float2int_rz(float a) { return internal::SaturateToInt(std::trunc(a)); }
inline int __float2int_rd(float a) { return internal::SaturateToInt(std::floor(a)); }
inline int __float2int_ru(float a) { return internal::SaturateToInt(std::ceil(a)); }

inline float __uint_as_float(unsigned a) { return std::bit_cast<float>(a); }
inline float __int_as_float(int a) { return std::bit_cast<float>(a); }
inline unsigned __float_as_uint(float a) { return std::bit_cast<unsigned>(a); }
inline int __float_as_int(float a) { return std::bit_cast<int>(a); }

// --- bfloat16 -------------------------------------------------------------------------------------

// Any NaN becomes 0x7FFF.
inline __nv_bfloat16 __float2bfloat16_rn(float a) { return {RoundToBFloat16(a).bits}; }
inline float __bfloat162float(__nv_bfloat16 a) { return ToFloat(BFloat16{a.bits}); }
inline __nv_bfloat162 __floats2bfloat162_rn(float low, float high) {
  return {__float2bfloat16_rn(low), __float2bfloat16_rn(high)};
}
inline float __low2float(__nv_bfloat162 a) { return __bfloat162float(a.x); }
inline float __high2float(__nv_bfloat162 a) { return __bfloat162float(a.y); }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 a) { return a.bits; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short a) { return {a}; }

// --- Halves ---------------------------------------------------------------------------------------

// Any NaN becomes 0x7FFF. Converted and multiplied (MultiplyHalves), never computed with.
inline __half __float2half_rn(float a) { return {RoundToFloat16(a)}; }
inline float __half2float(__half a) { return Float16ToFloat(a.bits); }
inline unsigned short __half_as_ushort(__half a) { return a.bits; }
inline __half __ushort_as_half(unsigned short a) { return {a}; }

// --- Integers -------------------------------------------------------------------------------------

inline int __popc(unsigned a) { return std::popcount(a); }
// 32 for 0.
inline int __clz(int a) { return std::countl_zero(static_cast<unsigned>(a)); }
// The position of the lowest bit set, from 1; 0 for 0.
inline int __ffs(int a) { return a == 0 ? 0 : std::countr_zero(static_cast<unsigned>(a)) + 1; }
// The upper half of the product.
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(std::uint64_t{a} * b >> 32);
}
// Byte i of the result is byte (selector >> 4 * i) & 7 of the eight bytes of (b, a), a lower.
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const std::uint64_t bytes = std::uint64_t{b} << 32 | a;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned from = selector >> (4 * i) & 7u;
    result |= static_cast<unsigned>(bytes >> (8 * from) & 0xffu) << (8 * i);
  }
  return result;
}

constexpr int min(int a, int b) { return std::min(a, b); }
constexpr int max(int a, int b) { return std::max(a, b); }
constexpr unsigned min(unsigned a, unsigned b) { return std::min(a, b); }
constexpr unsigned max(unsigned a, unsigned b) { return std::max(a, b); }
constexpr long long min(long long a, long long b) { return std::min(a, b); }
constexpr long long max(long long a, long long b) { return std::max(a, b); }
// NaN and the sign of zero differ between GPUs and CPUs: compare and choose.
float min(float, float) = delete;
float max(float, float) = delete;

// --- What has other bits elsewhere ----------------------------------------------------------------

float rsqrtf(float) = delete;
float __frsqrt_rn(float) = delete;
float expf(float) = delete;
float __expf(float) = delete;
float logf(float) = delete;
float __logf(float) = delete;
float powf(float, float) = delete;
float __powf(float, float) = delete;
float sinf(float) = delete;
float cosf(float) = delete;
float __sinf(float) = delete;
float __cosf(float) = delete;
void sincosf(float, float*, float*) = delete;
void __sincosf(float, float*, float*) = delete;
unsigned __activemask() = delete;  // depends on how the hardware schedules

}  // namespace headwise::emulation::device

#endif  // HEADWISE_KERNELS_EMULATION_INTRINSICS_H_
