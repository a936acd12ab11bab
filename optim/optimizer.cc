#include "optim/optimizer.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/parallel/tensor_layout.h"
#include "kernels/adamw/adamw.h"
#include "kernels/common/float_environment.h"
#include "kernels/gradient_norm/gradient_norm.h"
#include "kernels/moe/balancing.h"
#include "optim/axis_groups.h"
#include "optim/gathered_muon.h"
#include "optim/muon.h"
#include "optim/parameter_share.h"
#include "optim/rank_plan.h"
#include "optim/settings.h"
#include "optim/shard_norm.h"

namespace headwise {
namespace {

template <typename T>
absl::Span<T> Elements(const Tensor& tensor) {
  return absl::Span<T>(tensor.data<std::remove_const_t<T>>(),
                       static_cast<std::size_t>(tensor.size()));
}

// State of a parameter, with its layout.
Tensor ZerosLike(const Tensor& value) {
  return TensorLayout::Attach(Tensor::Zeros(value.shape(), DType::kF32, Device::kCpu),
                              LayoutOf(value));
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

// What several ranks do together. Absent on one.
struct OnRanks {
  explicit OnRanks(const MeshRanks& ranks) : axes(ranks) {}

  AxisGroups axes;
  std::optional<ShardNorm> norm;
  std::optional<GatheredMuon> muon;
};

// The momentum of experts gets its third dimension back: a layout is of the parameter's shape.
Tensor WithLayout(const Tensor& state, const Tensor& value) {
  const LayoutType layout = LayoutOf(value);
  return layout.defined() ? TensorLayout::Attach(state.View(value.shape()), layout) : state;
}

class OptimizerImpl final : public Optimizer {
 public:
  // A model's parameters, sorted into what steps them.
  struct Parts {
    std::vector<ParameterAssignment> assignments;
    std::vector<NamedGradient> gradients;  // of every parameter that has one
    std::optional<Muon> muon;              // absent where nothing is Muon's
    std::vector<AdamWParameter> adamw;
    std::vector<BalancingParameter> balancing;
    std::unique_ptr<OnRanks> on_ranks;
    std::map<std::string, Tensor> muon_values;  // on ranks: by the name of their momentum
  };

  OptimizerImpl(OptimizerSettings settings, Parts parts, AdamWStepFunction adamw_step)
      : settings_(std::move(settings)),
        parts_(std::move(parts)),
        adamw_step_(adamw_step),
        adamw_updates_(Tensor::Zeros({1}, DType::kI64, Device::kCpu)) {}

  StepReport Step(std::int64_t step, std::int64_t total_steps, ThreadPool& pool) override {
    StepReport report;
    report.status = TryStep(step, total_steps, pool, report);
    return report;
  }

  const std::vector<ParameterAssignment>& assignments() const override {
    return parts_.assignments;
  }

  std::vector<NamedTensor> State() const override {
    std::vector<NamedTensor> state;
    if (parts_.muon.has_value()) state = parts_.muon->State();
    if (parts_.on_ranks != nullptr) {
      const std::vector<NamedTensor> gathered = parts_.on_ranks->muon->State();
      state.insert(state.end(), gathered.begin(), gathered.end());
      for (NamedTensor& s : state) s.tensor = WithLayout(s.tensor, parts_.muon_values.at(s.name));
    }
    for (const AdamWParameter& p : parts_.adamw) {
      state.push_back({AdamWMName(p.name), p.m});
      state.push_back({AdamWVName(p.name), p.v});
    }
    state.push_back({kAdamWUpdatesName, adamw_updates_});
    std::sort(state.begin(), state.end(),
              [](const NamedTensor& a, const NamedTensor& b) { return a.name < b.name; });
    return state;
  }

 private:
  absl::Status TryStep(std::int64_t step, std::int64_t total_steps, ThreadPool& pool,
                       StepReport& report) {
    report.schedule = ScheduleFactor(settings_.schedule, step, total_steps);
    GradientSummary summary;
    if (parts_.on_ranks != nullptr) {
      HW_ASSIGN_OR_RETURN(summary, parts_.on_ranks->norm->Summarize(pool));
    } else {
      summary = SummarizeGradients(parts_.gradients, pool);
    }
    report.gradient_norm = summary.norm;
    if (!summary.non_finite.empty()) {
      report.skipped = true;
      report.non_finite = summary.non_finite;
      return absl::OkStatus();
    }
    if (settings_.clip_scope != CLIP_NONE)
      report.clip_factor = ClipFactor(summary.norm, settings_.clip_norm);
    const double muon_scale = settings_.clip_scope == CLIP_ALL ? report.clip_factor : 1.0;
    if (parts_.muon.has_value()) parts_.muon->StepUnguarded(pool, report.schedule, muon_scale);
    if (parts_.on_ranks != nullptr) {
      HW_RETURN_IF_ERROR(parts_.on_ranks->muon->Step(pool, report.schedule, muon_scale));
    }
    AdamWHyperparameters hyper = settings_.adamw;
    hyper.learning_rate *= report.schedule;
    const std::int64_t update = ++*adamw_updates_.data<std::int64_t>();
    for (const AdamWParameter& p : parts_.adamw) {
      adamw_step_(hyper, update, report.clip_factor, Elements<float>(p.value), Elements<float>(p.m),
                  Elements<float>(p.v), Elements<const float>(p.gradient), pool);
    }
    for (const BalancingParameter& p : parts_.balancing) {
      const absl::Span<const float> loads = Elements<const float>(p.loads);
      UpdateSelectionBias(std::vector<std::int64_t>(loads.begin(), loads.end()),
                          static_cast<float>(settings_.balancing_rate), Elements<float>(p.bias));
    }
    return absl::OkStatus();
  }

  OptimizerSettings settings_;
  Parts parts_;
  AdamWStepFunction adamw_step_;
  Tensor adamw_updates_;  // I64 [1]
};

// Layouts and ranks must be of the same mesh; where nothing is on more than one rank there may be
// no ranks.
absl::Status ValidateMesh(const OptimizerPlan& plan, const MeshRanks* ranks) {
  if (!plan.mesh.has_value()) return absl::OkStatus();
  if (ranks == nullptr && plan.mesh->size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat("the parameters are shares on the mesh ",
                                                   plan.mesh->ToString(),
                                                   "; the optimizer needs its ranks to step them"));
  }
  if (ranks != nullptr && !(*plan.mesh == ranks->mesh())) {
    return absl::InvalidArgumentError(absl::StrCat("the parameters are on the mesh ",
                                                   plan.mesh->ToString(), ", the ranks on ",
                                                   ranks->mesh().ToString()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Optimizer>> Optimizer::Create(const OptimizerConfig& config,
                                                             std::vector<Parameter*> parameters,
                                                             const MeshRanks* ranks,
                                                             const OptimizerKernels& kernels) {
  HW_ASSIGN_OR_RETURN(OptimizerSettings settings, ResolveSettings(config));
  HW_RETURN_IF_ERROR(CheckComputeMode(config, kernels.tensor_core_muon_step != nullptr,
                                      ranks == nullptr ? 1 : ranks->mesh().size()));
  const std::vector<const Parameter*> views(parameters.begin(), parameters.end());
  HW_ASSIGN_OR_RETURN(OptimizerPlan plan,
                      PlanOptimizer(views, settings.granularity, settings.head_group_size,
                                    ranks == nullptr ? 0 : ranks->rank()));
  HW_RETURN_IF_ERROR(ValidateMesh(plan, ranks));
  HW_RETURN_IF_ERROR(ValidateTensors(views, Device::kCpu));

  OptimizerImpl::Parts parts;
  std::vector<ParameterShare> shares;  // of `gradients`
  for (std::size_t i = 0; i < views.size(); ++i) {
    const Parameter& p = *views[i];
    const ParameterAssignment& assignment =
        parts.assignments.emplace_back(plan.grouped[i].assignment);
    if (assignment.group == OptimizerGroup::kBalancing) {
      parts.balancing.push_back({p.value, p.gradient});
      continue;
    }
    parts.gradients.push_back({p.name, p.gradient.Rows<const float>()});
    shares.push_back(plan.shares[i]);
    if (assignment.group == OptimizerGroup::kAdamW) {
      parts.adamw.push_back({p.name, p.value, p.gradient, ZerosLike(p.value), ZerosLike(p.value)});
    }
  }
  std::vector<MuonParameter> whole_blocks;
  std::vector<GatheredParameter> muons;
  for (std::size_t i = 0; i < plan.muon.size(); ++i) {
    const Parameter& p = *views[plan.muon[i]];
    muons.push_back({p.name, p.value.Rows<float>(), p.gradient.Rows<const float>()});
    parts.muon_values[MomentumName(p.name)] = p.value;
    if (plan.cut.local[i].has_value()) {
      whole_blocks.push_back({.name = p.name,
                              .value = muons.back().value,
                              .gradient = muons.back().gradient,
                              .blocks = std::move(plan.cut.local[i])});
    }
  }
  if (!whole_blocks.empty()) {
    HW_ASSIGN_OR_RETURN(parts.muon, Muon::Create(settings.muon, std::move(whole_blocks),
                                                 config.muon().compute_mode() == TENSOR_CORE
                                                     ? kernels.tensor_core_muon_step
                                                     : kernels.muon_step));
  }
  if (ranks != nullptr) {
    HW_RETURN_IF_ERROR(CheckFloatEnvironment());
    parts.on_ranks = std::make_unique<OnRanks>(*ranks);
    HW_ASSIGN_OR_RETURN(parts.on_ranks->norm, ShardNorm::Create(parts.gradients, std::move(shares),
                                                                parts.on_ranks->axes));
    HW_ASSIGN_OR_RETURN(parts.on_ranks->muon,
                        GatheredMuon::Create(settings.muon, std::move(muons),
                                             std::move(plan.cut.groups), parts.on_ranks->axes));
  }
  return std::make_unique<OptimizerImpl>(std::move(settings), std::move(parts), kernels.adamw_step);
}

}  // namespace headwise
