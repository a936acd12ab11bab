// simd.h: vectors of sixteen lanes, whatever the machine's registers are.
//
//   F16 acc = 0.0f;  // every lane
//   std::int64_t i = 0;
//   for (; i + kLanes <= n; i += kLanes) acc = Fma(LoadWiden(x + i), LoadWiden(y + i), acc);
//   if (i < n) acc = Fma(LoadPartial(x + i, n - i), LoadPartial(y + i, n - i), acc);
//   float dot = HorizontalSum(acc);
//
// A lane is an independent chain of IEEE operations and the lane count is a constant, so the bits
// of a result do not depend on the instruction set: one 512-bit register with AVX-512, two of 256
// bits with AVX2, whatever the compiler makes of it elsewhere. (A single GCC vector of 64 bytes
// would be simpler, but GCC takes its comparisons apart lane by lane when the registers are
// narrower; hence the array of register-sized parts.)
//
// F16 (float) and I16 (int32) are for kernels; D16 (double) lets the same template be instantiated
// in double. Operators work lane by lane and a scalar of the lane's own type broadcasts. A
// comparison gives a mask for Select. Fma, Sqrt, Select, Max, Min, Abs, CopySign, ToBits and
// FromBits exist for scalars too, so that one template serves float and F16 with the same
// operations in the same order. NaN payloads are unspecified.
//
// For .cc files of the CPU path; CUDA sources do not include it.
#ifndef HEADWISE_KERNELS_COMMON_SIMD_H_
#define HEADWISE_KERNELS_COMMON_SIMD_H_

#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#if defined(__FMA__)
#include <immintrin.h>
#endif

#include "core/dtype/bf16.h"

// Without it a large kernel exhausts the inliner's budget and spills every vector through memory.
#define HEADWISE_SIMD_INLINE [[gnu::always_inline]] inline

// For lambdas over vectors: [](F16 x) HW_ALWAYS_INLINE { ... }.
#define HW_ALWAYS_INLINE __attribute__((always_inline))

namespace headwise {

inline constexpr int kLanes = 16;

#if defined(__AVX512F__)
inline constexpr int kRegisterBytes = 64;
#else
inline constexpr int kRegisterBytes = 32;
#endif

// The integer of the same size: bits of a lane, and masks (0 or -1).
template <typename Lane>
using BitsOf = std::conditional_t<sizeof(Lane) == 8, std::int64_t, std::int32_t>;

// Sixteen lanes of float, double, std::int32_t or std::int64_t. Integer arithmetic wraps.
template <typename Lane>
struct Vec16 {
  static constexpr int kParts = kLanes * static_cast<int>(sizeof(Lane)) / kRegisterBytes;
  static constexpr int kPartLanes = kLanes / kParts;
  typedef Lane Part __attribute__((vector_size(kRegisterBytes)));
  typedef std::make_unsigned_t<BitsOf<Lane>> UnsignedPart
      __attribute__((vector_size(kRegisterBytes)));
  using Mask = Vec16<BitsOf<Lane>>;

  Part part[kParts];  // lanes in order

  Vec16() = default;  // uninitialised
  // Every lane. Only the lane's own type converts, so that no literal changes type silently.
  template <std::same_as<Lane> S>
  HEADWISE_SIMD_INLINE Vec16(S x) {       // NOLINT(google-explicit-constructor)
    for (Part& p : part) p = x - Part{};  // not x + 0: that would lose -0
  }

  HEADWISE_SIMD_INLINE Lane operator[](int lane) const {
    return part[lane / kPartLanes][lane % kPartLanes];
  }

