// SplitMix64 (Steele, Lea & Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014):
// 64-bit random numbers that are the same on every machine. Not for cryptography.
//
//   std::uint64_t state = seed;
//   const std::uint64_t random = NextSplitMix(state);
//
// The i-th number of a seed is also SplitMixScramble(seed + (i + 1) * kSplitMixIncrement), in any
// order.
#ifndef HEADWISE_CORE_BASE_SPLIT_MIX_H_
#define HEADWISE_CORE_BASE_SPLIT_MIX_H_

#include <cstdint>

namespace headwise {

// 2^64 over the golden ratio.
inline constexpr std::uint64_t kSplitMixIncrement = 0x9e3779b97f4a7c15u;

// The output function: a bijection in which every input bit reaches every output bit.
constexpr std::uint64_t SplitMixScramble(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// The next number of the sequence at `state`.
constexpr std::uint64_t NextSplitMix(std::uint64_t& state) {
  return SplitMixScramble(state += kSplitMixIncrement);
}

}  // namespace headwise

#endif  // HEADWISE_CORE_BASE_SPLIT_MIX_H_
