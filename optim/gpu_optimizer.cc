#include "optim/gpu_optimizer.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/dtype/dtype.h"
#include "core/tensor/row_span.h"
#include "core/tensor/tensor.h"
#include "kernels/adamw/adamw.h"
#include "kernels/adamw/cuda.h"
#include "kernels/common/float_environment.h"
#include "kernels/gradient_norm/cuda.h"
#include "kernels/muon_step/cuda.h"
#include "optim/rank_plan.h"
#include "optim/schedule.h"
#include "optim/settings.h"

namespace headwise {
namespace {

// GradientDecision::skip of a step that was prepared and did not run.
constexpr std::uint32_t kNotDecided = 2;

// In device memory. Prepare() writes all of it, DecideStep() a part of the first two and the third.
struct Words {
  MuonStepScalars muon;
  AdamWFactors<float> adamw;
  GradientDecision decision;
};

template <typename T>
absl::Span<T> Elements(const Tensor& tensor) {
  return absl::Span<T>(tensor.data<std::remove_const_t<T>>(),
                       static_cast<std::size_t>(tensor.size()));
}

absl::StatusOr<Tensor> ZerosOnGpu(Gpu& gpu, Shape shape) {
  const std::int64_t bytes = NumElements(shape) * SizeOf(DType::kF32);
  HW_ASSIGN_OR_RETURN(std::shared_ptr<void> storage, gpu.Allocate(bytes));
  HW_RETURN_IF_ERROR(gpu.Fill(storage.get(), 0, bytes));
  return Tensor::FromStorage(std::move(storage), std::move(shape), DType::kF32, Device::kCuda);
}

absl::StatusOr<std::shared_ptr<std::byte>> UploadTable(Gpu& gpu,
                                                       absl::Span<const std::byte> table) {
  const auto bytes = static_cast<std::int64_t>(table.size());
  HW_ASSIGN_OR_RETURN(const std::shared_ptr<void> copy, gpu.Allocate(bytes));
  HW_RETURN_IF_ERROR(gpu.Upload(copy.get(), table.data(), bytes));
  return std::static_pointer_cast<std::byte>(copy);
}

struct BalancingParameter {
  Tensor bias, loads;
};

// What Create() makes; memory is the GPU's.
struct Parts {
  std::vector<ParameterAssignment> assignments;
  std::vector<std::string> names;  // of the gradients in the norm, ascending
  std::optional<GradientNormPlan> norm;
  std::optional<MuonStepPlan> muon;
  std::optional<AdamWPlan> adamw;
  std::vector<BalancingParameter> balancing;
  std::vector<NamedTensor> state;  // but for the number of updates
  std::shared_ptr<std::byte> norm_table, muon_table, adamw_table;
  std::shared_ptr<std::byte> scratch;  // of the norm, then of Muon
  std::shared_ptr<Words> words;
};

class GpuOptimizerImpl final : public GpuOptimizer {
 public:
  GpuOptimizerImpl(OptimizerSettings settings, Parts parts, Gpu& gpu,
                   const KernelLaunchers& launchers)
      : settings_(std::move(settings)),
        parts_(std::move(parts)),
        gpu_(gpu),
        launchers_(launchers) {}

  absl::Status Prepare(std::int64_t step, std::int64_t total_steps) override {
    HW_CHECK(!prepared_.has_value()) << "ReadReport() first";
    const double schedule = ScheduleFactor(settings_.schedule, step, total_steps);
    AdamWHyperparameters adamw = settings_.adamw;
    adamw.learning_rate *= schedule;
    const Words words = {
        .muon = {.learning_rate = settings_.muon.learning_rate * schedule},
        .adamw = MakeAdamWFactors<float>(adamw, updates_ + 1, /*gradient_scale=*/1.0),
        .decision = {.skip = kNotDecided}};
    HW_RETURN_IF_ERROR(gpu_.Upload(parts_.words.get(), &words, sizeof(words)));
    prepared_ = schedule;
    return absl::OkStatus();
  }

  absl::Status Enqueue() override {
    Words* const words = parts_.words.get();
    const bool clips = settings_.clip_scope != CLIP_NONE;
    HW_RETURN_IF_ERROR(launchers_.DecideStep(
        *parts_.norm,
        {.stream = gpu_.stream(),
         .table = parts_.norm_table.get(),
         .scratch = parts_.scratch.get(),
         .clip_norm = clips ? settings_.clip_norm : 0.0,
         .decision = &words->decision,
         .adamw_scale = &words->adamw.gradient_scale,
         .adamw_skip = &words->adamw.skip,
         .muon_scale = settings_.clip_scope == CLIP_ALL ? &words->muon.gradient_scale : nullptr,
         .muon_skip = &words->muon.skip}));
    HW_RETURN_IF_ERROR(launchers_.MuonStep(*parts_.muon, {.stream = gpu_.stream(),
                                                          .table = parts_.muon_table.get(),
                                                          .scalars = &words->muon,
                                                          .scratch = parts_.scratch.get()}));
    HW_RETURN_IF_ERROR(launchers_.AdamWStep(
        *parts_.adamw,
        {.stream = gpu_.stream(), .table = parts_.adamw_table.get(), .factors = &words->adamw}));
    for (const BalancingParameter& p : parts_.balancing) {
      HW_RETURN_IF_ERROR(launchers_.UpdateSelectionBias(
          Elements<const float>(p.loads), static_cast<float>(settings_.balancing_rate),
          &words->decision.skip, Elements<float>(p.bias), gpu_.stream()));
    }
    return absl::OkStatus();
  }

