// The random numbers of ThreadOrder::kRandom: SplitMix64 (Steele, Lea & Flood, OOPSLA 2014). Internal
// to kernels/emulation.
#ifndef HEADWISE_KERNELS_EMULATION_RANDOM_H_
#define HEADWISE_KERNELS_EMULATION_RANDOM_H_

#include <cstdint>

namespace headwise::emulation {

inline constexpr std::uint64_t kRandomIncrement = 0x9e3779b97f4a7c15u;

// A bijection that scrambles every bit.
constexpr std::uint64_t Scramble(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// The next number of the sequence at `state`.
constexpr std::uint64_t NextRandom(std::uint64_t& state) {
  return Scramble(state += kRandomIncrement);
}

// The i-th of the seeds that a seed stands for.
constexpr std::uint64_t DerivedSeed(std::uint64_t seed, std::uint64_t i) {
  return Scramble(Scramble(seed + kRandomIncrement) + (i + 1) * kRandomIncrement);
}

}  // namespace headwise::emulation

#endif  // HEADWISE_KERNELS_EMULATION_RANDOM_H_
