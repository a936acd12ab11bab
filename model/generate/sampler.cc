#include "model/generate/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/split_mix.h"

namespace headwise {
namespace {

// The n-th number of a seed's stream, uniform in [0, 1).
double DrawUniform(std::uint64_t seed, std::uint64_t n) {
  const std::uint64_t bits =
      SplitMixScramble(SplitMixScramble(seed + kSplitMixIncrement) + n * kSplitMixIncrement);
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

absl::Status OutOfRange(const char* name, double value, const char* range) {
  return absl::InvalidArgumentError(absl::StrCat(name, ": expected ", range, ", found ", value));
}

}  // namespace

absl::Status ValidateSamplerOptions(const SamplerOptions& options) {
  if (!(options.temperature >= 0) || std::isinf(options.temperature)) {
    return OutOfRange("temperature", options.temperature, "a number >= 0 (0 is greedy)");
  }
  if (options.top_k < 0) {
    return OutOfRange("top-k", static_cast<double>(options.top_k), "an integer >= 0 (0 keeps all)");
  }
  if (!(options.top_p > 0 && options.top_p <= 1)) {
    return OutOfRange("top-p", options.top_p, "a number in (0, 1]");
  }
  if (!(options.min_p >= 0 && options.min_p <= 1)) {
    return OutOfRange("min-p", options.min_p, "a number in [0, 1]");
  }
  return absl::OkStatus();
}

Sampler::Sampler(const SamplerOptions& options) : options_(options) {
  HW_CHECK(ValidateSamplerOptions(options).ok()) << ValidateSamplerOptions(options).message();
}

absl::StatusOr<std::int32_t> Sampler::Draw(absl::Span<const float> logits) {
  const std::uint64_t draw = draws_++;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i])) {
      return absl::InvalidArgumentError(absl::StrCat("logit of token ", i, " is NaN"));
    }
  }
  const auto largest = std::max_element(logits.begin(), logits.end());
  if (largest == logits.end() || *largest == -std::numeric_limits<float>::infinity()) {
    return absl::InvalidArgumentError("no token has a logit above -infinity");
  }
  if (options_.temperature == 0) return static_cast<std::int32_t>(largest - logits.begin());

  // Most likely first; equal logits in index order.
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int32_t a, std::int32_t b) { return logits[a] > logits[b]; });
  std::size_t kept = order.size();
  if (options_.top_k > 0)
    kept = std::min<std::size_t>(kept, static_cast<std::size_t>(options_.top_k));

  // Weights relative to the most likely token.
  std::vector<double> weight(kept);
  const double top = logits[order[0]];
  for (std::size_t i = 0; i < kept; ++i) {
    const double x = logits[order[i]];
    weight[i] = x == top ? 1.0 : std::exp((x - top) / options_.temperature);
  }
  double total = std::accumulate(weight.begin(), weight.end(), 0.0);
  double mass = 0;
  for (std::size_t i = 0; i < kept; ++i) {
    if (i > 0 && (weight[i] < options_.min_p || mass >= options_.top_p * total)) {
      kept = i;
      break;
    }
    mass += weight[i];
  }
  const double target = DrawUniform(options_.seed, draw) * mass;
  double sum = 0;
  for (std::size_t i = 0; i < kept; ++i) {
    sum += weight[i];
    if (target < sum) return order[i];
  }
  return order[kept - 1];
}

}  // namespace headwise