  // r.part[i] = f(v.part[i]...) for every part.
  template <typename F, typename... V>
  HEADWISE_SIMD_INLINE static Vec16 Map(F f, const V&... v) {
    Vec16 r;
    const auto at = [&](auto i) HW_ALWAYS_INLINE { r.part[i] = f(v.part[i]...); };
    [&]<std::size_t... i>(std::index_sequence<i...>) HW_ALWAYS_INLINE {
      (at(std::integral_constant<std::size_t, i>{}), ...);
    }
    (std::make_index_sequence<kParts>{});
    return r;
  }

#define HEADWISE_SIMD_OPERATOR(op)                                                               \
  HEADWISE_SIMD_INLINE friend Vec16 operator op(Vec16 a, Vec16 b) {                              \
    if constexpr (std::is_integral_v<Lane>) {                                                    \
      return Map([](Part x, Part y) { return Part(UnsignedPart(x) op UnsignedPart(y)); }, a, b); \
    } else {                                                                                     \
      return Map([](Part x, Part y) { return x op y; }, a, b);                                   \
    }                                                                                            \
  }
  HEADWISE_SIMD_OPERATOR(+)
  HEADWISE_SIMD_OPERATOR(-)
  HEADWISE_SIMD_OPERATOR(*)
  HEADWISE_SIMD_OPERATOR(/)  // integers: unsigned
#undef HEADWISE_SIMD_OPERATOR

#define HEADWISE_SIMD_COMPARISON(op)                               \
  HEADWISE_SIMD_INLINE friend Mask operator op(Vec16 a, Vec16 b) { \
    return Mask::Map([](Part x, Part y) { return x op y; }, a, b); \
  }
  HEADWISE_SIMD_COMPARISON(<)
  HEADWISE_SIMD_COMPARISON(<=)
  HEADWISE_SIMD_COMPARISON(>)
  HEADWISE_SIMD_COMPARISON(>=)
  HEADWISE_SIMD_COMPARISON(==)
  HEADWISE_SIMD_COMPARISON(!=)
#undef HEADWISE_SIMD_COMPARISON

  // Integer lanes only.
  HEADWISE_SIMD_INLINE friend Vec16 operator&(Vec16 a, Vec16 b) {
    return Map([](Part x, Part y) { return x & y; }, a, b);
  }
  HEADWISE_SIMD_INLINE friend Vec16 operator|(Vec16 a, Vec16 b) {
    return Map([](Part x, Part y) { return x | y; }, a, b);
  }
  HEADWISE_SIMD_INLINE friend Vec16 operator<<(Vec16 a, int n) {
    return Map([n](Part x) { return Part(UnsignedPart(x) << n); }, a);
  }
  // Copies of the sign come in from the left.
  HEADWISE_SIMD_INLINE friend Vec16 operator>>(Vec16 a, int n) {
    return Map([n](Part x) { return x >> n; }, a);
  }

  // The sign bit flipped, also of zeros and NaN.
  HEADWISE_SIMD_INLINE friend Vec16 operator-(Vec16 a) {
    return Map([](Part x) { return -x; }, a);
  }

  HEADWISE_SIMD_INLINE Vec16& operator+=(Vec16 b) { return *this = *this + b; }

  // a * b + c, rounded once.
  HEADWISE_SIMD_INLINE friend Vec16 Fma(Vec16 a, Vec16 b, Vec16 c) {
    return Map([](Part x, Part y, Part z) { return FmaPart(x, y, z); }, a, b, c);
  }
  // Correctly rounded.
  HEADWISE_SIMD_INLINE friend Vec16 Sqrt(Vec16 a) {
    return Map([](Part x) { return SqrtPart(x); }, a);
  }
  HEADWISE_SIMD_INLINE friend Vec16 Select(Mask mask, Vec16 a, Vec16 b) {
    return Map([](typename Mask::Part m, Part x, Part y) { return m ? x : y; }, mask, a, b);
  }

