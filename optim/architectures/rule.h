// ArchitectureRule: what Headwise knows about one model_type of outside checkpoints: where its
// attention modules are, what each of their weights is, and which section of the configuration is
// whose.
//
// A rule is data plus, per projection, a few lines that turn configuration fields into a
// HeadPattern. Everything that all rules share (matching names, comparing shapes, reasons) is in
// resolve.cc. docs/head_blocks.md says how to add one.
#ifndef HEADWISE_OPTIM_ARCHITECTURES_RULE_H_
#define HEADWISE_OPTIM_ARCHITECTURES_RULE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "core/heads/head_pattern.h"
#include "optim/architectures/decline_reason.h"
#include "optim/architectures/module_config.h"
#include "optim/parameter.h"

namespace headwise {

// Where a projection's heads lie, and the shape that confirms it: [pattern, other] for heads on the
// rows, [other, pattern] for heads on the columns.
struct Placement {
  absl::StatusOr<HeadPattern> pattern;
  std::int64_t other = 0;
  BlockAxis axis = BlockAxis::kRows;
  bool transposed_storage = false;
};

using PlaceFn = std::function<Placement(ModuleConfig&)>;

// One weight of an attention module: the tensor MODULE.name.weight, or MODULE.name itself.
struct Member {
  const char* name;
  ParameterRole role;
  PlaceFn place = nullptr;  // null: never cut into heads
  // Why not, where place is null.
  DeclineReason reason = DeclineReason::kNotAttention;
  const char* why = "";
  // The attention output: place describes its columns and is used only if the options ask for it.
  bool output = false;
};

// A weight that is cut into heads.
Member Projection(const char* name, ParameterRole role, PlaceFn place);
// The attention output. `place` may be null.
Member Output(const char* name, PlaceFn place = nullptr);
// A weight without heads on its rows, and why.
Member NoHeads(const char* name, ParameterRole role, const char* why);
// The first of a pair of projections through a low rank.
Member LowRank(const char* name, ParameterRole role);

struct AttentionModule {
  // Relative to the model: "layers.*.self_attn"; '*' stands for a number.
  const char* path;
  std::vector<Member> members;
  // Everything else that such a module may hold: norms, sinks, buffers. A module that holds anything
  // more is not the one that the rule describes, and its projections are declined
  // (kOwnerGeometryUnknown).
  std::vector<const char*> others = {};
  // Whether the module at this layer is of this kind, where the path alone does not tell. Declines
  // if the configuration does not say. Null: it is.
  std::function<bool(ModuleConfig&)> applies = nullptr;
};

// A part of the model with a section of the configuration of its own.
struct SubModel {
  std::vector<const char*> prefixes;  // of tensor names: "model.language_model."
  const char* section;                // "text_config"
  // The rule for it; null: the section's own model_type names it.
  const char* model_type = nullptr;
  // Older configurations have this part's fields at the top instead of in a section.
  bool may_be_flat = false;
};

struct ArchitectureRule {
  const char* model_type;
  // Prefixes that names may have or lack: a checkpoint of the bare model has none.
  std::vector<const char*> base_prefixes;
  std::vector<AttentionModule> modules;
  std::vector<SubModel> sub_models = {};
};

}  // namespace headwise

#endif  // HEADWISE_OPTIM_ARCHITECTURES_RULE_H_
