#include "core/parallel/mesh.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"

namespace headwise {
namespace {

struct View {
  std::vector<MeshAxis> axes;         // of size above 1
  std::vector<std::int64_t> strides;  // in ranks, of each axis
  std::vector<std::string> names;     // in the order given, those of size 1 too
  std::map<std::string, std::vector<int>, std::less<>> numbers;

  void SetStrides() {
    strides.assign(axes.size(), 1);
    for (std::size_t i = axes.size(); i > 1; --i) {
      strides[i - 2] = strides[i - 1] * axes[i - 1].size;
    }
  }
};

void AddAxis(View& view, const MeshAxis& axis) {
  view.names.push_back(axis.name);
  auto& numbers = view.numbers[axis.name];
  if (axis.size == 1) return;
  numbers.push_back(static_cast<int>(view.axes.size()));
  view.axes.push_back(axis);
}

View ExpertView(std::int64_t size, std::int64_t ep) {
  View view;
  AddAxis(view, {"edp", size / ep});
  AddAxis(view, {"ep", ep});
  view.SetStrides();
  return view;
}

std::string AxisList(const View& view) {
  return absl::StrJoin(view.axes, ",", [](std::string* out, const MeshAxis& axis) {
    absl::StrAppend(out, axis.name, "=", axis.size);
  });
}

}  // namespace

const char* Name(MeshView view) { return view == MeshView::kDense ? "dense" : "expert"; }

struct Mesh::Grid {
  std::int64_t size = 1;
  View dense, expert;
  const View& Of(MeshView view) const { return view == MeshView::kDense ? dense : expert; }
};

Mesh::Mesh() : Mesh(*Create({{"dp", 1}, {"cp", 1}, {"tp", 1}})) {}

absl::StatusOr<Mesh> Mesh::Create(const std::vector<MeshAxis>& axes) {
  auto grid = std::make_shared<Grid>();
  for (const MeshAxis& axis : axes) {
    if (axis.name.empty() || grid->dense.numbers.contains(axis.name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("mesh: an axis needs a name of its own, found '", axis.name, "'"));
    }
    if (axis.size < 1 || axis.size > (std::int64_t{1} << 31) / grid->size) {
      return absl::InvalidArgumentError(
          absl::StrCat("mesh: axis ", axis.name, "=", axis.size,
                       ": a size is at least 1, and all ranks together at most 2^31"));
    }
    AddAxis(grid->dense, axis);
    grid->size *= axis.size;
  }
  if (grid->dense.axes.size() > kMaxAxes) {
    return absl::InvalidArgumentError(absl::StrCat("mesh: ", grid->dense.axes.size(),
                                                   " axes of size above 1, at most ", kMaxAxes));
  }
  grid->dense.SetStrides();
  grid->expert = ExpertView(grid->size, 1);
  return Mesh(std::move(grid));
}

absl::StatusOr<Mesh> Mesh::Parse(absl::string_view text) {
  std::map<std::string, std::int64_t> sizes = {{"dp", 1}, {"cp", 1}, {"tp", 1}, {"ep", 1}};
  std::vector<std::string> seen;
  for (const absl::string_view part : absl::StrSplit(text, ',', absl::SkipWhitespace())) {
    const std::vector<std::string> halves = absl::StrSplit(part, '=');
    std::int64_t size = 0;
    if (halves.size() != 2 || !sizes.contains(halves[0]) || !absl::SimpleAtoi(halves[1], &size) ||
        size < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("mesh '", text, "': '", part,
                       "' must be dp=N, cp=N, tp=N or ep=N with N at least 1, as in dp=2,tp=4"));
    }
    if (std::find(seen.begin(), seen.end(), halves[0]) != seen.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("mesh '", text, "': ", halves[0], " is given twice"));
    }
    seen.push_back(halves[0]);
    sizes[halves[0]] = size;
  }
  HW_ASSIGN_OR_RETURN(const Mesh mesh,
                      Create({{"dp", sizes["dp"]}, {"cp", sizes["cp"]}, {"tp", sizes["tp"]}}));
  return mesh.WithExperts(sizes["ep"]);
}

absl::StatusOr<Mesh> Mesh::WithExperts(std::int64_t ep) const {
  if (ep < 1 || size() % ep != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "mesh: ep=", ep, " does not divide the ", size(), " ranks of ", ToString(),
        "; experts are spread over groups of ep consecutive ranks: choose a divisor of ", size()));
  }
  auto grid = std::make_shared<Grid>(*grid_);
  grid->expert = ExpertView(size(), ep);
  return Mesh(std::move(grid));
}