 private:
  HEADWISE_SIMD_INLINE static Part FmaPart(Part x, Part y, Part z) {
#if defined(__AVX512F__)
    if constexpr (std::is_same_v<Lane, float>) return Part(_mm512_fmadd_ps(x, y, z));
    if constexpr (std::is_same_v<Lane, double>) return Part(_mm512_fmadd_pd(x, y, z));
#elif defined(__FMA__)
    if constexpr (std::is_same_v<Lane, float>) return Part(_mm256_fmadd_ps(x, y, z));
    if constexpr (std::is_same_v<Lane, double>) return Part(_mm256_fmadd_pd(x, y, z));
#else
    for (int i = 0; i < kPartLanes; ++i) x[i] = std::fma(x[i], y[i], z[i]);
    return x;
#endif
  }
  HEADWISE_SIMD_INLINE static Part SqrtPart(Part x) {
#if defined(__AVX512F__)
    if constexpr (std::is_same_v<Lane, float>) return Part(_mm512_sqrt_ps(x));
    if constexpr (std::is_same_v<Lane, double>) return Part(_mm512_sqrt_pd(x));
#elif defined(__FMA__)
    if constexpr (std::is_same_v<Lane, float>) return Part(_mm256_sqrt_ps(x));
    if constexpr (std::is_same_v<Lane, double>) return Part(_mm256_sqrt_pd(x));
#else
    for (int i = 0; i < kPartLanes; ++i) x[i] = std::sqrt(x[i]);
    return x;
#endif
  }
};

using F16 = Vec16<float>;
using D16 = Vec16<double>;
using I16 = Vec16<std::int32_t>;

// --- One lane: the same vocabulary for scalars ---------------------------------------------------

HEADWISE_SIMD_INLINE float Fma(float a, float b, float c) { return std::fma(a, b, c); }
HEADWISE_SIMD_INLINE double Fma(double a, double b, double c) { return std::fma(a, b, c); }
HEADWISE_SIMD_INLINE float Sqrt(float x) { return std::sqrt(x); }
HEADWISE_SIMD_INLINE double Sqrt(double x) { return std::sqrt(x); }

template <typename T>
requires std::is_arithmetic_v<T> HEADWISE_SIMD_INLINE T Select(bool mask, T a, T b) {
  return mask ? a : b;
}

// The bits as integers, and back.
HEADWISE_SIMD_INLINE std::int32_t ToBits(float x) { return std::bit_cast<std::int32_t>(x); }
HEADWISE_SIMD_INLINE float FromBits(std::int32_t x) { return std::bit_cast<float>(x); }
HEADWISE_SIMD_INLINE std::int64_t ToBits(double x) { return std::bit_cast<std::int64_t>(x); }
HEADWISE_SIMD_INLINE double FromBits(std::int64_t x) { return std::bit_cast<double>(x); }
HEADWISE_SIMD_INLINE I16 ToBits(F16 x) {
  return I16::Map([](F16::Part p) { return I16::Part(p); }, x);
}
HEADWISE_SIMD_INLINE F16 FromBits(I16 x) {
  return F16::Map([](I16::Part p) { return F16::Part(p); }, x);
}
HEADWISE_SIMD_INLINE Vec16<std::int64_t> ToBits(D16 x) {
  return D16::Mask::Map([](D16::Part p) { return D16::Mask::Part(p); }, x);
}
HEADWISE_SIMD_INLINE D16 FromBits(D16::Mask x) {
  return D16::Map([](D16::Mask::Part p) { return D16::Part(p); }, x);
}

// --- Both ----------------------------------------------------------------------------------------

// The lane type of a vector, or the scalar itself.
template <typename V>
struct LaneOfImpl {
  using type = V;
};
template <typename Lane>
struct LaneOfImpl<Vec16<Lane>> {
  using type = Lane;
};
template <typename V>
using LaneOf = typename LaneOfImpl<V>::type;

// a > b ? a : b, so b if either is NaN or both are zeros.
template <typename V>
HEADWISE_SIMD_INLINE V Max(V a, std::type_identity_t<V> b) {
  return Select(a > b, a, b);
}
// a < b ? a : b, so b if either is NaN or both are zeros.
template <typename V>
HEADWISE_SIMD_INLINE V Min(V a, std::type_identity_t<V> b) {
  return Select(a < b, a, b);
}

// The sign bit cleared.
template <typename V>
HEADWISE_SIMD_INLINE V Abs(V x) {
  using Bits = BitsOf<LaneOf<V>>;
  return FromBits(ToBits(x) & std::numeric_limits<Bits>::max());
}
// magnitude, which must not have its sign bit set, with the sign bit of `sign`.
template <typename V>
HEADWISE_SIMD_INLINE V CopySign(V magnitude, V sign) {
  using Bits = BitsOf<LaneOf<V>>;
  return FromBits(ToBits(magnitude) | (ToBits(sign) & std::numeric_limits<Bits>::min()));
}

// --- Memory: any alignment -----------------------------------------------------------------------

template <typename Lane>
HEADWISE_SIMD_INLINE Vec16<Lane> Load(const Lane* p) {
  Vec16<Lane> v;  // part by part: GCC copies the whole struct through the stack
  for (auto& part : v.part) {
    std::memcpy(&part, p, sizeof(part));
    p += v.kPartLanes;
  }
  return v;
}
template <typename Lane>
HEADWISE_SIMD_INLINE void Store(Lane* p, Vec16<Lane> v) {
  for (const auto& part : v.part) {
    std::memcpy(p, &part, sizeof(part));
    p += v.kPartLanes;
  }
}

// Sixteen elements in storage type to the compute type: exact.
HEADWISE_SIMD_INLINE F16 LoadWiden(const float* p) { return Load(p); }
HEADWISE_SIMD_INLINE D16 LoadWiden(const double* p) { return Load(p); }
HEADWISE_SIMD_INLINE F16 LoadWiden(const BFloat16* p) {
  I16 wide;
  for (auto& part : wide.part) {
#if defined(__AVX512F__)
    part = I16::Part(_mm512_maskz_cvtepu16_epi32(0xffff, _mm256_loadu_si256((const __m256i_u*)p)));
#elif defined(__AVX2__)
    part = I16::Part(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i_u*)p)));
