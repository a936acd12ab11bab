#include "core/parallel/layout_checker.h"

#include <algorithm>
#include <optional>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/check.h"
#include "core/parallel/layout_error.h"
#include "core/parallel/relaxed.h"

namespace headwise {

std::string LayoutMistake::ToString() const {
  return absl::StrCat(module.empty() ? "" : absl::StrCat(module, ": "), status.message());
}

LayoutChecker::Module::Module(LayoutChecker& checker, absl::string_view name)
    : checker_(checker), length_(checker.path_.size()) {
  checker_.path_ = checker_.Path(name);
}

LayoutChecker::Module::~Module() { checker_.path_.resize(length_); }

std::string LayoutChecker::Path(absl::string_view name) const {
  return path_.empty() ? std::string(name) : absl::StrCat(path_, ".", name);
}

void LayoutChecker::Note(const absl::Status& status) { NoteAt(path_, status); }

void LayoutChecker::NoteAt(const std::string& path, const absl::Status& status) {
  if (!status.ok()) mistakes_.push_back({path, status, consulted_.size()});
}

LayoutType LayoutChecker::Leaf(const std::string& path, const std::vector<Dim>& shape,
                               DType dtype) {
  consulted_.push_back({PlanPart::kLeaf, path, static_cast<int>(shape.size())});
  LayoutType leaf;
  const auto type = LayoutType::Declare(mesh_, shape, dtype, plan_.Leaf(path));
  if (type.ok()) {
    leaf = *type;
  } else {
    NoteAt(path, type.status());
  }
  const bool again = values_.contains(path);
  values_[path] = leaf;
  if (!again) {
    leaves_.emplace_back(path, leaf);
  } else {
    const auto at = std::find_if(leaves_.begin(), leaves_.end(),
                                 [&](const auto& one) { return one.first == path; });
    at->second = leaf;
  }
  return leaf;
}

LayoutType LayoutChecker::Parameter(absl::string_view name, const std::vector<Dim>& shape,
                                    DType dtype) {
  const std::string path = Path(name);
  HW_CHECK(!values_.contains(path)) << path << " is declared twice";
  LayoutType type = Leaf(path, shape, dtype);
  parameters_[path] = false;
  return type;
}

LayoutType LayoutChecker::Input(absl::string_view name, const std::vector<Dim>& shape,
                                DType dtype) {
  return Leaf(Path(name), shape, dtype);
}

LayoutType LayoutChecker::Take(const std::string& path, const Step& step, LayoutType x,
                               bool backward, std::vector<Taken>& taken) {
  auto next = headwise::Apply(step, x);
  if (!next.ok()) {
    NoteAt(absl::StrCat(path, backward ? " (backward)" : ""), next.status());
    if (relaxed_) next = ApplyRelaxed(step, x);
    if (!next.ok()) return LayoutType();
  }
  if (!next->defined()) return LayoutType();
  if (const std::int64_t bytes = BytesSent(step, x); bytes > 0) {
    communication_.push_back({path, step, backward, bytes});
  }
  taken.push_back({step, std::move(x), *next});
  return *std::move(next);
}

LayoutType LayoutChecker::Cross(absl::string_view boundary, const LayoutType& x,
                                std::vector<Taken>* taken) {
  const std::string path = Path(boundary);
  consulted_.push_back({PlanPart::kForward, path, x.defined() ? x.rank() : 0});
  std::vector<Taken>& crossed = crossed_[path];
  crossed.clear();
  LayoutType result = x;
  for (const Step& step : plan_.Forward(path)) {
    result = Take(path, step, std::move(result), backward_, crossed);
  }
  if (taken != nullptr) *taken = crossed;
  crossings_.push_back({path, backward_, x, result});
  return result;
}

LayoutType LayoutChecker::CrossBackward(absl::string_view boundary, const LayoutType& gradient,
                                        std::vector<Taken>* taken) {
  const std::string path = Path(boundary);
  consulted_.push_back({PlanPart::kBackward, path, gradient.defined() ? gradient.rank() : 0});
  const auto crossed = crossed_.find(path);
  HW_CHECK(crossed != crossed_.end()) << path << " was not crossed forward";
  std::vector<Step> steps;
  if (const auto set = plan_.Backward(path); set.has_value()) {
    steps = *set;
  } else {
    // Not all of them were taken: the forward has noted why.
    if (crossed->second.size() != plan_.Forward(path).size()) return LayoutType();
    for (const Taken& one : crossed->second) {
      steps.insert(steps.begin(), BackwardOf(one.step, one.from));
    }
  }
  std::vector<Taken> back;
  LayoutType result = gradient;
  for (const Step& step : steps) result = Take(path, step, std::move(result), true, back);
  if (taken != nullptr) *taken = std::move(back);
  crossings_.push_back({path, true, gradient, result});
  return result;
}

void LayoutChecker::BeginPass() {
  backward_ = false;
  if (!std::exchange(passed_, true)) return;
  crossed_.clear();
  consulted_.clear();
  communication_.clear();
  crossings_.clear();
  gradient_plan_ = GradientPlan();
  for (auto& [path, came] : parameters_) came = false;
}

void LayoutChecker::ParameterGradient(absl::string_view name, const LayoutType& gradient) {
  const std::string path = Path(name);
  const auto parameter = parameters_.find(path);
  HW_CHECK(parameter != parameters_.end()) << path << " is no parameter";
  parameter->second = true;
  if (!gradient.defined()) return;
  consulted_.push_back({PlanPart::kReduction, path, gradient.rank()});
  LayoutType as_derived = gradient;
  if (const absl::Status dual = CheckDual(gradient, values_[path]); !dual.ok()) {
    NoteAt(path, dual);
    if (!relaxed_) return;
    as_derived = DualType(values_[path]);
  }
  std::vector<Step> steps;
  if (const auto set = plan_.Reduction(path); set.has_value()) {
    steps = *set;
  } else {
    const auto derived = DeriveReduction(as_derived);
    if (!derived.ok()) return NoteAt(path, derived.status());
    steps = *derived;
  }
  const absl::Status added = gradient_plan_.Add(path, as_derived, steps);
  NoteAt(path, added);
  if (!added.ok() && relaxed_) gradient_plan_.AddRelaxed(path, as_derived, steps);
}

void LayoutChecker::InputGradient(absl::string_view name, const LayoutType& gradient) {
  const std::string path = Path(name);
  const auto value = values_.find(path);
  HW_CHECK(value != values_.end()) << path << " is no leaf";
  if (const absl::Status dual = CheckDual(gradient, value->second); !dual.ok()) {
    NoteAt(path, dual);
  }
}

void LayoutChecker::Finish() {
  for (const auto& [path, came] : parameters_) {
    if (came) continue;
    NoteAt(path, absl::FailedPreconditionError("no gradient came for this parameter"));
  }
}

absl::Status LayoutChecker::status() const {
  if (mistakes_.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(mistakes_[0].ToString());
}

std::int64_t LayoutChecker::bytes_sent() const {
  std::int64_t bytes = 0;
  for (const Communication& one : communication_) bytes += one.bytes;
  for (const PlannedGradient& one : gradient_plan_.gradients()) bytes += one.bytes_sent;
  return bytes;
}

// --- fixes ---

namespace {

// Entries asked for before the mistake that are tried.
constexpr std::size_t kNearby = 16;

// "layers.3.ffn.in": "layers.*.ffn.in".
std::string Generalise(absl::string_view path) {
  std::vector<std::string> parts = absl::StrSplit(path, '.');
  for (std::string& part : parts) {
    if (!part.empty() && part.find_first_not_of("0123456789") == std::string::npos) part = "*";
  }
  return absl::StrJoin(parts, ".");
}

// Of those that were asked for long before, as a model's parameters are: leaves of the module where
// the mistake is, and those that belong to no module, such as inputs.
bool NearLeaf(const LayoutChecker& failed, const LayoutChecker::Consulted& entry) {
  if (entry.part != PlanPart::kLeaf) return false;
  const std::string& module = failed.mistakes()[0].module;
  return entry.name.find('.') == std::string::npos ||
         absl::StartsWith(entry.name, absl::StrCat(module, "."));
}

std::vector<std::string> AxisNames(const LayoutChecker& failed, MeshView view) {
  std::vector<std::string> names;
  for (const MeshAxis& axis : failed.mesh().Axes(view)) names.push_back(axis.name);
  return names;
}

void AddLeafEdits(const LayoutChecker& failed, const LayoutChecker::Consulted& entry,
                  std::vector<PlanEntry>& edits) {
  const LayoutSpec spec = failed.plan().Leaf(entry.name);
  for (const std::string& axis : AxisNames(failed, spec.view)) {
    std::vector<AxisSpec> choices = {{.axis = axis, .type = AxisType::kReplicate},
                                     {.axis = axis, .type = AxisType::kInvariant}};
    for (int dim = 0; dim < entry.rank; ++dim) {
      choices.push_back({.axis = axis, .type = AxisType::kShard, .dim = dim});
    }
    for (const AxisSpec& choice : choices) {
      LayoutSpec changed = spec;
      const auto at = std::find_if(changed.axes.begin(), changed.axes.end(),
                                   [&](const AxisSpec& one) { return one.axis == axis; });
      if (at == changed.axes.end()) {
        changed.axes.push_back(choice);
      } else {
        *at = choice;
      }
      if (changed == spec) continue;
      edits.push_back({.part = PlanPart::kLeaf, .name = Generalise(entry.name), .spec = changed});
    }
  }
}

// Steps that may be right somewhere, on one axis.
std::vector<Step> StepsOn(const std::string& axis, int rank) {
  std::vector<Step> steps = {
      {.kind = StepKind::kConvert, .axis = axis, .to = AxisType::kReplicate},
      {.kind = StepKind::kConvert, .axis = axis, .to = AxisType::kPartial},
      {.kind = StepKind::kAllReduce, .axis = axis, .to = AxisType::kInvariant},
      {.kind = StepKind::kAllReduce, .axis = axis, .to = AxisType::kReplicate},
      {.kind = StepKind::kAllGather, .axis = axis, .to = AxisType::kReplicate},
      {.kind = StepKind::kAllGather, .axis = axis, .to = AxisType::kInvariant}};
  for (int dim = 0; dim < rank; ++dim) {
    for (const StepKind kind :
         {StepKind::kConvert, StepKind::kReduceScatter, StepKind::kAllToAll}) {
      steps.push_back({.kind = kind, .axis = axis, .to = AxisType::kShard, .dim = dim});
    }
  }
  for (Step& step : steps) step.reduce_in = DType::kF32;
  return steps;
}

void AddStepEdits(const LayoutChecker& failed, const LayoutChecker::Consulted& entry,
                  const std::vector<Step>& now, std::vector<PlanEntry>& edits) {
  const auto add = [&](std::vector<Step> steps) {
    edits.push_back(
        {.part = entry.part, .name = Generalise(entry.name), .steps = std::move(steps)});
  };
  for (std::size_t i = 0; i < now.size(); ++i) {
    std::vector<Step> without = now;
    without.erase(without.begin() + static_cast<std::ptrdiff_t>(i));
    add(std::move(without));
  }
  for (const std::string& axis : AxisNames(failed, MeshView::kDense)) {
    for (const Step& step : StepsOn(axis, entry.rank)) {
      std::vector<Step> more = now;
      more.push_back(step);
      add(std::move(more));
      for (std::size_t i = 0; i < now.size(); ++i) {
        std::vector<Step> other = now;
        other[i] = step;
        add(std::move(other));
      }
    }
  }
}

}  // namespace

std::string VerifiedFix::ToString() const {
  return absl::StrCat(edit.ToString(), " (", bytes_sent, " bytes a step)");
}

std::vector<VerifiedFix> FindFixes(const LayoutChecker& failed,
                                   absl::FunctionRef<void(LayoutChecker&)> model,
                                   std::size_t most) {
  std::vector<VerifiedFix> fixes;
  if (failed.mistakes().empty()) return fixes;
  std::vector<PlanEntry> edits;
  std::vector<std::string> tried;
  for (std::size_t i = failed.mistakes()[0].consulted; i > 0; --i) {
    const LayoutChecker::Consulted& entry = failed.consulted()[i - 1];
    if (tried.size() >= kNearby && !NearLeaf(failed, entry)) continue;
    const std::string key = absl::StrCat(Name(entry.part), Generalise(entry.name));
    if (std::find(tried.begin(), tried.end(), key) != tried.end()) continue;
    tried.push_back(key);
    const auto derived = [&] {
      edits.push_back({.part = entry.part, .name = Generalise(entry.name), .remove = true});
    };
    switch (entry.part) {
      case PlanPart::kLeaf:
        AddLeafEdits(failed, entry, edits);
        break;
      case PlanPart::kForward:
        AddStepEdits(failed, entry, failed.plan().Forward(entry.name), edits);
        break;
      case PlanPart::kBackward:
        if (failed.plan().Backward(entry.name).has_value()) derived();
        break;
      case PlanPart::kReduction:
        if (failed.plan().Reduction(entry.name).has_value()) derived();
        break;
    }
  }
  std::set<std::string> seen;
  for (PlanEntry& edit : edits) {
    if (!seen.insert(edit.ToString()).second) continue;
    LayoutPlan plan = failed.plan();
    plan.Apply(edit);
    LayoutChecker again(failed.mesh(), std::move(plan));
    model(again);
    if (again.status().ok()) fixes.push_back({std::move(edit), again.bytes_sent()});
  }
  std::stable_sort(fixes.begin(), fixes.end(), [](const VerifiedFix& a, const VerifiedFix& b) {
    return a.bytes_sent < b.bytes_sent;
  });
  if (fixes.size() > most) fixes.resize(most);
  return fixes;
}

}  // namespace headwise
