#include "model/test_mutants.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <utility>

#include "core/base/check.h"
#include "core/parallel/gradient_plan.h"
#include "core/parallel/layout_type.h"
#include "core/parallel/mesh.h"
#include "core/parallel/step.h"

namespace headwise {
namespace {

using enum AxisType;

std::vector<std::string> AxisNames(const Mesh& mesh, MeshView view) {
  std::vector<std::string> names;
  for (const MeshAxis& axis : mesh.Axes(view)) names.push_back(axis.name);
  return names;
}

// Every step that the table of core/parallel/step.h has a row for, whatever x's types are.
std::vector<Step> AllSteps(const LayoutType& x) {
  std::vector<Step> steps;
  for (const std::string& axis : AxisNames(x.mesh(), x.view())) {
    const auto add = [&](StepKind kind, AxisType to, int dim = 0) {
      steps.push_back({.kind = kind, .axis = axis, .to = to, .dim = dim, .reduce_in = DType::kF32});
    };
    for (const StepKind kind : {StepKind::kAllReduce, StepKind::kAllGather}) {
      for (const AxisType to : {kReplicate, kInvariant}) add(kind, to);
    }
    add(StepKind::kConvert, kReplicate);
    add(StepKind::kConvert, kPartial);
    add(StepKind::kReinterpret, kPartial);
    add(StepKind::kReinterpret, kVarying);
    for (int dim = 0; dim < x.rank(); ++dim) {
      for (const StepKind kind :
           {StepKind::kReduceScatter, StepKind::kAllToAll, StepKind::kConvert}) {
        add(kind, kShard, dim);
      }
    }
  }
  steps.push_back({.kind = StepKind::kReinterpretMesh, .view = MeshView::kExpert});
  steps.push_back({.kind = StepKind::kReinterpretMesh, .view = MeshView::kDense});
  return steps;
}

class Generator {
 public:
  explicit Generator(const LayoutChecker& pass) : pass_(pass) {
    for (const LayoutChecker::Crossing& crossing : pass.crossings()) {
      crossed_.emplace(crossing.boundary, crossing.before);
    }
  }

  std::vector<Mutant> Run() {
    std::set<std::pair<PlanPart, std::string>> seen;
    for (const LayoutChecker::Consulted& entry : pass_.consulted()) {
      name_ = LayerPattern(entry.name);
      if (!seen.emplace(entry.part, name_).second) continue;
      part_ = entry.part;
      switch (entry.part) {
        case PlanPart::kLeaf:
          Leaf(entry.name);
          break;
        case PlanPart::kForward:
          Steps(pass_.plan().Forward(entry.name), crossed_.at(entry.name));
          break;
        case PlanPart::kBackward:
          Backward(entry.name);
          break;
        case PlanPart::kReduction:
          Reduction(entry.name);
          break;
      }
    }
    return std::move(mutants_);
  }

 private:
  // "layers.1.ffn.in": "layers.*.ffn.in".
  static std::string LayerPattern(const std::string& path) {
    constexpr char kLayers[] = "layers.";
    if (path.rfind(kLayers, 0) != 0) return path;
    return std::string(kLayers) + "*" + path.substr(path.find('.', sizeof(kLayers)));
  }

  void Add(MutantKind kind, std::vector<Step> steps) {
    mutants_.push_back(
        {.kind = kind, .edit = {.part = part_, .name = name_, .steps = std::move(steps)}});
  }

  // --- leaves ---

  void AddLeaf(MutantKind kind, LayoutSpec spec) {
    mutants_.push_back(
        {.kind = kind, .edit = {.part = part_, .name = name_, .spec = std::move(spec)}});
  }

  // The spec with every axis of the mesh by its own name.
  LayoutSpec Expanded(const std::string& path) const {
    const LayoutSpec spec = pass_.plan().Leaf(path);
    LayoutSpec expanded = {.view = spec.view};
    const auto axes = pass_.mesh().Axes(spec.view);
    for (const AxisSpec& one : spec.axes) {
      const auto found = pass_.mesh().Find(spec.view, one.axis);
      HW_CHECK(found.ok()) << found.status();
      for (const int axis : *found) {
        AxisSpec part = one;
        part.axis = axes[static_cast<std::size_t>(axis)].name;
        expanded.axes.push_back(std::move(part));
      }
    }
    for (const MeshAxis& axis : axes) {
      const bool named = std::any_of(expanded.axes.begin(), expanded.axes.end(),
                                     [&](const AxisSpec& one) { return one.axis == axis.name; });
      if (!named) expanded.axes.push_back({.axis = axis.name});
    }
    return expanded;
  }