  int launches() const override {
    return parts_.norm->launches() + parts_.muon->launches() + parts_.adamw->launches() +
           static_cast<int>(parts_.balancing.size());
  }

  absl::StatusOr<StepReport> ReadReport() override {
    HW_CHECK(prepared_.has_value()) << "no step was prepared";
    GradientDecision decision;
    HW_RETURN_IF_ERROR(gpu_.Download(&decision, &parts_.words->decision, sizeof(decision)));
    if (decision.skip == kNotDecided) {
      return absl::FailedPreconditionError(
          "no step ran since Prepare(): Enqueue() it, or launch a graph of it, before "
          "ReadReport()");
    }
    StepReport report = {.gradient_norm = decision.norm,
                         .schedule = *std::exchange(prepared_, std::nullopt),
                         .clip_factor = decision.clip_factor,
                         .skipped = decision.skip != 0};
    if (report.skipped) {
      report.non_finite = parts_.names.at(decision.first_unusable);
    } else {
      ++updates_;
    }
    return report;
  }

  const std::vector<ParameterAssignment>& assignments() const override {
    return parts_.assignments;
  }

  absl::StatusOr<std::vector<NamedTensor>> State() const override {
    std::vector<NamedTensor> state;
    for (const NamedTensor& s : parts_.state) {
      const Tensor copy = Tensor::Empty(s.tensor.shape(), s.tensor.dtype(), Device::kCpu);
      HW_RETURN_IF_ERROR(gpu_.Download(copy.raw_data(), s.tensor.raw_data(), copy.bytes()));
      state.push_back({s.name, copy});
    }
    const Tensor updates = Tensor::Empty({1}, DType::kI64, Device::kCpu);
    *updates.data<std::int64_t>() = updates_;
    state.push_back({kAdamWUpdatesName, updates});
    std::sort(state.begin(), state.end(),
              [](const NamedTensor& a, const NamedTensor& b) { return a.name < b.name; });
    return state;
  }

  absl::Status Load(absl::Span<const NamedTensor> state) override {
    HW_CHECK(!prepared_.has_value()) << "ReadReport() first";
    std::map<std::string, Tensor> given;
    for (const NamedTensor& s : state) {
      if (!given.emplace(s.name, s.tensor).second) {
        return absl::InvalidArgumentError(absl::StrCat("optimizer state: two tensors ", s.name));
      }
    }
    const auto take = [&](const std::string& name, const Shape& shape,
                          DType dtype) -> absl::StatusOr<Tensor> {
      const auto it = given.find(name);
      if (it == given.end()) {
        return absl::InvalidArgumentError(absl::StrCat("optimizer state: ", name, " is missing"));
      }
      const Tensor tensor = it->second;
      if (!tensor.defined() || tensor.device() != Device::kCpu || tensor.dtype() != dtype ||
          tensor.shape() != shape) {
        return absl::InvalidArgumentError(absl::StrCat(
            "optimizer state: ", name, " must be ", Name(dtype), ToString(shape), " on ",
            Name(Device::kCpu), ", found ",
            tensor.defined() ? absl::StrCat(Name(tensor.dtype()), ToString(tensor.shape()), " on ",
                                            Name(tensor.device()))
                             : "nothing"));
      }
      given.erase(it);
      return tensor;
    };
    HW_ASSIGN_OR_RETURN(const Tensor updates, take(kAdamWUpdatesName, {1}, DType::kI64));
    if (*updates.data<std::int64_t>() < 0) {
      return absl::InvalidArgumentError(absl::StrCat("optimizer state: ", kAdamWUpdatesName,
                                                     " must be 0 or more, found ",
                                                     *updates.data<std::int64_t>()));
    }
    std::vector<Tensor> tensors;  // of parts_.state
    for (const NamedTensor& s : parts_.state) {
      HW_ASSIGN_OR_RETURN(const Tensor tensor, take(s.name, s.tensor.shape(), s.tensor.dtype()));
      tensors.push_back(tensor);
    }
    if (!given.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("optimizer state: ", given.begin()->first, " belongs to no parameter"));
    }
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      HW_RETURN_IF_ERROR(gpu_.Upload(parts_.state[i].tensor.raw_data(), tensors[i].raw_data(),
                                     tensors[i].bytes()));
    }
    updates_ = *updates.data<std::int64_t>();
    return absl::OkStatus();
  }

 private:
  OptimizerSettings settings_;
  Parts parts_;
  Gpu& gpu_;
  const KernelLaunchers& launchers_;
  std::int64_t updates_ = 0;        // steps not skipped
  std::optional<double> prepared_;  // the schedule's factor of the step whose report is not read
};

