#include "model/train/permutation.h"

#include <algorithm>
#include <bit>

#include "core/base/check.h"
#include "core/base/split_mix.h"

namespace headwise {
namespace {

constexpr int kRounds = 6;

std::uint64_t Mix(std::uint64_t z) { return SplitMixScramble(z + kSplitMixIncrement); }

}  // namespace

std::uint64_t MixKeys(std::uint64_t a, std::uint64_t b) { return Mix(Mix(a) ^ b); }

std::uint64_t PermutedIndex(std::uint64_t key, std::uint64_t n, std::uint64_t i) {
  HW_CHECK_LT(i, n);
  const int half = std::max(1, static_cast<int>((std::bit_width(n - 1) + 1) / 2));
  const std::uint64_t mask = (std::uint64_t{1} << half) - 1;
  do {
    std::uint64_t left = i >> half, right = i & mask;
    for (int round = 0; round < kRounds; ++round) {
      const std::uint64_t next =
          left ^ (MixKeys(key + static_cast<std::uint64_t>(round), right) & mask);
      left = right;
      right = next;
    }
    i = (left << half) | right;
  } while (i >= n);
  return i;
}

}  // namespace headwise
