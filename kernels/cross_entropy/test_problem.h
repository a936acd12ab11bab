// What the tests of this package share: transforms of logits, and targets.
#ifndef HEADWISE_KERNELS_CROSS_ENTROPY_TEST_PROBLEM_H_
#define HEADWISE_KERNELS_CROSS_ENTROPY_TEST_PROBLEM_H_

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "kernels/cross_entropy/cross_entropy.h"

namespace headwise {

inline constexpr LogitTransform kTransforms[] = {
    {}, {.multiplier = 0.1961}, {.multiplier = 0.75, .cap = 20.0}, {.multiplier = 1.0, .cap = 2.5}};
inline constexpr double kLossScale = 1.0 / 37;

inline std::string Name(const LogitTransform& op) {
  return "multiplier " + std::to_string(op.multiplier) + ", cap " + std::to_string(op.cap);
}

// Every seventh target is ignored.
inline std::vector<std::int32_t> Targets(std::int64_t rows, std::int64_t width) {
  std::mt19937 random(3);
  std::vector<std::int32_t> targets(rows);
  for (std::int64_t t = 0; t < rows; ++t) {
    targets[t] =
        t % 7 == 3 || width == 0 ? kIgnoredTarget : static_cast<std::int32_t>(random() % width);
  }
  return targets;
}

}  // namespace headwise

#endif  // HEADWISE_KERNELS_CROSS_ENTROPY_TEST_PROBLEM_H_