// The plan of the norm, and the gradients' names in its order.
absl::Status PlanNorm(std::vector<const Parameter*> parameters, Parts& parts) {
  std::sort(parameters.begin(), parameters.end(),
            [](const Parameter* a, const Parameter* b) { return a->name < b->name; });
  std::vector<RowSpan<const float>> gradients;
  for (const Parameter* p : parameters) {
    parts.names.push_back(p->name);
    gradients.push_back(p->gradient.Rows<const float>());
  }
  HW_ASSIGN_OR_RETURN(parts.norm, GradientNormPlan::Create(gradients));
  return absl::OkStatus();
}

absl::Status PlanMuon(const OptimizerSettings& settings, const OptimizerPlan& plan,
                      absl::Span<const Parameter* const> parameters, Gpu& gpu, Parts& parts) {
  std::vector<MuonWeight<float>> weights;
  for (std::size_t i = 0; i < plan.muon.size(); ++i) {
    const Parameter& p = *parameters[plan.muon[i]];
    HW_CHECK(plan.cut.local[i].has_value()) << p.name;  // whole on one rank
    const RowSpan<float> value = p.value.Rows<float>();
    HW_ASSIGN_OR_RETURN(const Tensor momentum, ZerosOnGpu(gpu, {value.rows, value.width}));
    parts.state.push_back({MomentumName(p.name), momentum});
    weights.push_back({.weight = value,
                       .momentum = momentum.Rows<float>(),
                       .gradient = p.gradient.Rows<const float>(),
                       .blocks = &*plan.cut.local[i]});
  }
  HW_ASSIGN_OR_RETURN(parts.muon,
                      MuonStepPlan::Create<float>(settings.muon, weights, settings.muon_mode));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<GpuOptimizer>> GpuOptimizer::Create(
    const OptimizerConfig& config, std::vector<Parameter*> parameters, Gpu& gpu,
    const KernelLaunchers& launchers) {
  HW_RETURN_IF_ERROR(CheckFloatEnvironment());
  HW_ASSIGN_OR_RETURN(OptimizerSettings settings, ResolveSettings(config));
  const std::vector<const Parameter*> views(parameters.begin(), parameters.end());
  HW_ASSIGN_OR_RETURN(
      const OptimizerPlan plan,
      PlanOptimizer(views, settings.granularity, settings.head_group_size, /*rank=*/0));
  if (plan.mesh.has_value() && plan.mesh->size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("the parameters are shares on the mesh ", plan.mesh->ToString(),
                     "; the optimizer on a GPU steps whole parameters"));
  }
  HW_RETURN_IF_ERROR(ValidateTensors(views, Device::kCuda));

  Parts parts;
  std::vector<const Parameter*> with_gradient;
  std::vector<AdamWTensors> adamw;
  for (std::size_t i = 0; i < views.size(); ++i) {
    const Parameter& p = *views[i];
    const ParameterAssignment& assignment =
        parts.assignments.emplace_back(plan.grouped[i].assignment);
    if (assignment.group == OptimizerGroup::kBalancing) {
      parts.balancing.push_back({p.value, p.gradient});
      continue;
    }
    with_gradient.push_back(&p);
    if (assignment.group != OptimizerGroup::kAdamW) continue;
    HW_ASSIGN_OR_RETURN(const Tensor m, ZerosOnGpu(gpu, p.value.shape()));
    HW_ASSIGN_OR_RETURN(const Tensor v, ZerosOnGpu(gpu, p.value.shape()));
    adamw.push_back({.weight = Elements<float>(p.value),
                     .m = Elements<float>(m),
                     .v = Elements<float>(v),
                     .gradient = Elements<const float>(p.gradient)});
    parts.state.push_back({AdamWMName(p.name), m});
    parts.state.push_back({AdamWVName(p.name), v});
  }
  HW_RETURN_IF_ERROR(PlanNorm(std::move(with_gradient), parts));
  HW_RETURN_IF_ERROR(PlanMuon(settings, plan, views, gpu, parts));
  HW_ASSIGN_OR_RETURN(parts.adamw, AdamWPlan::Create(adamw));
  HW_ASSIGN_OR_RETURN(parts.norm_table, UploadTable(gpu, parts.norm->table()));
  HW_ASSIGN_OR_RETURN(parts.muon_table, UploadTable(gpu, parts.muon->table()));
  HW_ASSIGN_OR_RETURN(parts.adamw_table, UploadTable(gpu, parts.adamw->table()));
  HW_ASSIGN_OR_RETURN(
      const std::shared_ptr<void> scratch,
      gpu.Allocate(std::max(parts.norm->scratch_bytes(), parts.muon->scratch_bytes())));
  parts.scratch = std::static_pointer_cast<std::byte>(scratch);
  HW_ASSIGN_OR_RETURN(const std::shared_ptr<void> words, gpu.Allocate(sizeof(Words)));
  parts.words = std::static_pointer_cast<Words>(words);
  return std::make_unique<GpuOptimizerImpl>(std::move(settings), std::move(parts), gpu, launchers);
}

}  // namespace headwise
