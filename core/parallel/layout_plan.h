// LayoutPlan: the layouts of a model as data: what every leaf is (parameters, inputs), which steps
// are taken at every boundary between parts, forward and backward, and how every gradient is
// reduced. A plan is edited, not subclassed: the fixes that a checker proposes and the mutants of
// its tests are both lists of edits.
//
//   LayoutPlan plan;
//   plan.SetLeaf("layers.*.attention.wqkv", "S(0)@tp");
//   plan.SetLeaf("layers.*.attention_norm", "I@tp");
//   plan.SetForward("layers.*.attention.in", {"convert@tp -> R"});
//   plan.SetForward("layers.*.attention.out", {"all_reduce(F32)@tp -> I"});
//   plan.SetReduction("layers.*.attention_norm", {"all_reduce@dp -> R"});
//
// Names are paths with dots. In an entry a component `*` stands for any one component; of the
// entries that match a name the one set last holds. A leaf without an entry is R everywhere; a
// boundary without one takes no step; its backward, unless it is set, is that of its steps; a
// gradient without a reduction is reduced on the axes on which it is P (DeriveReduction).
//
//   leaves of a plan as text, one entry a line (Parse, ToString):
//     leaf layers.*.attention.wqkv: S(0)@tp
//     forward layers.*.attention.out: all_reduce(F32)@tp -> I
//     backward layers.*.attention.out: convert@tp -> R
//     reduction layers.*.attention_norm: all_reduce@dp -> R
#ifndef HEADWISE_CORE_PARALLEL_LAYOUT_PLAN_H_
#define HEADWISE_CORE_PARALLEL_LAYOUT_PLAN_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/parallel/layout_type.h"
#include "core/parallel/step.h"

namespace headwise {

enum class PlanPart { kLeaf, kForward, kBackward, kReduction };

// "leaf", "forward", "backward", "reduction".
const char* Name(PlanPart part);

// One entry, or the change of one: what an edit sets. An entry without a value takes the entry
// away.
struct PlanEntry {
  PlanPart part = PlanPart::kLeaf;
  std::string name;              // a path, perhaps with `*` components
  LayoutSpec spec = {};          // of kLeaf
  std::vector<Step> steps = {};  // of the others
  bool remove = false;

  // "leaf final_norm: I@tp"; "forward layers.0.ffn.in: convert@tp -> R; ..."; without anything
  // after the colon: R everywhere, no steps. "remove backward head.in".
  static absl::StatusOr<PlanEntry> Parse(absl::string_view text);
  std::string ToString() const;
};

class LayoutPlan {
 public:
  // One entry a line; blank lines and lines that begin with # are skipped. kInvalidArgument names
  // the line.
  static absl::StatusOr<LayoutPlan> Parse(absl::string_view text);
  std::string ToString() const;

  // Appends an entry, or takes away all entries of this part and name.
  void Apply(PlanEntry entry);
  // The texts must read (a programmer's error otherwise).
  void SetLeaf(absl::string_view name, absl::string_view spec);
  void SetForward(absl::string_view name, const std::vector<absl::string_view>& steps);
  void SetBackward(absl::string_view name, const std::vector<absl::string_view>& steps);
  void SetReduction(absl::string_view name, const std::vector<absl::string_view>& steps);

  LayoutSpec Leaf(absl::string_view name) const;
  std::vector<Step> Forward(absl::string_view name) const;
  // Nothing where it follows from the forward steps.
  std::optional<std::vector<Step>> Backward(absl::string_view name) const;
  std::optional<std::vector<Step>> Reduction(absl::string_view name) const;

  const std::vector<PlanEntry>& entries() const { return entries_; }

 private:
  const PlanEntry* Find(PlanPart part, absl::string_view name) const;
  std::vector<PlanEntry> entries_;
};

// Whether a name is one that the pattern stands for.
bool MatchesName(absl::string_view pattern, absl::string_view name);

}  // namespace headwise

#endif  // HEADWISE_CORE_PARALLEL_LAYOUT_PLAN_H_
