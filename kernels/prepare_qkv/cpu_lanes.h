// Pieces of the four-heads kernel that know how the lanes lie: sixteen lanes as four quarters of
// four, bf16 in the halves of 32-bit lanes, and stores around the caches.
#ifndef HEADWISE_KERNELS_PREPARE_QKV_CPU_LANES_H_
#define HEADWISE_KERNELS_PREPARE_QKV_CPU_LANES_H_

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#include "kernels/common/simd.h"

namespace headwise::internal {

// Before a loop over arrays of vectors, so that they live in registers.
#define HW_UNROLL _Pragma("GCC unroll 64")

// --- Sixteen lanes as four quarters --------------------------------------------------------------

// Within each register, seen as numbers of type Wide: number i of the result is number kFrom(i) of
// a followed by b.
template <typename Wide, auto kFrom, typename Lane>
HW_ALWAYS_INLINE inline Vec16<Lane> ShuffleRegisters(Vec16<Lane> a, Vec16<Lane> b) {
  using Part = typename Vec16<Lane>::Part;
  typedef Wide WidePart __attribute__((vector_size(kRegisterBytes)));
  return Vec16<Lane>::Map(
      [](Part x, Part y) HW_ALWAYS_INLINE {
        return [&]<int... i>(std::integer_sequence<int, i...>) HW_ALWAYS_INLINE {
          return Part(__builtin_shufflevector(WidePart(x), WidePart(y), kFrom(i)...));
        }
        (std::make_integer_sequence<int, kRegisterBytes / int{sizeof(Wide)}>{});
      },
      a, b);
}

// In every quarter, v[0] to v[3] become their 4 x 4 transpose. Its own inverse.
template <typename Lane>
HW_ALWAYS_INLINE inline void TransposeQuarters(Vec16<Lane> (&v)[4]) {
  // (a0 b0 a1 b1) and (a2 b2 a3 b3) of lanes; then the same of pairs.
  constexpr int n = Vec16<Lane>::kPartLanes;
  constexpr auto low = [](int i) { return i / 4 * 4 + i % 4 / 2 + i % 2 * n; };
  constexpr auto high = [](int i) { return i / 4 * 4 + 2 + i % 4 / 2 + i % 2 * n; };
  constexpr auto low_pair = [](int i) { return i / 2 * 2 + i % 2 * n / 2; };
  constexpr auto high_pair = [](int i) { return i / 2 * 2 + 1 + i % 2 * n / 2; };
  const Vec16<Lane> ab_low = ShuffleRegisters<Lane, low>(v[0], v[1]);
  const Vec16<Lane> ab_high = ShuffleRegisters<Lane, high>(v[0], v[1]);
  const Vec16<Lane> cd_low = ShuffleRegisters<Lane, low>(v[2], v[3]);
  const Vec16<Lane> cd_high = ShuffleRegisters<Lane, high>(v[2], v[3]);
  v[0] = ShuffleRegisters<double, low_pair>(ab_low, cd_low);
  v[1] = ShuffleRegisters<double, high_pair>(ab_low, cd_low);
  v[2] = ShuffleRegisters<double, low_pair>(ab_high, cd_high);
  v[3] = ShuffleRegisters<double, high_pair>(ab_high, cd_high);
}

// Quarters (0 1 2 3) become (2 3 0 1).
HW_ALWAYS_INLINE inline F16 SwapHalves(F16 v) {
  if constexpr (F16::kParts == 2) {
    std::swap(v.part[0], v.part[1]);
    return v;
  } else {
    constexpr auto from = [](int i) { return i ^ 8; };
    return ShuffleRegisters<float, from>(v, v);
  }
}

// Quarters (0 1 2 3) become (1 0 3 2).
HW_ALWAYS_INLINE inline F16 SwapNeighbours(F16 v) {
  constexpr auto from = [](int i) { return i ^ 4; };
  return ShuffleRegisters<float, from>(v, v);
}

// Eight quarters, a followed by b: the even ones go to a, the odd ones to b.
HW_ALWAYS_INLINE inline void EvenAndOddQuarters(F16& a, F16& b) {
  constexpr auto even = [](int i) { return i / 4 * 8 + i % 4; };
  constexpr auto odd = [](int i) { return i / 4 * 8 + 4 + i % 4; };
  F16 x = a, y = b;
  if constexpr (F16::kParts == 2) {  // registers a0 a1 b0 b1 pair up as (a0 a1), (b0 b1)
    x.part[1] = b.part[0];
    y.part[0] = a.part[1];
  }
  a = ShuffleRegisters<float, even>(x, y);
  b = ShuffleRegisters<float, odd>(x, y);
}

// The inverse.
HW_ALWAYS_INLINE inline void InterleaveQuarters(F16& a, F16& b) {
  constexpr int n = F16::kPartLanes;
  constexpr auto low = [](int i) { return i / 8 * 4 + i % 4 + i / 4 % 2 * n; };
  constexpr auto high = [](int i) { return n / 2 + i / 8 * 4 + i % 4 + i / 4 % 2 * n; };
  const F16 x = ShuffleRegisters<float, low>(a, b), y = ShuffleRegisters<float, high>(a, b);
  a = x, b = y;
  if constexpr (F16::kParts == 2) {
    a.part[1] = y.part[0];
    b.part[0] = x.part[1];
  }
}

// Correctly rounded 1 / sqrt(v) of the first quarter, in every quarter.
HW_ALWAYS_INLINE inline F16 ReciprocalRootOfQuarter(F16 v) {
#if defined(__AVX__)
  __m128 quarter;
  std::memcpy(&quarter, &v, sizeof(quarter));
  const __m256d root = _mm256_sqrt_pd(_mm256_cvtps_pd(quarter));
  const __m128 r = _mm256_cvtpd_ps(_mm256_div_pd(_mm256_set1_pd(1.0), root));
  // Not _mm512_broadcast_f32x4: GCC 12 warns of an uninitialised value inside it.
  return F16::Map(
      [r](F16::Part) HW_ALWAYS_INLINE {
        return [&]<int... i>(std::integer_sequence<int, i...>) HW_ALWAYS_INLINE {
          return F16::Part(__builtin_shufflevector(r, r, (i % 4)...));
        }
        (std::make_integer_sequence<int, F16::kPartLanes>{});
      },
      v);
#else
  float lanes[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    lanes[i] = static_cast<float>(1.0 / std::sqrt(static_cast<double>(v[i % 4])));
  }
  return Load(lanes);
#endif
}

// --- bf16 in 32-bit words ------------------------------------------------------------------------

constexpr std::int32_t kUpperHalf = static_cast<std::int32_t>(0xffff0000u);

// To nearest bf16, ties to even, in the upper halves of the lanes; the lower halves are rubbish.
// NaN stays NaN where the lower half of x is 0, as it is in every NaN that bf16 values, Quieted()
// factors and the processor's own NaN lead to: the addend 0x8000 then carries nothing upwards.
HW_ALWAYS_INLINE inline I16 RoundUpperHalf(F16 x) {
  const I16 u = ToBits(x);
#if defined(__AVX512F__)
  I16 t = u + I16(0x7fff);  // and 1 more if the bit above is odd
  t.part[0] = I16::Part(_mm512_mask_add_epi32(
      __m512i(t.part[0]), _mm512_test_epi32_mask(__m512i(u.part[0]), _mm512_set1_epi32(0x10000)),
      __m512i(t.part[0]), _mm512_set1_epi32(1)));
  return t;
#else
  return u + ((u >> 16) & I16(1)) + I16(0x7fff);
#endif
}

HW_ALWAYS_INLINE inline I16 ShiftRightLogical16(I16 x) {
  return I16::Map(
      [](I16::Part p) HW_ALWAYS_INLINE { return I16::Part(I16::UnsignedPart(p) >> 16); }, x);
}

// NaN made the one whose lower half is 0.
HW_ALWAYS_INLINE inline F16 Quieted(F16 x) {
  return Select(x != x, F16(std::numeric_limits<float>::quiet_NaN()), x);
}

// --- 64 bytes ------------------------------------------------------------------------------------

// Register by register: GCC copies a whole struct through the stack.
HW_ALWAYS_INLINE inline I16 Load64(const void* from) {
  I16 v;
  for (int i = 0; i < I16::kParts; ++i) {
    std::memcpy(&v.part[i], static_cast<const char*>(from) + i * kRegisterBytes, kRegisterBytes);
  }
  return v;
}

// With `stream` around the caches; `to` is then aligned to 64.
HW_ALWAYS_INLINE inline void Store64(void* to, I16 v, bool stream) {
  for (int i = 0; i < I16::kParts; ++i) {
    char* const at = static_cast<char*>(to) + i * kRegisterBytes;
#if defined(__AVX512F__)
    if (stream) {
      _mm512_stream_si512(reinterpret_cast<__m512i*>(at), __m512i(v.part[i]));
      continue;
    }
#elif defined(__AVX__)
    if (stream) {
      _mm256_stream_si256(reinterpret_cast<__m256i*>(at), __m256i(v.part[i]));
      continue;
    }
#endif
    std::memcpy(at, &v.part[i], kRegisterBytes);
  }
}

}  // namespace headwise::internal

#endif  // HEADWISE_KERNELS_PREPARE_QKV_CPU_LANES_H_
