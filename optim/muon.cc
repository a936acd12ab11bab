#include "optim/muon.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "kernels/common/float_environment.h"
#include "kernels/gradient_norm/gradient_norm.h"
#include "kernels/newton_schulz/coefficients.h"
#include "optim/weight_memory.h"

namespace headwise {
namespace {

bool FiniteInFloat(double x) { return std::isfinite(static_cast<float>(x)); }

absl::Status OutOfRange(const char* field, const char* range, double found) {
  return absl::InvalidArgumentError(absl::StrCat(field, " must be ", range, ", found ", found));
}

// "[768, 512]"
template <typename T>
std::string Shape2d(const RowSpan<T>& span) {
  return absl::StrCat("[", span.rows, ", ", span.width, "]");
}

template <typename T>
absl::Status ValidateBuffer(const std::string& weight, const char* what, const RowSpan<T>& span) {
  const auto error = [&](const std::string& wrong) {
    return absl::InvalidArgumentError(absl::StrCat("weight ", weight, ": ", what, " ", wrong));
  };
  if (span.data == nullptr) return error("is a null pointer");
  if (span.rows <= 0 || span.width <= 0)
    return error(absl::StrCat("must have elements, found shape ", Shape2d(span)));
  if (span.rows > 1 && span.stride < span.width) {
    return error(absl::StrCat("has rows of ", span.width, " elements that lie only ", span.stride,
                              " apart"));
  }
  return absl::OkStatus();
}

absl::Status ValidateParameter(const MuonParameter& parameter) {
  HW_RETURN_IF_ERROR(ValidateBuffer(parameter.name, "value", parameter.value));
  HW_RETURN_IF_ERROR(ValidateBuffer(parameter.name, "gradient", parameter.gradient));
  if (parameter.gradient.rows != parameter.value.rows ||
      parameter.gradient.width != parameter.value.width) {
    return absl::InvalidArgumentError(absl::StrCat("weight ", parameter.name, ": value has shape ",
                                                   Shape2d(parameter.value), ", gradient ",
                                                   Shape2d(parameter.gradient)));
  }
  if (parameter.blocks.has_value()) {
    const bool by_rows = parameter.blocks->axis() == BlockAxis::kRows;
    const std::int64_t extent = by_rows ? parameter.value.rows : parameter.value.width;
    if (parameter.blocks->axis_size() != extent) {
      return absl::InvalidArgumentError(absl::StrCat(
          "weight ", parameter.name, ": the blocks cover ", parameter.blocks->axis_size(),
          by_rows ? " rows" : " columns", ", the value has shape ", Shape2d(parameter.value)));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateMuonHyperparameters(const MuonHyperparameters& hyper) {
  if (!(hyper.learning_rate >= 0) || !FiniteInFloat(hyper.learning_rate)) {
    return OutOfRange("learning_rate", "finite and 0 or more", hyper.learning_rate);
  }
  // As the kernel sees it: a momentum that rounds to 1 would never take in a gradient.
  if (!(hyper.momentum >= 0 && static_cast<float>(hyper.momentum) < 1)) {
    return OutOfRange("momentum", "in [0, 1)", hyper.momentum);
  }
  if (!(hyper.weight_decay >= 0) || !FiniteInFloat(hyper.weight_decay)) {
    return OutOfRange("weight_decay", "finite and 0 or more", hyper.weight_decay);
  }
  if (hyper.learning_rate * hyper.weight_decay > 1) {
    return OutOfRange("weight_decay", "at most 1 / learning_rate", hyper.weight_decay);
  }
  if (hyper.gradient_scale != 1) {
    return OutOfRange("gradient_scale", "1 (it is an argument of the step)", hyper.gradient_scale);
  }
  if (hyper.coefficients == nullptr) {
    return absl::InvalidArgumentError("coefficients must not be null");
  }
  return CheckCoefficients(*hyper.coefficients);
}

Muon::Muon(const MuonHyperparameters& hyper, std::vector<Weight> weights, MuonStepFunction step)
    : hyper_(hyper), weights_(std::move(weights)), step_(step) {}

absl::StatusOr<Muon> Muon::Create(const MuonHyperparameters& hyper,
                                  std::vector<MuonParameter> parameters, MuonStepFunction step) {
  HW_RETURN_IF_ERROR(CheckFloatEnvironment());
  HW_RETURN_IF_ERROR(ValidateMuonHyperparameters(hyper));
  std::sort(parameters.begin(), parameters.end(),
            [](const MuonParameter& a, const MuonParameter& b) { return a.name < b.name; });
  std::vector<WeightMemory> memory;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].name.empty()) return absl::InvalidArgumentError("a weight has no name");
    if (i > 0 && parameters[i - 1].name == parameters[i].name) {
      return absl::InvalidArgumentError(absl::StrCat("two weights are named ", parameters[i].name));
    }
    HW_RETURN_IF_ERROR(ValidateParameter(parameters[i]));
    memory.push_back({parameters[i].name, parameters[i].value, parameters[i].gradient});
  }
  HW_RETURN_IF_ERROR(CheckWeightMemory(memory));
  std::vector<Weight> weights;
  for (MuonParameter& parameter : parameters) {
    if (!parameter.blocks.has_value()) parameter.blocks = HeadBlocks::Whole(parameter.value.rows);
    Tensor momentum =
        Tensor::Zeros({parameter.value.rows, parameter.value.width}, DType::kF32, Device::kCpu);
    weights.push_back({std::move(parameter), std::move(momentum)});
  }
  return Muon(hyper, std::move(weights), step);
}

MuonReport Muon::Step(ThreadPool& pool, double learning_rate_factor) {
  std::vector<NamedGradient> gradients;
  for (const Weight& w : weights_) gradients.push_back({w.parameter.name, w.parameter.gradient});
  const GradientSummary summary = SummarizeGradients(gradients, pool);
  MuonReport report{summary.norm, !summary.non_finite.empty(), summary.non_finite};
  if (!report.skipped) StepUnguarded(pool, learning_rate_factor);
  return report;
}

void Muon::StepUnguarded(ThreadPool& pool, double learning_rate_factor, double gradient_scale) {
  HW_CHECK(learning_rate_factor >= 0 && std::isfinite(learning_rate_factor))
      << learning_rate_factor;
  HW_CHECK(gradient_scale >= 0 && gradient_scale <= 1) << gradient_scale;
  MuonHyperparameters hyper = hyper_;
  hyper.learning_rate *= learning_rate_factor;
  hyper.gradient_scale = gradient_scale;
  std::vector<MuonWeight<float>> batch;
  for (const Weight& w : weights_) {
    batch.push_back({.weight = w.parameter.value,
                     .momentum = w.momentum.Rows<float>(),
                     .gradient = w.parameter.gradient,
                     .blocks = &*w.parameter.blocks,
                     .transposed_storage = w.parameter.transposed_storage});
  }
  const absl::Status status = step_(hyper, batch, pool);
  HW_CHECK(status.ok()) << status.message();  // Create has checked everything that can be wrong
}

std::vector<NamedTensor> Muon::State() const {
  std::vector<NamedTensor> state;
  for (const Weight& w : weights_) state.push_back({MomentumName(w.parameter.name), w.momentum});
  return state;
}

}  // namespace headwise
