// IEEE half precision, as a storage type of files only: read and written, never computed with.
//
// Widening is exact; narrowing rounds to nearest, ties to even, in integer arithmetic, so that
// every machine returns the same bits. Subnormals are kept. Source: IEEE 754-2019, binary16.
//
//   std::uint16_t bits = RoundToFloat16(0.1f);  // 0x2e66
//   float x = Float16ToFloat(bits);
#ifndef HEADWISE_CORE_DTYPE_FP16_H_
#define HEADWISE_CORE_DTYPE_FP16_H_

#include <bit>
#include <cstdint>

namespace headwise {

// Exact. 1 sign bit, 5 exponent bits (bias 15), 10 mantissa bits.
constexpr float Float16ToFloat(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000u) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fu;
  const std::uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0) {  // mantissa times 2^-24, which float holds
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
  const std::uint32_t wide = exponent == 0x1f ? 0xffu : exponent + (127 - 15);
  return std::bit_cast<float>(sign | (wide << 23) | (mantissa << 13));
}

// Nearest, ties to even; from 65520 on infinity; NaN gives 0x7fff.
constexpr std::uint16_t RoundToFloat16(float x) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t magnitude = u & 0x7fffffffu;
  const std::uint32_t sign = (u >> 16) & 0x8000u;
  if (magnitude > 0x7f800000u) return 0x7fff;
  if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {  // below 2^-14: a multiple of 2^-24
    if (magnitude < 0x33000000u) return static_cast<std::uint16_t>(sign);  // below 2^-25
    const std::uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
    const int shift = 126 - static_cast<int>(magnitude >> 23);  // 14 to 24
    const std::uint32_t half = (1u << (shift - 1)) - 1 + ((mantissa >> shift) & 1u);
    return static_cast<std::uint16_t>(sign | ((mantissa + half) >> shift));
  }
  const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<std::uint16_t>(sign | ((rounded - ((127u - 15u) << 23)) >> 13));
}

}  // namespace headwise

#endif  // HEADWISE_CORE_DTYPE_FP16_H_
