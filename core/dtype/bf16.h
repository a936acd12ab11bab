// BFloat16: storage for activations; the arithmetic is always in fp32.
//
// A bfloat16 is the upper half of a float. Widening is exact; narrowing rounds to nearest, ties to
// even, in integer arithmetic, so that every machine returns the same bits. Any NaN becomes 0x7FFF,
// as NVIDIA GPUs write it. Subnormals are kept. There are no operators on purpose: convert, compute
// in float, round once.
//
//   BFloat16 y = RoundToBFloat16(ToFloat(x) * 0.5f);
#ifndef HEADWISE_CORE_DTYPE_BF16_H_
#define HEADWISE_CORE_DTYPE_BF16_H_

#include <bit>
#include <cstdint>

namespace headwise {

// 16 bits: sign, 8 exponent bits, 7 mantissa bits. Trivial; arrays of it are raw storage.
struct BFloat16 {
  std::uint16_t bits;

  // Equality of bits: -0 and +0 differ, a NaN equals itself.
  friend bool operator==(BFloat16, BFloat16) = default;
};

// Exact.
constexpr float ToFloat(BFloat16 x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
}

// Nearest, ties to even; overflow gives infinity; NaN gives 0x7FFF.
constexpr BFloat16 RoundToBFloat16(float x) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return BFloat16{0x7fff};
  return BFloat16{static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
}

}  // namespace headwise

#endif  // HEADWISE_CORE_DTYPE_BF16_H_
