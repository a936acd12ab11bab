#include "optim/optimizer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "kernels/adamw/adamw.h"
#include "kernels/moe/balancing.h"
#include "optim/gradient_norm.h"
#include "optim/muon.h"
#include "optim/settings.h"

namespace headwise {
namespace {

// The tensors that a step reads and writes.
absl::Status ValidateTensors(const Parameter& parameter) {
  for (const auto& [what, tensor] :
       {std::pair("value", &parameter.value), std::pair("gradient", &parameter.gradient)}) {
    if (!tensor->defined()) {
      return absl::InvalidArgumentError(
          absl::StrCat("parameter ", parameter.name, " has no ", what));
    }
    if (tensor->dtype() != DType::kF32 || tensor->device() != Device::kCpu) {
      return absl::InvalidArgumentError(absl::StrCat(
          "parameter ", parameter.name, ": the ", what, " must be F32 on ", Name(Device::kCpu),
          ", found ", Name(tensor->dtype()), " on ", Name(tensor->device())));
    }
  }
  if (parameter.gradient.shape() != parameter.value.shape()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "parameter ", parameter.name, ": value has shape ", ToString(parameter.value.shape()),
        ", gradient ", ToString(parameter.gradient.shape())));
  }
  return absl::OkStatus();
}

template <typename T>
absl::Span<T> Elements(const Tensor& tensor) {
  return absl::Span<T>(tensor.data<std::remove_const_t<T>>(),
                       static_cast<std::size_t>(tensor.size()));
}

struct BalancingParameter {
  Tensor bias, loads;
};

// One of AdamW's parameters; the tensors share the parameter's storage.
struct AdamWParameter {
  std::string name;
  Tensor value, gradient;
  Tensor m, v;  // the parameter's shape
};

class OptimizerImpl final : public Optimizer {
 public:
  OptimizerImpl(OptimizerSettings settings, std::vector<ParameterAssignment> assignments,
                std::vector<NamedGradient> gradients, std::optional<Muon> muon,
                std::vector<AdamWParameter> adamw, std::vector<BalancingParameter> balancing)
      : settings_(std::move(settings)),
        assignments_(std::move(assignments)),
        gradients_(std::move(gradients)),
        muon_(std::move(muon)),
        adamw_(std::move(adamw)),
        balancing_(std::move(balancing)),
        adamw_updates_(Tensor::Zeros({1}, DType::kI64, Device::kCpu)) {}

  StepReport Step(std::int64_t step, std::int64_t total_steps, ThreadPool& pool) override {
    StepReport report;
    report.schedule = ScheduleFactor(settings_.schedule, step, total_steps);
    const GradientSummary summary = SummarizeGradients(gradients_, pool);
    report.gradient_norm = summary.norm;
    if (!summary.non_finite.empty()) {
      report.skipped = true;
      report.non_finite = summary.non_finite;
      return report;
    }
    if (settings_.clip_scope != CLIP_NONE)
      report.clip_factor = ClipFactor(summary.norm, settings_.clip_norm);
    if (muon_.has_value()) {
      muon_->StepUnguarded(pool, report.schedule,
                           settings_.clip_scope == CLIP_ALL ? report.clip_factor : 1.0);
    }
    AdamWHyperparameters hyper = settings_.adamw;
    hyper.learning_rate *= report.schedule;
    const std::int64_t update = ++*adamw_updates_.data<std::int64_t>();
    for (const AdamWParameter& p : adamw_) {
      AdamWStep<float>(hyper, update, report.clip_factor, Elements<float>(p.value),
                       Elements<float>(p.m), Elements<float>(p.v),
                       Elements<const float>(p.gradient), pool);
    }
    for (const BalancingParameter& p : balancing_) {
      const absl::Span<const float> loads = Elements<const float>(p.loads);
      UpdateSelectionBias(std::vector<std::int64_t>(loads.begin(), loads.end()),
                          static_cast<float>(settings_.balancing_rate), Elements<float>(p.bias));
    }
    return report;
  }

  const std::vector<ParameterAssignment>& assignments() const override { return assignments_; }

  std::vector<NamedTensor> State() const override {
    std::vector<NamedTensor> state;
    if (muon_.has_value()) state = muon_->State();
    for (const AdamWParameter& p : adamw_) {
      state.push_back({"adamw.m/" + p.name, p.m});
      state.push_back({"adamw.v/" + p.name, p.v});
    }
    state.push_back({"adamw.updates", adamw_updates_});
    std::sort(state.begin(), state.end(),
              [](const NamedTensor& a, const NamedTensor& b) { return a.name < b.name; });
    return state;
  }

 private:
  OptimizerSettings settings_;
  std::vector<ParameterAssignment> assignments_;
  std::vector<NamedGradient> gradients_;  // of every parameter that has one
  std::optional<Muon> muon_;              // absent where nothing is Muon's
  std::vector<AdamWParameter> adamw_;
  std::vector<BalancingParameter> balancing_;
  Tensor adamw_updates_;  // I64 [1]
};

}  // namespace

absl::StatusOr<std::unique_ptr<Optimizer>> Optimizer::Create(const OptimizerConfig& config,
                                                             std::vector<Parameter*> parameters) {
  HW_ASSIGN_OR_RETURN(OptimizerSettings settings, ResolveSettings(config));
  const std::vector<const Parameter*> views(parameters.begin(), parameters.end());
  HW_ASSIGN_OR_RETURN(std::vector<GroupedParameter> grouped,
                      AssignGroups(views, settings.granularity, settings.head_group_size));

  std::vector<ParameterAssignment> assignments;
  std::vector<NamedGradient> gradients;
  std::vector<MuonParameter> muon_parameters;
  std::vector<AdamWParameter> adamw;
  std::vector<BalancingParameter> balancing;
  for (std::size_t i = 0; i < views.size(); ++i) {
    const Parameter& p = *views[i];
    HW_RETURN_IF_ERROR(ValidateTensors(p));
    assignments.push_back(grouped[i].assignment);
    if (grouped[i].assignment.group == OptimizerGroup::kBalancing) {
      balancing.push_back({p.value, p.gradient});
      continue;
    }
    gradients.push_back({p.name, p.gradient.Rows<const float>()});
    if (grouped[i].assignment.group == OptimizerGroup::kAdamW) {
      adamw.push_back({p.name, p.value, p.gradient,
                       Tensor::Zeros(p.value.shape(), DType::kF32, Device::kCpu),
                       Tensor::Zeros(p.value.shape(), DType::kF32, Device::kCpu)});
    } else {
      muon_parameters.push_back({.name = p.name,
                                 .value = p.value.Rows<float>(),
                                 .gradient = p.gradient.Rows<const float>(),
                                 .blocks = std::move(grouped[i].blocks)});
    }
  }
  std::optional<Muon> muon;
  if (!muon_parameters.empty()) {
    HW_ASSIGN_OR_RETURN(muon, Muon::Create(settings.muon, std::move(muon_parameters)));
  }
  return std::make_unique<OptimizerImpl>(std::move(settings), std::move(assignments),
                                         std::move(gradients), std::move(muon), std::move(adamw),
                                         std::move(balancing));
}

}  // namespace headwise
