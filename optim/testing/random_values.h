// Values for tests: the same on every machine, made by integer arithmetic.
#ifndef HEADWISE_OPTIM_TESTING_RANDOM_VALUES_H_
#define HEADWISE_OPTIM_TESTING_RANDOM_VALUES_H_

#include <cstdint>
#include <vector>

namespace headwise {

// Bell-shaped, mean 0, standard deviation about 1, symmetric; every seed its own sequence.
inline std::vector<float> RandomValues(std::int64_t count, std::uint64_t seed) {
  std::vector<float> values(static_cast<std::size_t>(count));
  std::uint64_t state = seed * 0x9e3779b97f4a7c15u + 0x2545f4914f6cdd1du;
  for (float& value : values) {
    std::int64_t sum = 0;  // of six uniform 24-bit numbers
    for (int i = 0; i < 6; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      sum += static_cast<std::int64_t>(state >> 40) - (1 << 23);
    }
    value = static_cast<float>(sum) * 0x1p-24f * 1.41421356f;
  }
  return values;
}

}  // namespace headwise

#endif  // HEADWISE_OPTIM_TESTING_RANDOM_VALUES_H_
