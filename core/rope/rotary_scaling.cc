#include "core/rope/rotary_scaling.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"

namespace headwise {
namespace {

constexpr double kTurn = 2 * std::numbers::pi;

absl::Status Check(bool good, const char* field, double found, const char* expected) {
  if (good && std::isfinite(found)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("rope scaling: ", field, " must be ", expected, ", found ", found));
}
absl::Status CheckFactor(double factor) {
  return Check(factor >= 1, "factor", factor, "a finite number of at least 1");
}
absl::Status CheckOriginal(std::int64_t positions) {
  return Check(positions >= 1, "original_max_position", static_cast<double>(positions),
               "at least 1");
}
absl::Status CheckPositive(const char* field, std::optional<double> x) {
  return x.has_value() ? Check(*x > 0, field, *x, "a positive finite number") : absl::OkStatus();
}

// Each Scale checks its numbers, then changes the unscaled frequencies of a table.
absl::Status Scale(const NoScaling&, double, RotaryFrequencies&) { return absl::OkStatus(); }

absl::Status Scale(const LinearScaling& s, double, RotaryFrequencies& f) {
  HW_RETURN_IF_ERROR(CheckFactor(s.factor));
  for (double& frequency : f.inv_freq) frequency /= s.factor;
  return absl::OkStatus();
}

absl::Status Scale(const Llama3Scaling& s, double, RotaryFrequencies& f) {
  HW_RETURN_IF_ERROR(CheckFactor(s.factor));
  HW_RETURN_IF_ERROR(CheckOriginal(s.original_max_position));
  HW_RETURN_IF_ERROR(CheckPositive("low_freq_factor", s.low_freq_factor));
  HW_RETURN_IF_ERROR(Check(s.high_freq_factor > s.low_freq_factor, "high_freq_factor",
                           s.high_freq_factor, "finite and greater than low_freq_factor"));
  for (double& frequency : f.inv_freq) {
    const double turns = static_cast<double>(s.original_max_position) * frequency / kTurn;
    const double kept = std::clamp(
        (turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor), 0.0, 1.0);
    // Exact at both ends.
    if (kept < 1)
      frequency =
          kept == 0 ? frequency / s.factor : (1 - kept) * frequency / s.factor + kept * frequency;
  }
  return absl::OkStatus();
}

double YarnAttentionFactor(const YarnScaling& s) {
  const auto m = [&](double x) { return 0.1 * x * std::log(s.factor) + 1.0; };
  if (s.attention_factor.has_value()) return *s.attention_factor;
  if (s.mscale.has_value() && s.mscale_all_dim.has_value()) {
    return m(*s.mscale) / m(*s.mscale_all_dim);
  }
  return m(1.0);
}

absl::Status Scale(const YarnScaling& s, double theta, RotaryFrequencies& f) {
  HW_RETURN_IF_ERROR(CheckFactor(s.factor));
  HW_RETURN_IF_ERROR(CheckOriginal(s.original_max_position));
  HW_RETURN_IF_ERROR(CheckPositive("beta_slow", s.beta_slow));
  HW_RETURN_IF_ERROR(Check(s.beta_fast >= s.beta_slow, "beta_fast", s.beta_fast,
                           "finite and not less than beta_slow"));
  HW_RETURN_IF_ERROR(CheckPositive("attention_factor", s.attention_factor));
  HW_RETURN_IF_ERROR(CheckPositive("mscale", s.mscale));
  HW_RETURN_IF_ERROR(CheckPositive("mscale_all_dim", s.mscale_all_dim));
  HW_RETURN_IF_ERROR(Check(theta > 1, "rope_theta under yarn", theta, "greater than 1"));
  f.attention_factor = YarnAttentionFactor(s);

  const auto rotary_dim = static_cast<double>(2 * f.inv_freq.size());
  // The pair, not an integer, that makes so many turns over the original context.
  const auto pair_of = [&](double turns) {
    return rotary_dim * std::log(static_cast<double>(s.original_max_position) / (kTurn * turns)) /
           (2 * std::log(theta));
  };
  double low = pair_of(s.beta_fast), high = pair_of(s.beta_slow);
  if (s.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, rotary_dim - 1);
  if (high == low) high += 0.001;
  for (std::size_t i = 0; i < f.inv_freq.size(); ++i) {
    const double divided = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    const double frequency = f.inv_freq[i];
    f.inv_freq[i] = frequency / s.factor * divided + frequency * (1 - divided);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RotaryFrequencies> ScaledFrequencies(const RotaryScaling& scaling, double theta,
                                                    std::int64_t rotary_dim) {
  HW_CHECK(rotary_dim >= 0 && rotary_dim % 2 == 0) << "rotary_dim " << rotary_dim;
  if (!std::isfinite(theta) || theta <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("rope_theta must be a positive finite number, found ", theta));
  }
  RotaryFrequencies frequencies;
  for (std::int64_t i = 0; i < rotary_dim / 2; ++i) {
    frequencies.inv_freq.push_back(
        std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim)));
  }
  HW_RETURN_IF_ERROR(
      std::visit([&](const auto& s) { return Scale(s, theta, frequencies); }, scaling));
  return frequencies;
}

}  // namespace headwise
