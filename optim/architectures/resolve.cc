#include "optim/architectures/resolve.h"

#include <algorithm>
#include <limits>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "optim/architectures/config_json.h"
#include "optim/architectures/module_config.h"
#include "optim/architectures/registry.h"
#include "optim/architectures/rule.h"
#include "optim/architectures/tensor_name.h"

namespace headwise {
namespace {

// A tensor's model: whose rule, whose section, and the name within.
struct Site {
  const ArchitectureRule* rule = nullptr;
  ConfigSection section;
  absl::string_view name;            // relative to the sub-model
  std::optional<Declined> declined;  // then there is no rule
};

// One attention module of the checkpoint and the tensors that it holds.
struct Owner {
  std::vector<const AttentionModule*> kinds;  // of the rule, by path
  ConfigSection section;
  std::int64_t layer = -1;
  std::string path;
  struct Child {
    std::size_t weight;          // index into the result
    std::string name;            // the component below the module: "q_proj"
    bool is_the_weight = false;  // MODULE.q_proj.weight or MODULE.q_proj, nothing deeper
  };
  std::vector<Child> children;
};

std::string Quote(absl::string_view text) {
  return absl::StrCat("'", absl::CEscape(text.substr(0, 80)), text.size() > 80 ? "...'" : "'");
}

// Whether there can be a tensor of this shape.
bool IsPossible(const Shape& shape) {
  std::int64_t elements = 1;
  for (const std::int64_t extent : shape) {
    if (extent < 0) return false;
    // As NumElements() in core/tensor/tensor.h checks.
    if (extent > 0 && elements > std::numeric_limits<std::int64_t>::max() / 16 / extent) {
      return false;
    }
    elements *= extent;
  }
  return true;
}

std::string ModelType(const ConfigSection& section) {
  const ConfigValue value = section.Get("model_type");
  return value.kind == ConfigValue::Kind::kString ? value.text : "";
}

std::string SectionName(const ConfigSection& section) {
  return section.name().empty() ? "the configuration" : section.name();
}

// Descends into sub-models as far as the name goes.
Site Locate(const std::string& name, const ConfigSection& root) {
  Site site{nullptr, root, name, std::nullopt};
  const char* fixed_type = nullptr;
  for (int depth = 0; depth < 4; ++depth) {
    const std::string type = fixed_type != nullptr ? fixed_type : ModelType(site.section);
    site.rule = FindArchitectureRule(type);
    if (site.rule == nullptr) {
      site.declined = {DeclineReason::kUnknownArchitecture,
                       type.empty()
                           ? absl::StrCat(SectionName(site.section), " names no model_type")
                           : absl::StrCat("no rule for model_type ", Quote(type))};
      return site;
    }
    const SubModel* best = nullptr;
    std::size_t longest = 0;
    for (const SubModel& sub : site.rule->sub_models) {
      for (const absl::string_view prefix : sub.prefixes) {
        if (prefix.size() > longest && absl::StartsWith(site.name, prefix)) {
          best = &sub;
          longest = prefix.size();
        }
      }
    }
    if (best == nullptr) return site;
    site.name.remove_prefix(longest);
    fixed_type = best->model_type;
    if (const std::optional<ConfigSection> section = site.section.Section(best->section)) {
      site.section = *section;
    } else if (!best->may_be_flat) {
      site.rule = nullptr;
      site.declined = {
          DeclineReason::kNoGeometry,
          absl::StrCat("the configuration's ", best->section, " is ",
                       site.section.Get(best->section).kind == ConfigValue::Kind::kAbsent
                           ? "missing"
                           : "no object")};
      return site;
    }
  }
  return site;
}

absl::string_view WithoutBasePrefix(const ArchitectureRule& rule, absl::string_view name) {
  for (const absl::string_view prefix : rule.base_prefixes) {
    if (absl::StartsWith(name, prefix)) return name.substr(prefix.size());
  }
  return name;
}

void Decline(DeclineReason reason, std::string explanation, WeightLayout* weight) {
  weight->blocks.reset();
  weight->layout.clear();
  weight->transposed_storage = false;
  weight->declined = reason;
  weight->explanation = std::move(explanation);
}

void DeclineVector(WeightLayout* weight) {
  Decline(
      DeclineReason::kNotTwoDimensional,
      absl::StrCat(weight->shape.size(), weight->shape.size() == 1 ? " dimension" : " dimensions"),
      weight);
}

// What the found shape may be, where it is not the expected one.
std::string ShapeHint(const Shape& expected, const Shape& found, BlockAxis axis) {
  const std::size_t heads = axis == BlockAxis::kRows ? 0 : 1;
  if (found[1 - heads] != expected[1 - heads] || found[heads] <= 0) return "";
  if (found[heads] > expected[heads]) {
    return absl::StrCat(": ", found[heads] - expected[heads], " too many; padded?");
  }
  if (expected[heads] % found[heads] == 0) {
    return absl::StrCat(": one of ", expected[heads] / found[heads], " shards?");
  }
  return "";
}

// The projection `member` of a module: the rule's placement, confirmed against the shape.
void ResolveProjection(const Member& member, ModuleConfig module, WeightLayout* weight) {
  const Placement placement = member.place(module);
  if (module.declined().has_value()) {
    return Decline(module.declined()->reason, module.declined()->explanation, weight);
  }
  if (!placement.pattern.ok()) {
    return Decline(DeclineReason::kNoGeometry,
                   absl::StrCat(placement.pattern.status().message(), "; ", module.fields()),
                   weight);
  }
  const HeadPattern& pattern = *placement.pattern;
  Shape expected = {pattern.axis_size(), placement.other};
  if (placement.axis == BlockAxis::kColumns) std::swap(expected[0], expected[1]);
  if (weight->shape != expected) {
    const bool transposed = weight->shape == Shape{expected[1], expected[0]};
    return Decline(transposed ? DeclineReason::kTransposedStorage : DeclineReason::kWidthMismatch,
                   absl::StrCat("expected ", ToString(expected), " from ", module.fields(),
                                ", found ", ToString(weight->shape),
                                transposed ? ": stored transposed"
                                           : ShapeHint(expected, weight->shape, placement.axis)),
                   weight);
  }
  weight->blocks = pattern.Blocks(placement.axis);
  weight->layout = pattern.name();
  weight->transposed_storage = placement.transposed_storage;
  weight->explanation =
      absl::StrCat(pattern.ToString(), placement.axis == BlockAxis::kColumns ? " columns" : " rows",
                   "; ", module.fields());
}

class Resolver {
 public:
  Resolver(const ConfigSection& root, const ResolveOptions& options)
      : root_(root), options_(options) {}

