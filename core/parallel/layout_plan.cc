#include "core/parallel/layout_plan.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"

namespace headwise {
namespace {

constexpr PlanPart kParts[] = {PlanPart::kLeaf, PlanPart::kForward, PlanPart::kBackward,
                               PlanPart::kReduction};

// The first component of a path, which it loses.
absl::string_view NextComponent(absl::string_view& path) {
  const std::size_t dot = path.find('.');
  const absl::string_view component = path.substr(0, dot);
  path = dot == absl::string_view::npos ? absl::string_view() : path.substr(dot + 1);
  return component;
}

std::vector<Step> StepsOf(const std::vector<absl::string_view>& texts) {
  std::vector<Step> steps;
  for (const absl::string_view text : texts) {
    const auto step = Step::Parse(text);
    HW_CHECK(step.ok()) << step.status();
    steps.push_back(*step);
  }
  return steps;
}

}  // namespace

const char* Name(PlanPart part) {
  static constexpr const char* kNames[] = {"leaf", "forward", "backward", "reduction"};
  return kNames[static_cast<int>(part)];
}

bool MatchesName(absl::string_view pattern, absl::string_view name) {
  while (!pattern.empty() && !name.empty()) {
    const absl::string_view wanted = NextComponent(pattern), found = NextComponent(name);
    if (wanted != "*" && wanted != found) return false;
  }
  return pattern.empty() && name.empty();
}

absl::StatusOr<PlanEntry> PlanEntry::Parse(absl::string_view text) {
  PlanEntry entry;
  absl::string_view rest = absl::StripAsciiWhitespace(text);
  entry.remove = absl::ConsumePrefix(&rest, "remove ");
  bool known = false;
  for (const PlanPart part : kParts) {
    if (!absl::ConsumePrefix(&rest, absl::StrCat(headwise::Name(part), " "))) continue;
    entry.part = part;
    known = true;
    break;
  }
  const std::vector<absl::string_view> halves = absl::StrSplit(rest, absl::MaxSplits(':', 1));
  entry.name = std::string(absl::StripAsciiWhitespace(halves[0]));
  if (!known || entry.name.empty() || halves.size() != (entry.remove ? 1 : 2)) {
    return absl::InvalidArgumentError(
        absl::StrCat("plan entry '", text,
                     "' must be leaf, forward, backward or reduction, then a name, a colon and a "
                     "layout or steps; or remove, one of these and a name"));
  }
  if (entry.remove) return entry;
  if (entry.part == PlanPart::kLeaf) {
    HW_ASSIGN_OR_RETURN(entry.spec, LayoutSpec::Parse(halves[1]));
    return entry;
  }
  for (const absl::string_view step : absl::StrSplit(halves[1], ';', absl::SkipWhitespace())) {
    HW_ASSIGN_OR_RETURN(entry.steps.emplace_back(), Step::Parse(absl::StripAsciiWhitespace(step)));
  }
  return entry;
}

std::string PlanEntry::ToString() const {
  if (remove) return absl::StrCat("remove ", headwise::Name(part), " ", name);
  const std::string value =
      part == PlanPart::kLeaf ? spec.ToString()
                              : absl::StrJoin(steps, "; ", [](std::string* out, const Step& step) {
                                  absl::StrAppend(out, step.ToString());
                                });
  return absl::StrCat(headwise::Name(part), " ", name, ":", value.empty() ? "" : " ", value);
}

absl::StatusOr<LayoutPlan> LayoutPlan::Parse(absl::string_view text) {
  LayoutPlan plan;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line[0] == '#') continue;
    auto entry = PlanEntry::Parse(line);
    if (!entry.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number, ": ", entry.status().message()));
    }
    plan.Apply(*std::move(entry));
  }
  return plan;
}

std::string LayoutPlan::ToString() const {
  return absl::StrJoin(entries_, "", [](std::string* out, const PlanEntry& entry) {
    absl::StrAppend(out, entry.ToString(), "\n");
  });
}

void LayoutPlan::Apply(PlanEntry entry) {
  if (entry.remove) {
    std::erase_if(entries_,
                  [&](const PlanEntry& e) { return e.part == entry.part && e.name == entry.name; });
  } else {
    entries_.push_back(std::move(entry));
  }
}

void LayoutPlan::SetLeaf(absl::string_view name, absl::string_view spec) {
  const auto parsed = LayoutSpec::Parse(spec);
  HW_CHECK(parsed.ok()) << parsed.status();
  Apply({.part = PlanPart::kLeaf, .name = std::string(name), .spec = *parsed});
}

void LayoutPlan::SetForward(absl::string_view name, const std::vector<absl::string_view>& steps) {
  Apply({.part = PlanPart::kForward, .name = std::string(name), .steps = StepsOf(steps)});
}

void LayoutPlan::SetBackward(absl::string_view name, const std::vector<absl::string_view>& steps) {
  Apply({.part = PlanPart::kBackward, .name = std::string(name), .steps = StepsOf(steps)});
}

void LayoutPlan::SetReduction(absl::string_view name, const std::vector<absl::string_view>& steps) {
  Apply({.part = PlanPart::kReduction, .name = std::string(name), .steps = StepsOf(steps)});
}

const PlanEntry* LayoutPlan::Find(PlanPart part, absl::string_view name) const {
  for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
    if (entry->part == part && MatchesName(entry->name, name)) return &*entry;
  }
  return nullptr;
}

LayoutSpec LayoutPlan::Leaf(absl::string_view name) const {
  const PlanEntry* entry = Find(PlanPart::kLeaf, name);
  return entry == nullptr ? LayoutSpec() : entry->spec;
}

std::vector<Step> LayoutPlan::Forward(absl::string_view name) const {
  const PlanEntry* entry = Find(PlanPart::kForward, name);
  return entry == nullptr ? std::vector<Step>() : entry->steps;
}

std::optional<std::vector<Step>> LayoutPlan::Backward(absl::string_view name) const {
  const PlanEntry* entry = Find(PlanPart::kBackward, name);
  if (entry == nullptr) return std::nullopt;
  return entry->steps;
}

std::optional<std::vector<Step>> LayoutPlan::Reduction(absl::string_view name) const {
  const PlanEntry* entry = Find(PlanPart::kReduction, name);
  if (entry == nullptr) return std::nullopt;
  return entry->steps;
}

}  // namespace headwise