absl::StatusOr<Mesh> Mesh::WithSubAxes(absl::string_view axis,
                                       const std::vector<MeshAxis>& parts) const {
  HW_ASSIGN_OR_RETURN(const std::vector<int> found, Find(MeshView::kDense, axis));
  const std::int64_t axis_size = found.empty() ? 1 : grid_->dense.axes[found[0]].size;
  std::int64_t product = 1;
  for (const MeshAxis& part : parts) product *= part.size;
  if (found.size() > 1 || product != axis_size) {
    return absl::InvalidArgumentError(absl::StrCat(
        "mesh: the sub-axes of ", axis, " must multiply to its size ", axis_size, ", found ",
        absl::StrJoin(parts, " x ", [](std::string* out, const MeshAxis& part) {
          absl::StrAppend(out, part.name, "=", part.size);
        })));
  }
  std::vector<MeshAxis> axes;
  for (const std::string& name : grid_->dense.names) {
    if (name == axis) {
      axes.insert(axes.end(), parts.begin(), parts.end());
    } else {
      const auto& numbers = grid_->dense.numbers.find(name)->second;
      axes.push_back({name, numbers.empty() ? 1 : grid_->dense.axes[numbers[0]].size});
    }
  }
  HW_ASSIGN_OR_RETURN(const Mesh flat, Create(axes));
  auto grid = std::make_shared<Grid>(*flat.grid_);
  grid->expert = grid_->expert;
  std::vector<int> whole;
  for (const MeshAxis& part : parts) {
    const auto& numbers = grid->dense.numbers.find(part.name)->second;
    whole.insert(whole.end(), numbers.begin(), numbers.end());
  }
  if (!grid->dense.numbers.emplace(std::string(axis), whole).second) {
    return absl::InvalidArgumentError(
        absl::StrCat("mesh: a sub-axis of ", axis, " needs another name than ", axis));
  }
  return Mesh(std::move(grid));
}

std::int64_t Mesh::size() const { return grid_->size; }

absl::Span<const MeshAxis> Mesh::Axes(MeshView view) const { return grid_->Of(view).axes; }

absl::StatusOr<std::vector<int>> Mesh::Find(MeshView view, absl::string_view name) const {
  const View& v = grid_->Of(view);
  const auto found = v.numbers.find(name);
  if (found != v.numbers.end()) return found->second;
  return absl::NotFoundError(absl::StrCat(
      "no axis '", name, "' in the ", Name(view), " view of the mesh; it has ",
      absl::StrJoin(v.numbers, ", ",
                    [](std::string* out, const auto& axis) { absl::StrAppend(out, axis.first); })));
}

std::int64_t Mesh::Coordinate(MeshView view, int axis, std::int64_t rank) const {
  const View& v = grid_->Of(view);
  return rank / v.strides[axis] % v.axes[axis].size;
}

std::vector<std::int64_t> Mesh::Group(MeshView view, absl::Span<const int> axes,
                                      std::int64_t rank) const {
  HW_CHECK(rank >= 0 && rank < size()) << "rank " << rank << " of " << size();
  const View& v = grid_->Of(view);
  for (const int axis : axes) rank -= Coordinate(view, axis, rank) * v.strides[axis];
  std::vector<std::int64_t> ranks = {rank};
  for (const int axis : axes) {
    std::vector<std::int64_t> next;
    for (const std::int64_t start : ranks) {
      for (std::int64_t i = 0; i < v.axes[axis].size; ++i) {
        next.push_back(start + i * v.strides[axis]);
      }
    }
    ranks = std::move(next);
  }
  return ranks;
}

std::string Mesh::ToString() const {
  std::string text = AxisList(grid_->dense);
  if (text.empty()) return "1 rank";
  for (const MeshAxis& axis : grid_->expert.axes) {
    if (axis.name == "ep") absl::StrAppend(&text, ",ep=", axis.size);
  }
  return text;
}

bool operator==(const Mesh& a, const Mesh& b) {
  return a.grid_ == b.grid_ || (a.grid_->dense.axes == b.grid_->dense.axes &&
                                a.grid_->expert.axes == b.grid_->expert.axes);
}

}  // namespace headwise
