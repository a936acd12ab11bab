#include "tools/typecheck/check.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/nearest_name.h"
#include "core/base/status_macros.h"
#include "model/decoder.h"
#include "model/sharding.h"
#include "optim/parameter.h"

namespace headwise::typecheck {
namespace {

// Of one pass over all ranks, and of one rank: the pass holds 16 bytes for each of the latter.
constexpr std::int64_t kMostTokens = std::int64_t{1} << 40;
constexpr std::int64_t kMostTokensOfRank = std::int64_t{1} << 26;

std::int64_t AxisSize(const Mesh& mesh, const char* name) {
  for (const MeshAxis& axis : mesh.Axes(MeshView::kDense)) {
    if (axis.name == name) return axis.size;
  }
  return 1;
}

bool IsOf(const PlanEntry& entry, const LayoutChecker& checker) {
  if (entry.part == PlanPart::kLeaf || entry.part == PlanPart::kReduction) {
    return std::any_of(checker.leaves().begin(), checker.leaves().end(),
                       [&](const auto& leaf) { return MatchesName(entry.name, leaf.first); });
  }
  return std::any_of(
      checker.crossings().begin(), checker.crossings().end(),
      [&](const auto& crossing) { return MatchesName(entry.name, crossing.boundary); });
}

// "layers.*.attention.in" of "layers.7.attention.in" where the user wrote a star.
std::vector<std::string> NamesFor(const PlanEntry& entry, const LayoutChecker& checker) {
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    names.push_back(name);
    const std::size_t dot = name.find('.'), end = name.find('.', dot + 1);
    if (entry.name.find('*') != std::string::npos && end != std::string::npos) {
      names.back() = absl::StrCat(name.substr(0, dot), ".*", name.substr(end));
    }
  };
  if (entry.part == PlanPart::kLeaf || entry.part == PlanPart::kReduction) {
    for (const auto& [name, type] : checker.leaves()) add(name);
  } else {
    for (const auto& crossing : checker.crossings()) add(crossing.boundary);
  }
  return names;
}

}  // namespace

absl::StatusOr<ShardedLayout> PlannedLayout(const CheckRequest& request) {
  auto layout =
      StandardLayout(request.model, request.mesh, {.sequence_parallel = request.sequence_parallel});
  if (request.plan.has_value()) {
    layout = ShardedLayout{layout.ok() ? layout->mesh : request.mesh, *request.plan};
  }
  if (!layout.ok()) return layout;
  for (const PlanEntry& edit : request.edits) layout->plan.Apply(edit);
  return layout;
}

absl::Status CheckSizes(const CheckRequest& request) {
  const std::int64_t longest = request.model.max_sequence_length();
  if (request.length < 1 || request.length > longest) {
    return absl::InvalidArgumentError(absl::StrCat("--length: found ", request.length,
                                                   ", expected 1 to the ", longest, " tokens of ",
                                                   "model.max_sequence_length"));
  }
  const std::int64_t dp = AxisSize(request.mesh, "dp"), cp = AxisSize(request.mesh, "cp");
  const std::int64_t sequences = request.sequences == 0 ? dp : request.sequences;
  if (request.sequences == 0 && dp * cp > kMostTokens / request.length) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--mesh: dp=", dp, ", cp=", cp, ": found more than ", kMostTokens, " tokens in windows of ",
        request.length, "; expected fewer ranks or a shorter --length"));
  }
  if (cp > 1 && sequences != dp) {
    return absl::InvalidArgumentError(
        absl::StrCat("--sequences: found ", sequences, " with cp=", cp, ", expected ", dp,
                     ", one for each dp rank: cp shares out the tokens of a window; put several "
                     "windows into one by a longer --length"));
  }
  if (sequences < 1 || sequences > kMostTokens / request.length ||
      sequences * request.length / (dp * cp) > kMostTokensOfRank) {
    return absl::InvalidArgumentError(
        absl::StrCat("--sequences: found ", request.sequences, " windows of ", request.length,
                     " tokens, expected at least one, and at most ", kMostTokensOfRank,
                     " tokens a rank and ", kMostTokens, " in all"));
  }
  return absl::OkStatus();
}

