// Random numbers for initial weights: each is a function of (key, index) alone, so a weight's
// values depend on the seed and its name, never on the order in which weights are drawn.
//
//   const std::uint64_t key = RandomKey(seed, "layers.0.ffn.w1");
//   for (i) w[i] = std * TruncatedNormal(key, i);
//
// The uniform is SplitMix64's output function (Steele, Lea & Flood, OOPSLA 2014) at position
// `index` of the stream that starts at `key`, upper 53 bits, centred in their interval. Normals
// come from it by the inverse cumulative distribution (Wichura's AS 241, relative error about
// 1e-16). Its logarithm is our own: only correctly rounded operations in a fixed order, so every
// machine draws the same bits. Not for cryptography.
#ifndef HEADWISE_MODEL_RANDOM_H_
#define HEADWISE_MODEL_RANDOM_H_

#include <cstdint>
#include <string>

namespace headwise {

// FNV-1a of the name, mixed with the seed.
std::uint64_t RandomKey(std::uint64_t seed, const std::string& name);

// In (0, 1), never 0 or 1.
double Uniform(std::uint64_t key, std::uint64_t index);

// The quantile function of N(0, 1); 0 < p < 1.
double InverseNormalCdf(double p);

// N(0, 1).
double Normal(std::uint64_t key, std::uint64_t index);

// N(0, 1) given that its magnitude is below 3: what drawing again until it is would give. Its
// standard deviation is 0.98658.
double TruncatedNormal(std::uint64_t key, std::uint64_t index);

}  // namespace headwise

#endif  // HEADWISE_MODEL_RANDOM_H_
