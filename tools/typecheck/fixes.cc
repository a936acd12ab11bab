#include "tools/typecheck/fixes.h"

#include <functional>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/typecheck/cut_model.h"
#include "tools/typecheck/folded_names.h"

namespace headwise::typecheck {
namespace {

// Found on few layers, before the whole model has its say.
constexpr std::size_t kCandidates = 8;

bool Accepted(const CheckRequest& request, const ShardedLayout& layout,
              std::int64_t* bytes_sent = nullptr) {
  const auto checked = Check(request, layout);
  if (!checked.ok() || !checked->mistakes.empty()) return false;
  if (bytes_sent != nullptr) *bytes_sent = checked->checker->bytes_sent();
  return true;
}

// The few layers first: most candidates fail on them.
bool AcceptedAnew(const CheckRequest& request) {
  const auto layout = PlannedLayout(request);
  if (!layout.ok()) return false;
  const CutModel cut = Cut(request.model, layout->plan, -1);
  CheckRequest few = request;
  few.model = cut.model;
  return Accepted(few, {layout->mesh, cut.plan}) && Accepted(request, *layout);
}

// The sizes of a mesh as a user writes them: sub-axes together.
std::map<std::string, std::int64_t> SizesOf(const Mesh& mesh) {
  std::map<std::string, std::int64_t> sizes = {{"dp", 1}, {"cp", 1}, {"tp", 1}, {"ep", 1}};
  for (const MeshAxis& axis : mesh.Axes(MeshView::kDense)) sizes[axis.name] = axis.size;
  for (const MeshAxis& axis : mesh.Axes(MeshView::kExpert)) {
    if (axis.name == "ep") sizes["ep"] = axis.size;
  }
  return sizes;
}

std::string MeshText(const std::map<std::string, std::int64_t>& sizes) {
  std::vector<std::string> parts;
  for (const char* axis : {"dp", "cp", "tp", "ep"}) {
    if (sizes.at(axis) > 1) parts.push_back(absl::StrCat(axis, "=", sizes.at(axis)));
  }
  return parts.empty() ? "dp=1" : absl::StrJoin(parts, ",");
}

std::int64_t RoundUp(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// A request with other flags.
struct Candidate {
  std::string flags;
  CheckRequest request;
};

// In the order in which to try them; of one kind the first that is accepted is enough.
std::vector<std::vector<Candidate>> Candidates(const CheckRequest& request) {
  std::vector<std::vector<Candidate>> kinds(1);
  for (std::size_t i = 0; i < request.edits.size(); ++i) {
    Candidate without = {absl::StrCat("without --edit '", request.edits[i].ToString(), "'"),
                         request};
    without.request.edits.erase(without.request.edits.begin() + static_cast<std::ptrdiff_t>(i));
    kinds.back().push_back(std::move(without));
  }
  auto sizes = SizesOf(request.mesh);
  const std::int64_t cp = sizes["cp"], shares = cp * sizes["tp"];
  kinds.emplace_back();
  for (const std::int64_t multiple : {cp, shares}) {
    for (const std::int64_t length :
         {RoundUp(request.length, multiple), request.length / multiple * multiple}) {
      if (length == request.length || length == 0) continue;
      Candidate other = {absl::StrCat("--length ", length), request};
      other.request.length = length;
      kinds.back().push_back(std::move(other));
    }
  }
  kinds.emplace_back();
  if (request.sequences % sizes["dp"] != 0) {
    const std::int64_t sequences = RoundUp(request.sequences, sizes["dp"]);
    kinds.back().push_back({absl::StrCat("--sequences ", sequences), request});
    kinds.back().back().request.sequences = sequences;
  }
  for (const char* axis : {"ep", "tp", "cp", "dp"}) {
    kinds.emplace_back();
    // The largest that is smaller, first: as few as possible of the ranks stay idle.
    for (std::int64_t size = sizes[axis] - 1; size >= 1 && kinds.back().size() < 64; --size) {
      auto other = sizes;
      other[axis] = size;
      const std::string text = MeshText(other);
      const auto mesh = Mesh::Parse(text);
      if (!mesh.ok()) continue;
      kinds.back().push_back({absl::StrCat("--mesh ", text), request});
      kinds.back().back().request.mesh = *mesh;
    }
  }
  return kinds;
}

}  // namespace

std::vector<VerifiedFix> FindPlanFixes(const CheckRequest& request, const ShardedLayout& layout,
                                       const LayoutMistake& mistake, std::size_t most) {
  std::vector<VerifiedFix> fixes;
  const CutModel cut = Cut(request.model, layout.plan, LayerOf(mistake.module));
  CheckRequest few = request;
  few.model = cut.model;
  const auto failed = Check(few, {layout.mesh, cut.plan});
  if (!failed.ok()) return fixes;
  const auto pass = [&](LayoutChecker& checker) {
    const TypePassOptions options = {
        .compute = few.compute, .groups = few.sequences, .length = few.length};
    (void)TypePass(few.model, options, checker);
  };
  for (VerifiedFix& fix : FindFixes(*failed->checker, pass, kCandidates)) {
    ShardedLayout fixed = layout;
    fixed.plan.Apply(fix.edit);
    if (Accepted(request, fixed, &fix.bytes_sent)) fixes.push_back(std::move(fix));
    if (fixes.size() == most) break;
  }
  return fixes;
}

std::vector<std::string> FindOtherFlags(const CheckRequest& request, std::size_t most) {
  std::vector<std::string> found;
  for (const std::vector<Candidate>& kind : Candidates(request)) {
    for (const Candidate& candidate : kind) {
      if (found.size() == most) return found;
      if (!AcceptedAnew(candidate.request)) continue;
      found.push_back(candidate.flags);
      break;
    }
  }
  return found;
}

}  // namespace headwise::typecheck