#else
    for (int i = 0; i < I16::kPartLanes; ++i) part[i] = p[i].bits;
#endif
    p += I16::kPartLanes;
  }
  return FromBits(wide << 16);
}

// Sixteen elements to the storage type: one rounding, the bits of RoundToBFloat16.
HEADWISE_SIMD_INLINE void StoreNarrow(float* p, F16 v) { Store(p, v); }
HEADWISE_SIMD_INLINE void StoreNarrow(double* p, D16 v) { Store(p, v); }
HEADWISE_SIMD_INLINE void StoreNarrow(BFloat16* p, F16 v) {
  typedef std::uint16_t Half __attribute__((vector_size(I16::kPartLanes * 2)));
  const I16 u = ToBits(v);
  const I16 rounded = u + 0x7fff + ((u >> 16) & 1);
  const I16 narrow = Select(v != v, I16(0x7fff << 16), rounded);
  for (const auto& part : narrow.part) {
    const Half half = __builtin_convertvector(I16::UnsignedPart(part) >> 16, Half);
    std::memcpy(p, &half, sizeof(half));
    p += I16::kPartLanes;
  }
}

// The first n lanes from memory, 0 <= n <= 16; the others are `fill`. Nothing past p + n is read.
template <typename T>
HEADWISE_SIMD_INLINE auto LoadPartial(const T* p, std::int64_t n, T fill = T{}) {
  T buffer[kLanes];
  for (int i = 0; i < kLanes; ++i) buffer[i] = i < n ? p[i] : fill;
  return LoadWiden(buffer);
}
// The first n lanes to memory, 0 <= n <= 16.
template <typename T, typename V>
HEADWISE_SIMD_INLINE void StorePartial(T* p, std::int64_t n, V v) {
  T buffer[kLanes];
  StoreNarrow(buffer, v);
  for (int i = 0; i < n; ++i) p[i] = buffer[i];
}

// --- Across lanes --------------------------------------------------------------------------------

namespace simd_internal {

// The tree over the n lanes of one register.
template <typename Lane, int n, typename Part, typename Op>
HEADWISE_SIMD_INLINE Lane TreeOfPart(Part v, Op op) {
  if constexpr (n == 2) {
    return op(v[0], v[1]);
  } else {
    return [&]<int... i>(std::integer_sequence<int, i...>) HW_ALWAYS_INLINE {
      return TreeOfPart<Lane, n / 2>(
          op(__builtin_shufflevector(v, v, i...), __builtin_shufflevector(v, v, (i + n / 2)...)),
          op);
    }
    (std::make_integer_sequence<int, n / 2>{});
  }
}

}  // namespace simd_internal

// Lanes i and i + 8, then i + 4, i + 2, i + 1: four steps of op(lower, upper). op is generic: it is
// called with GCC vectors of the lane type.
template <typename Lane, typename Op>
HEADWISE_SIMD_INLINE Lane HorizontalTree(Vec16<Lane> v, Op op) {
  for (int n = v.kParts / 2; n >= 1; n /= 2) {
    for (int i = 0; i < n; ++i) v.part[i] = op(v.part[i], v.part[i + n]);
  }
  return simd_internal::TreeOfPart<Lane, Vec16<Lane>::kPartLanes>(v.part[0], op);
}
template <typename Lane>
HEADWISE_SIMD_INLINE Lane HorizontalSum(Vec16<Lane> v) {
  return HorizontalTree(v, [](auto a, auto b) { return a + b; });
}
template <typename Lane>
HEADWISE_SIMD_INLINE Lane HorizontalMax(Vec16<Lane> v) {
  return HorizontalTree(v, [](auto a, auto b) { return a > b ? a : b; });
}

}  // namespace headwise

#undef HEADWISE_SIMD_INLINE

#endif  // HEADWISE_KERNELS_COMMON_SIMD_H_