  void Leaf(const std::string& path) {
    const auto leaf = std::find_if(pass_.leaves().begin(), pass_.leaves().end(),
                                   [&](const auto& one) { return one.first == path; });
    const int rank = leaf->second.rank();
    const LayoutSpec spec = Expanded(path);
    for (std::size_t i = 0; i < spec.axes.size(); ++i) {
      const AxisSpec axis = spec.axes[i];
      const bool sharded = axis.type == kShard;
      const auto with = [&](AxisType type, int dim) {
        LayoutSpec other = spec;
        other.axes[i].type = type;
        other.axes[i].dim = dim;
        return other;
      };
      for (const AxisType type : {kReplicate, kInvariant, kVarying, kPartial}) {
        if (type == axis.type) continue;
        AddLeaf(sharded ? MutantKind::kLeafUnsharded : MutantKind::kLeafType, with(type, 0));
      }
      for (int dim = 0; dim < rank; ++dim) {
        if (sharded && dim == axis.dim) continue;
        AddLeaf(MutantKind::kLeafSharded, with(kShard, dim));
      }
      for (std::size_t j = 0; j < i; ++j) {
        const AxisSpec& before = spec.axes[j];
        if (!sharded || before.type != kShard || before.dim != axis.dim) continue;
        LayoutSpec other = spec;
        std::swap(other.axes[i], other.axes[j]);
        AddLeaf(MutantKind::kLeafOrder, std::move(other));
      }
    }
  }

  // --- boundaries ---

  void Steps(const std::vector<Step>& steps, LayoutType x) {
    if (!x.defined()) return;
    if (steps.empty()) {
      for (const Step& step : AllSteps(x)) Add(MutantKind::kStepAdded, {step});
      return;
    }
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const auto at = static_cast<std::ptrdiff_t>(i);
      std::vector<Step> other;
      if (DoesSomething(steps[i], x)) {
        other = steps;
        other.erase(other.begin() + at);
        Add(MutantKind::kStepDropped, std::move(other));
        other = steps;
        other.insert(other.begin() + at, steps[i]);
        Add(MutantKind::kStepRepeated, std::move(other));
      }
      for (const Step& step : AllSteps(x)) {
        if (SameEffect(step, steps[i])) continue;
        other = steps;
        other[i] = step;
        Add(MutantKind::kStepReplaced, std::move(other));
      }
      if (i > 0 && !SameEffect(steps[i - 1], steps[i])) {
        other = steps;
        std::swap(other[i - 1], other[i]);
        Add(MutantKind::kStepsSwapped, std::move(other));
      }
      const auto next = Apply(steps[i], x);
      HW_CHECK(next.ok()) << next.status();
      x = *next;
    }
  }

  // Not on an axis of one rank.
  static bool DoesSomething(const Step& step, const LayoutType& x) {
    return step.kind == StepKind::kReinterpretMesh || !x.mesh().Find(x.view(), step.axis)->empty();
  }

  static bool SameEffect(Step a, const Step& b) {
    a.reduce_in = b.reduce_in;
    return a == b;
  }

  void Backward(const std::string& boundary) {
    LayoutType x = crossed_.at(boundary);
    if (!x.defined()) return;
    std::vector<Step> back;
    bool does_something = false;
    for (const Step& step : pass_.plan().Forward(boundary)) {
      does_something |= DoesSomething(step, x);
      back.insert(back.begin(), BackwardOf(step, x));
      const auto next = Apply(step, x);
      HW_CHECK(next.ok()) << next.status();
      x = *next;
    }
    if (does_something) Add(MutantKind::kBackwardForgotten, {});
    // The gradient of what the boundary gives.
    for (const LayoutChecker::Crossing& crossing : pass_.crossings()) {
      if (crossing.boundary == boundary) x = crossing.before;
    }
    Steps(back, x);
  }

  // --- reductions ---

  void Reduction(const std::string& parameter) {
    const auto& gradients = pass_.gradient_plan().gradients();
    const auto planned =
        std::find_if(gradients.begin(), gradients.end(),
                     [&](const PlannedGradient& one) { return one.parameter == parameter; });
    HW_CHECK(planned != gradients.end()) << parameter;
    const std::vector<Step>& steps = planned->steps;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const auto at = static_cast<std::ptrdiff_t>(i);
      std::vector<Step> other = steps;
      other.erase(other.begin() + at);
      Add(MutantKind::kReductionSkipped, std::move(other));
      other = steps;
      other.insert(other.begin() + at, steps[i]);
      Add(MutantKind::kReductionTwice, std::move(other));
      other = steps;
      other[i].to = kInvariant;
      Add(MutantKind::kReductionType, std::move(other));
    }
    const LayoutType& gradient = planned->gradient;
    for (const std::string& axis : AxisNames(gradient.mesh(), gradient.view())) {
      if (std::any_of(steps.begin(), steps.end(),
                      [&](const Step& step) { return step.axis == axis; })) {
        continue;
      }
      std::vector<Step> other = steps;
      other.push_back({.kind = StepKind::kAllReduce, .axis = axis, .to = kReplicate});
      Add(MutantKind::kReductionAdded, std::move(other));
    }
  }

  const LayoutChecker& pass_;
  std::map<std::string, LayoutType> crossed_;  // boundary -> what came to it first
  PlanPart part_ = PlanPart::kLeaf;
  std::string name_;
  std::vector<Mutant> mutants_;
};

}  // namespace

const char* Name(MutantKind kind) {
  static constexpr const char* kNames[] = {
      "leaf type",       "leaf unsharded",     "leaf sharded",      "leaf order",
      "step dropped",    "step replaced",      "step repeated",     "step added",
      "steps swapped",   "backward forgotten", "reduction skipped", "reduction twice",
      "reduction added", "reduction type"};
  return kNames[static_cast<int>(kind)];
}

std::vector<Mutant> MutantsOf(const LayoutChecker& accepted) {
  HW_CHECK(accepted.status().ok()) << accepted.status();
  return Generator(accepted).Run();
}

}  // namespace headwise