  CheckpointLayout Run(absl::Span<const WeightShape> weights) {
    layout_.model_type = ModelType(root_);
    for (const WeightShape& weight : weights) {
      layout_.weights.push_back({.name = weight.name, .shape = weight.shape});
    }
    for (std::size_t i = 0; i < layout_.weights.size(); ++i) Place(i);
    for (auto& [path, owner] : owners_) ResolveOwner(owner);
    return std::move(layout_);
  }

 private:
  // Puts the weight into its attention module, or settles it.
  void Place(std::size_t i) {
    WeightLayout& weight = layout_.weights[i];
    const Site site = Locate(weight.name, root_);
    const absl::string_view relative =
        site.rule == nullptr ? site.name : WithoutBasePrefix(*site.rule, site.name);
    const TensorPath path = SplitTensorName(relative);
    weight.role = UsualRole(path, weight.shape.size());
    std::vector<const AttentionModule*> kinds;
    ModuleMatch match;
    if (site.rule != nullptr) {
      for (const AttentionModule& module : site.rule->modules) {
        if (const std::optional<ModuleMatch> found = MatchModule(module.path, path)) {
          kinds.push_back(&module);
          match = *found;
        }
      }
    }
    if (!kinds.empty()) {
      // The whole name up to the module: unique, whatever the sub-model.
      const TensorPath rest(path.begin() + static_cast<std::ptrdiff_t>(match.components),
                            path.end());
      const std::size_t length = weight.name.size() - absl::StrJoin(rest, ".").size() - 1;
      auto it = owners_
                    .try_emplace(weight.name.substr(0, length),
                                 Owner{std::move(kinds), site.section, match.layer, "", {}})
                    .first;
      it->second.path = it->first;
      it->second.children.push_back(
          {i, std::string(rest[0]), rest.size() == 1 || (rest.size() == 2 && rest[1] == "weight")});
      return;
    }
    if (weight.shape.size() != 2) return DeclineVector(&weight);
    if (site.declined.has_value()) {
      // Where only the geometry is missing, what is no projection needs none.
      if (site.declined->reason != DeclineReason::kNoGeometry || LooksLikeProjection(path)) {
        return Decline(site.declined->reason, site.declined->explanation, &weight);
      }
    } else if (LooksLikeProjection(path)) {
      return Decline(
          DeclineReason::kOwnerGeometryUnknown,
          absl::StrCat("the rule for ", site.rule->model_type, " knows no attention module here"),
          &weight);
    }
    Decline(DeclineReason::kNotAttention, "outside of the attention modules", &weight);
  }

  void ResolveOwner(Owner& owner) {
    const AttentionModule* kind = nullptr;
    std::optional<Declined> declined;
    for (const AttentionModule* candidate : owner.kinds) {
      ModuleConfig module(owner.section, owner.layer, options_);
      if (candidate->applies != nullptr && !candidate->applies(module)) {
        if (module.declined().has_value()) declined = module.declined();
        continue;
      }
      if (module.declined().has_value()) {
        declined = module.declined();
        continue;
      }
      kind = candidate;
      declined.reset();
      break;
    }
    if (kind == nullptr && !declined.has_value()) {
      declined = {DeclineReason::kOwnerGeometryUnknown, "no kind of module applies to this layer"};
    }
    if (kind != nullptr) {
      for (const Owner::Child& child : owner.children) {
        if (FindMember(*kind, child.name) == nullptr && !IsOther(*kind, child.name)) {
          declined = {DeclineReason::kOwnerGeometryUnknown,
                      absl::StrCat("the module also holds ", Quote(child.name),
                                   ", which the rule does not know")};
          break;
        }
      }
    }
    for (const Owner::Child& child : owner.children) ResolveChild(owner, kind, declined, child);
    ConfirmTogether(owner, kind);
  }