absl::StatusOr<CheckedModel> Check(const CheckRequest& request, const ShardedLayout& layout) {
  HW_RETURN_IF_ERROR(CheckSizes(request));
  const auto begin = std::chrono::steady_clock::now();
  CheckedModel checked;
  const auto pass = [&](std::int64_t rank, LayoutChecker& checker) -> absl::Status {
    HW_ASSIGN_OR_RETURN(TypePassReport report, TypePass(request.model,
                                                        {.compute = request.compute,
                                                         .groups = request.sequences,
                                                         .length = request.length,
                                                         .rank = rank},
                                                        checker));
    checked.kinds.push_back({.rank = rank, .pass = std::move(report)});
    for (const LayoutMistake& mistake : checker.mistakes()) {
      const auto same = [&](const LayoutMistake& other) {
        return other.ToString() == mistake.ToString();
      };
      if (std::none_of(checked.mistakes.begin(), checked.mistakes.end(), same)) {
        checked.mistakes.push_back(mistake);
      }
    }
    return absl::OkStatus();
  };
  checked.checker = std::make_unique<LayoutChecker>(layout.mesh, layout.plan);
  HW_RETURN_IF_ERROR(pass(0, *checked.checker));
  for (const std::int64_t rank : RankKinds(*checked.checker)) {
    if (rank == 0) continue;
    LayoutChecker other(layout.mesh, layout.plan);
    HW_RETURN_IF_ERROR(pass(rank, other));
  }
  checked.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return checked;
}

absl::StatusOr<OptimizerAccount> CheckOptimizer(const CheckRequest& request,
                                                const ShardedLayout& layout) {
  LayoutChecker checker(layout.mesh, layout.plan);
  Sharding sharding(checker);
  DecoderOptions options;
  options.compute = request.compute;
  options.device = Device::kMeta;
  options.sharding = &sharding;
  HW_ASSIGN_OR_RETURN(const std::unique_ptr<Decoder> decoder,
                      Decoder::Create(request.model, options));
  const std::vector<Parameter*>& parameters = decoder->parameters();
  return AccountOptimizer(request.optimizer,
                          std::vector<const Parameter*>(parameters.begin(), parameters.end()));
}

absl::Status CheckEditsApply(const CheckRequest& request, const LayoutChecker& checker) {
  const auto unknown = [&](const char* flag, const PlanEntry& entry) {
    const bool leaf = entry.part == PlanPart::kLeaf || entry.part == PlanPart::kReduction;
    return absl::InvalidArgumentError(
        absl::StrCat(flag, " '", entry.ToString(), "': the model has no ",
                     leaf ? "parameter or input" : "boundary", " of this name",
                     DidYouMean(entry.name, NamesFor(entry, checker))));
  };
  for (const PlanEntry& edit : request.edits) {
    if (!IsOf(edit, checker)) return unknown("--edit", edit);
  }
  if (!request.plan.has_value()) return absl::OkStatus();
  // A standard plan has entries for parts that not every model has.
  const auto standard =
      StandardLayout(request.model, request.mesh, {.sequence_parallel = request.sequence_parallel});
  const auto is_standard = [&](const PlanEntry& entry) {
    return standard.ok() &&
           std::any_of(standard->plan.entries().begin(), standard->plan.entries().end(),
                       [&](const PlanEntry& other) {
                         return other.part == entry.part && other.name == entry.name;
                       });
  };
  for (const PlanEntry& entry : request.plan->entries()) {
    if (!IsOf(entry, checker) && !is_standard(entry)) return unknown("--plan", entry);
  }
  return absl::OkStatus();
}

}  // namespace headwise::typecheck
