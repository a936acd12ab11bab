#include "kernels/muon_step/arguments.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "kernels/common/float_environment.h"
#include "kernels/common/memory_overlap.h"
#include "kernels/newton_schulz/matrix_checks.h"

namespace headwise {

const char* Name(UpdateScale scale) {
  switch (scale) {
    case UpdateScale::kAspect:
      return "aspect";
    case UpdateScale::kMatchRmsAdamW:
      return "match_rms_adamw";
    case UpdateScale::kSpectral:
      return "spectral";
    case UpdateScale::kUnit:
      return "unit";
  }
  return "?";
}

double UpdateScaleFactor(UpdateScale scale, std::int64_t rows, std::int64_t cols) {
  const double r = static_cast<double>(rows), c = static_cast<double>(cols);
  switch (scale) {
    case UpdateScale::kAspect:
      return std::sqrt(std::max(1.0, r / c));
    case UpdateScale::kMatchRmsAdamW:
      return 0.2 * std::sqrt(std::max(r, c));
    case UpdateScale::kSpectral:
      return std::sqrt(r / c);
    case UpdateScale::kUnit:
      return 1.0;
  }
  return 1.0;
}

namespace muon_step {
namespace {

using newton_schulz::CheckSpan;

absl::Status CheckHyperparameters(const MuonHyperparameters& hyper) {
  const std::pair<const char*, double> not_negative[] = {{"learning_rate", hyper.learning_rate},
                                                         {"momentum", hyper.momentum},
                                                         {"weight_decay", hyper.weight_decay},
                                                         {"gradient_scale", hyper.gradient_scale}};
  for (const auto& [name, value] : not_negative) {
    if (!std::isfinite(value) || value < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("Muon: ", name, " is ", value, ", expected a finite number >= 0"));
    }
  }
  if (hyper.momentum >= 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("Muon: momentum is ", hyper.momentum, ", expected less than 1"));
  }
  if (hyper.coefficients == nullptr) {
    return absl::InvalidArgumentError("Muon: no Newton-Schulz coefficients");
  }
  return CheckCoefficients(*hyper.coefficients);
}

template <typename G>
absl::Status CheckWeight(const MuonWeight<G>& w) {
  HW_RETURN_IF_ERROR(
      CheckSpan("its weight", w.weight.data, w.weight.rows, w.weight.width, w.weight.stride));
  HW_RETURN_IF_ERROR(CheckSpan("its momentum", w.momentum.data, w.momentum.rows, w.momentum.width,
                               w.momentum.stride));
  HW_RETURN_IF_ERROR(CheckSpan("its gradient", w.gradient.data, w.gradient.rows, w.gradient.width,
                               w.gradient.stride));
  const auto shape = [](const auto& span) {
    return absl::StrCat("[", span.rows, ", ", span.width, "]");
  };
  if (shape(w.momentum) != shape(w.weight) || shape(w.gradient) != shape(w.weight)) {
    return absl::InvalidArgumentError(absl::StrCat("it is ", shape(w.weight), ", its momentum ",
                                                   shape(w.momentum), ", its gradient ",
                                                   shape(w.gradient), "; all must be the same"));
  }
  if (Overlap(w.weight, w.momentum) || Overlap(w.weight, w.gradient) ||
      Overlap(w.momentum, w.gradient)) {
    return absl::InvalidArgumentError("its weight, momentum and gradient share memory");
  }
  return newton_schulz::CheckBlocks(w.blocks, w.weight.rows, w.weight.width);
}

// Of different weights.
template <typename G>
absl::Status CheckMemory(absl::Span<const MuonWeight<G>> weights) {
  constexpr const char* kMatrices[] = {"weight", "momentum", "gradient"};
  std::vector<MemoryUse> uses;  // in that order, of one weight after another
  for (const MuonWeight<G>& w : weights) {
    uses.push_back({MemoryOf(w.weight), /*written=*/true});
    uses.push_back({MemoryOf(w.momentum), /*written=*/true});
    uses.push_back({MemoryOf(w.gradient)});
  }
  const std::optional<std::pair<std::size_t, std::size_t>> pair = FindOverlap(uses);
  if (!pair.has_value()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "Muon weight ", pair->first / 3, ": its ", kMatrices[pair->first % 3], " and the ",
      kMatrices[pair->second % 3], " of Muon weight ", pair->second / 3, " share memory"));
}

}  // namespace

template <typename G>
absl::Status CheckArguments(const MuonHyperparameters& hyper,
                            absl::Span<const MuonWeight<G>> weights) {
  HW_RETURN_IF_ERROR(CheckFloatEnvironment());
  HW_RETURN_IF_ERROR(CheckHyperparameters(hyper));
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (const absl::Status s = CheckWeight(weights[i]); !s.ok()) {
      return absl::Status(s.code(), absl::StrCat("Muon weight ", i, ": ", s.message()));
    }
  }
  return CheckMemory(weights);
}

template absl::Status CheckArguments<float>(const MuonHyperparameters&,
                                            absl::Span<const MuonWeight<float>>);
template absl::Status CheckArguments<BFloat16>(const MuonHyperparameters&,
                                               absl::Span<const MuonWeight<BFloat16>>);

float StepSize(const MuonHyperparameters& hyper, bool transposed_storage, std::int64_t rows,
               std::int64_t cols) {
  if (transposed_storage) std::swap(rows, cols);
  return static_cast<float>(hyper.learning_rate * UpdateScaleFactor(hyper.scale, rows, cols));
}

}  // namespace muon_step
}  // namespace headwise