  void ResolveChild(const Owner& owner, const AttentionModule* kind,
                    const std::optional<Declined>& declined, const Owner::Child& child) {
    WeightLayout& weight = layout_.weights[child.weight];
    const Member* member = kind == nullptr ? nullptr : FindMember(*kind, child.name);
    if (member != nullptr && child.is_the_weight && weight.shape.size() >= 2) {
      weight.role = member->role;
    }
    if (weight.shape.size() != 2) return DeclineVector(&weight);
    if (declined.has_value()) return Decline(declined->reason, declined->explanation, &weight);
    if (member == nullptr) {
      return Decline(
          DeclineReason::kNotAttention,
          absl::StrCat("part of the attention module without heads to cut: ", child.name), &weight);
    }
    if (!child.is_the_weight) {
      return Decline(DeclineReason::kNotAttention,
                     absl::StrCat("a companion of ", child.name, ".weight"), &weight);
    }
    if (member->place == nullptr || (member->output && !options_.output_columns)) {
      return Decline(member->reason, member->why, &weight);
    }
    ResolveProjection(*member, ModuleConfig(owner.section, owner.layer, options_), &weight);
  }

  // All projections of a module, or none.
  void ConfirmTogether(const Owner& owner, const AttentionModule* kind) {
    if (kind == nullptr) return;
    const WeightLayout* contradiction = nullptr;
    for (const Owner::Child& child : owner.children) {
      const WeightLayout& weight = layout_.weights[child.weight];
      const Member* member = FindMember(*kind, child.name);
      if (member == nullptr || member->place == nullptr || !weight.declined.has_value()) continue;
      if (*weight.declined == DeclineReason::kWidthMismatch ||
          *weight.declined == DeclineReason::kTransposedStorage ||
          *weight.declined == DeclineReason::kAmbiguous) {
        contradiction = &weight;
        break;
      }
    }
    if (contradiction == nullptr) return;
    const std::string name = contradiction->name;
    for (const Owner::Child& child : owner.children) {
      WeightLayout& weight = layout_.weights[child.weight];
      if (!weight.blocks.has_value()) continue;
      Decline(DeclineReason::kAmbiguous,
              absl::StrCat("its own width fits, but that of ", Quote(name),
                           " in the same module does not"),
              &weight);
    }
  }

  static const Member* FindMember(const AttentionModule& module, const std::string& name) {
    for (const Member& member : module.members) {
      if (name == member.name) return &member;
    }
    return nullptr;
  }

  static bool IsOther(const AttentionModule& module, const std::string& name) {
    return std::find(module.others.begin(), module.others.end(), name) != module.others.end();
  }

  const ConfigSection root_;
  const ResolveOptions options_;
  CheckpointLayout layout_;
  std::map<std::string, Owner> owners_;
};

}  // namespace

absl::StatusOr<CheckpointLayout> ResolveHeadBlocks(absl::string_view config_json,
                                                   absl::Span<const WeightShape> weights,
                                                   const ResolveOptions& options) {
  const absl::StatusOr<ConfigJson> config = ConfigJson::Parse(config_json);
  if (!config.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("config.json: ", config.status().message()));
  }
  std::unordered_set<std::string> names;
  for (const WeightShape& weight : weights) {
    if (weight.name.empty()) return absl::InvalidArgumentError("a weight has no name");
    if (!names.insert(weight.name).second) {
      return absl::InvalidArgumentError(absl::StrCat("two weights are named ", Quote(weight.name)));
    }
    if (!IsPossible(weight.shape)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "weight ", Quote(weight.name), " has an impossible shape ", ToString(weight.shape)));
    }
  }
  return Resolver(config->root(), options).Run(weights);
}

LayoutSummary Summarize(const CheckpointLayout& layout) {
  LayoutSummary summary;
  for (const WeightLayout& weight : layout.weights) {
    ++summary.weights;
    if (weight.blocks.has_value()) {
      ++summary.blocked;
      summary.blocks += weight.blocks->size();
    } else {
      ++summary.declined[*weight.declined];
    }
  }
  return summary;
}

std::vector<std::string> KnownArchitectures() { return ArchitectureNames(); }

absl::Status RequireHeadBlocks(const CheckpointLayout& layout, Granularity granularity) {
  const LayoutSummary summary = Summarize(layout);
  if (granularity == Granularity::kWholeMatrix || summary.blocked > 0) return absl::OkStatus();
  std::vector<std::string> reasons;
  for (const auto& [reason, count] : summary.declined) {
    reasons.push_back(absl::StrCat(count, " ", Name(reason)));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "granularity ", Name(granularity), " was asked for, but none of the ", summary.weights,
      " weights has head blocks (", absl::StrJoin(reasons, ", "), ", model_type ",
      Quote(layout.model_type), "); whole_matrix is what such a model can have"));
}

}  // namespace headwise
