#include "core/parallel/layout_type.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/parallel/layout_maker.h"

namespace headwise {
namespace {

std::string DimToString(const ShardedDim& dim) {
  if (dim.empty()) return "1";
  return absl::StrJoin(dim, " ", [](std::string* out, const ShardedFactor& f) {
    absl::StrAppend(out, f.factor.ToString());
  });
}

std::string Divisors(std::int64_t n) {
  std::vector<std::int64_t> divisors;
  for (std::int64_t d = 1; d <= n && divisors.size() < 12; ++d) {
    if (n % d == 0) divisors.push_back(d);
  }
  return absl::StrJoin(divisors, ", ");
}

std::string TermList(const Factor& factor) {
  return absl::StrJoin(factor.terms, " | ", [](std::string* out, const Term& term) {
    absl::StrAppend(out, term.name, " ", SizeOf(term.factors));
  });
}

}  // namespace

const char* Name(AxisType type) {
  static constexpr const char* kNames[] = {"R", "I", "V", "P", "S"};
  return kNames[static_cast<int>(type)];
}

AxisType DualOf(AxisType type) {
  switch (type) {
    case AxisType::kReplicate:
      return AxisType::kPartial;
    case AxisType::kPartial:
      return AxisType::kReplicate;
    default:
      return type;
  }
}

absl::StatusOr<LayoutSpec> LayoutSpec::Parse(absl::string_view text) {
  LayoutSpec spec;
  absl::string_view rest = absl::StripAsciiWhitespace(text);
  if (absl::ConsumePrefix(&rest, "expert:")) spec.view = MeshView::kExpert;
  for (absl::string_view part : absl::StrSplit(rest, ',', absl::SkipWhitespace())) {
    part = absl::StripAsciiWhitespace(part);
    const std::vector<absl::string_view> halves = absl::StrSplit(part, '@');
    const auto unreadable = [&] {
      return absl::InvalidArgumentError(absl::StrCat(
          "layout '", text, "': '", part,
          "' must be R, I, V, P or S(dim), then @axis; nothing at all is R on every axis"));
    };
    if (halves.size() != 2 || halves[0].empty() || halves[1].empty()) return unreadable();
    AxisSpec axis = {.axis = std::string(halves[1])};
    absl::string_view type = halves[0];
    if (absl::ConsumePrefix(&type, "S(")) {
      if (!absl::ConsumeSuffix(&type, ")")) return unreadable();
      const std::vector<absl::string_view> inside = absl::StrSplit(type, absl::MaxSplits(':', 1));
      axis.type = AxisType::kShard;
      if (!absl::SimpleAtoi(inside[0], &axis.dim) || axis.dim < 0) return unreadable();
      if (inside.size() == 2) {
        for (const absl::string_view size : absl::StrSplit(inside[1], ' ', absl::SkipEmpty())) {
          if (!absl::SimpleAtoi(size, &axis.sizes.emplace_back())) return unreadable();
        }
      }
    } else if (type == "R" || type == "I" || type == "V" || type == "P") {
      axis.type = type == "R"   ? AxisType::kReplicate
                  : type == "I" ? AxisType::kInvariant
                  : type == "V" ? AxisType::kVarying
                                : AxisType::kPartial;
    } else {
      return unreadable();
    }
    spec.axes.push_back(std::move(axis));
  }
  return spec;
}

std::string LayoutSpec::ToString() const {
  return absl::StrCat(view == MeshView::kExpert ? "expert: " : "",
                      absl::StrJoin(axes, ", ", [](std::string* out, const AxisSpec& axis) {
                        absl::StrAppend(out, Name(axis.type));
                        if (axis.type == AxisType::kShard) {
                          absl::StrAppend(out, "(", axis.dim, axis.sizes.empty() ? "" : ": ",
                                          absl::StrJoin(axis.sizes, " "), ")");
                        }
                        absl::StrAppend(out, "@", axis.axis);
                      }));
}

std::int64_t ShardedFactor::Share(const Mesh& mesh, MeshView view) const {
  if (!sizes.empty()) return 1;
  std::int64_t ranks = 1;
  for (const int axis : axes) ranks *= mesh.Axes(view)[axis].size;
  return factor.kind == FactorKind::kRagged ? (factor.size + ranks - 1) / ranks
                                            : factor.size / ranks;
}

struct LayoutType::Data {
  Mesh mesh;
  MeshView view;
  DType dtype;
  std::vector<ShardedDim> dims;
  std::vector<AxisType> types;
};

// --- LayoutMaker ---

LayoutMaker::LayoutMaker(const LayoutType& from)
    : mesh(from.mesh()),
      view(from.view()),
      dtype(from.dtype()),
      dims(from.dims()),
      types(from.axis_types().begin(), from.axis_types().end()) {}

LayoutMaker::LayoutMaker(const Mesh& mesh, MeshView view, DType dtype)
    : mesh(mesh), view(view), dtype(dtype), types(mesh.Axes(view).size()) {}

absl::Status LayoutMaker::Shard(int dim, int axis, std::vector<std::int64_t> sizes) {
  const MeshAxis& mesh_axis = mesh.Axes(view)[axis];
  const std::string where =
      absl::StrCat("axis ", mesh_axis.name, " (", mesh_axis.size, ") cannot shard dimension ", dim,
                   " [", DimToString(dims[dim]), "]: ");
  for (std::size_t i = 0; i < dims[dim].size(); ++i) {
    ShardedFactor& f = dims[dim][i];
    const std::int64_t share = f.Share(mesh, view);
    if (share == 1) continue;
    if (f.factor.kind == FactorKind::kWhole) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, "only ", f.factor.ToString(), " is left of it, which stays whole"));
    }
    if (f.factor.kind == FactorKind::kSum) {
      return absl::InvalidArgumentError(absl::StrCat(
          where, f.factor.name, " is a concatenation [", TermList(f.factor),
          "], and a rank's share of it is not a share of each part; interleave the parts, so that "
          "an outer factor is sharded"));
    }
    if (!sizes.empty()) {
      std::int64_t sum = 0;
      for (const std::int64_t size : sizes) sum += size;
      if (!f.axes.empty() || static_cast<std::int64_t>(sizes.size()) != mesh_axis.size ||
          sum != f.factor.size ||
          std::any_of(sizes.begin(), sizes.end(), [](std::int64_t size) { return size < 0; })) {
        return absl::InvalidArgumentError(absl::StrCat(
            where, "the sizes (", absl::StrJoin(sizes, " "), ") must be ", mesh_axis.size,
            " numbers that add up to ", f.factor.ToString(), ", of which nothing is sharded yet"));
      }
      f.sizes = std::move(sizes);
    } else if (f.factor.kind != FactorKind::kRagged && share % mesh_axis.size != 0) {
      const std::string left =
          share == f.factor.size
              ? f.factor.ToString()
              : absl::StrCat("the ", share, " that is left of ", f.factor.ToString());
      std::string advice = absl::StrCat(mesh_axis.name, " = ", Divisors(share), " would do");
      if (mesh_axis.size % share == 0) {
        absl::StrAppend(&advice, ", or sub-axes of ", mesh_axis.name, ", the first of size ", share,
                        " for ", f.factor.name, ", the second of size ", mesh_axis.size / share,
                        " replicating it");
      }
      return absl::InvalidArgumentError(
          absl::StrCat(where, mesh_axis.size, " does not divide ", left, "; ", advice));
    }
    f.axes.push_back(axis);
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(where, "nothing is left of it to shard"));
}

void LayoutMaker::Unshard(int axis) {
  for (ShardedDim& dim : dims) {
    for (ShardedFactor& f : dim) {
      if (!f.axes.empty() && f.axes[0] == axis) f.sizes.clear();
      std::erase(f.axes, axis);
    }
  }
}

LayoutType LayoutMaker::Make() && {
  std::vector<int> uses(types.size(), 0);
  for (ShardedDim& dim : dims) {
    std::erase_if(dim, [](const ShardedFactor& f) { return f.factor.size == 1 && f.axes.empty(); });
    for (const ShardedFactor& f : dim) {
      for (const int axis : f.axes) ++uses[axis];
    }
  }
  for (std::size_t axis = 0; axis < types.size(); ++axis) {
    HW_CHECK_EQ(uses[axis], types[axis] == AxisType::kShard ? 1 : 0)
        << "axis " << mesh.Axes(view)[axis].name;
  }
  return LayoutType(std::make_shared<const LayoutType::Data>(
      LayoutType::Data{std::move(mesh), view, dtype, std::move(dims), std::move(types)}));
}

// --- LayoutType ---

absl::StatusOr<LayoutType> LayoutType::Declare(const Mesh& mesh, const std::vector<Dim>& shape,
                                               DType dtype, const LayoutSpec& spec) {
  LayoutMaker maker(mesh, spec.view, dtype);
  for (const Dim& dim : shape) {
    ShardedDim& sharded = maker.dims.emplace_back();
    for (const Factor& factor : dim) sharded.push_back({.factor = factor});
  }
  std::vector<bool> mentioned(maker.types.size(), false);
  for (const AxisSpec& axis_spec : spec.axes) {
    HW_ASSIGN_OR_RETURN(const std::vector<int> axes, mesh.Find(spec.view, axis_spec.axis));
    const bool shard = axis_spec.type == AxisType::kShard;
    if (shard && axis_spec.dim >= static_cast<int>(shape.size())) {
      return absl::InvalidArgumentError(absl::StrCat("layout '", spec.ToString(), "': dimension ",
                                                     axis_spec.dim, " of a tensor of rank ",
                                                     shape.size()));
    }
    if (!axis_spec.sizes.empty() && axes.size() > 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("layout '", spec.ToString(), "': sizes need an axis without sub-axes"));
    }
    for (const int axis : axes) {
      if (mentioned[axis]) {
        return absl::InvalidArgumentError(absl::StrCat("layout '", spec.ToString(), "': axis ",
                                                       mesh.Axes(spec.view)[axis].name,
                                                       " occurs twice in one tensor"));
      }
      mentioned[axis] = true;
      if (shard) HW_RETURN_IF_ERROR(maker.Shard(axis_spec.dim, axis, axis_spec.sizes));
      maker.types[axis] = axis_spec.type;
    }
  }
  return std::move(maker).Make();
}

const Mesh& LayoutType::mesh() const { return data_->mesh; }
MeshView LayoutType::view() const { return data_->view; }
DType LayoutType::dtype() const { return data_->dtype; }
int LayoutType::rank() const { return static_cast<int>(data_->dims.size()); }
const std::vector<ShardedDim>& LayoutType::dims() const { return data_->dims; }
absl::Span<const AxisType> LayoutType::axis_types() const { return data_->types; }

int LayoutType::ShardedBy(int axis) const {
  if (axis_type(axis) != AxisType::kShard) return -1;
  for (int dim = 0; dim < rank(); ++dim) {
    for (const ShardedFactor& f : dims()[dim]) {
      if (std::find(f.axes.begin(), f.axes.end(), axis) != f.axes.end()) return dim;
    }
  }
  return -1;
}

std::vector<int> LayoutType::AxesOf(int dim) const {
  std::vector<int> axes;
  for (const ShardedFactor& f : dims()[dim]) axes.insert(axes.end(), f.axes.begin(), f.axes.end());
  return axes;
}

std::vector<std::int64_t> LayoutType::GlobalShape() const {
  std::vector<std::int64_t> shape;
  for (const ShardedDim& dim : dims()) {
    std::int64_t size = 1;
    for (const ShardedFactor& f : dim) size *= f.factor.size;
    shape.push_back(size);
  }
  return shape;
}

std::vector<std::int64_t> LayoutType::LocalShape(std::int64_t rank) const {
  std::vector<std::int64_t> shape;
  for (const ShardedDim& dim : dims()) {
    std::int64_t size = 1;
    for (const ShardedFactor& f : dim) {
      size *= f.sizes.empty()
                  ? f.Share(mesh(), view())
                  : f.sizes[static_cast<std::size_t>(mesh().Coordinate(view(), f.axes[0], rank))];
    }
    shape.push_back(size);
  }
  return shape;
}

std::int64_t LayoutType::LocalBytes(std::int64_t rank) const {
  std::int64_t bytes = SizeOf(dtype());
  for (const std::int64_t size : LocalShape(rank)) bytes *= size;
  return bytes;
}

bool LayoutType::uniform() const {
  for (const ShardedDim& dim : dims()) {
    for (const ShardedFactor& f : dim) {
      if (!f.sizes.empty()) return false;
    }
  }
  return true;
}

std::string LayoutType::AxisToString(int axis) const {
  const int dim = ShardedBy(axis);
  if (dim < 0) return Name(axis_type(axis));
  for (const ShardedFactor& f : dims()[dim]) {
    if (std::find(f.axes.begin(), f.axes.end(), axis) == f.axes.end()) continue;
    return absl::StrCat("S(", f.factor.name, f.sizes.empty() ? "" : ": ",
                        absl::StrJoin(f.sizes, " "), ")");
  }
  return "S";
}

std::string LayoutType::ToString(bool brief) const {
  if (!defined()) return "unknown";
  std::string text = absl::StrCat(Name(dtype()), "[",
                                  absl::StrJoin(dims(), ", ",
                                                [](std::string* out, const ShardedDim& dim) {
                                                  absl::StrAppend(out, DimToString(dim));
                                                }),
                                  "]");
  for (std::size_t axis = 0; axis < axis_types().size(); ++axis) {
    if (brief && axis_types()[axis] == AxisType::kReplicate) continue;
    absl::StrAppend(&text, " ", mesh().Axes(view())[axis].name, ":",
                    AxisToString(static_cast<int>(axis)));
  }
  return text;
}

bool operator==(const LayoutType& a, const LayoutType& b) {
  if (a.data_ == b.data_) return true;
  if (!a.defined() || !b.defined()) return false;
  return a.data_->mesh == b.data_->mesh && a.data_->view == b.data_->view &&
         a.data_->dtype == b.data_->dtype && a.data_->dims == b.data_->dims &&
         a.data_->types == b.data_->types;
}

namespace {

struct Share {
  std::int64_t begin = 0, size = 0;
};

// A rank's share of one factor.
Share ShareOf(const LayoutType& type, const ShardedFactor& f, std::int64_t rank) {
  Share share = {.size = f.factor.size};
  std::size_t next = 0;
  if (!f.sizes.empty()) {
    const auto place =
        static_cast<std::size_t>(type.mesh().Coordinate(type.view(), f.axes[0], rank));
    for (std::size_t i = 0; i < place; ++i) share.begin += f.sizes[i];
    share.size = f.sizes[place];
    next = 1;
  }
  for (; next < f.axes.size(); ++next) {
    const int axis = f.axes[next];
    share.size /= type.mesh().Axes(type.view())[static_cast<std::size_t>(axis)].size;
    share.begin += type.mesh().Coordinate(type.view(), axis, rank) * share.size;
  }
  return share;
}

}  // namespace

std::int64_t ShareBegin(const LayoutType& type, int dim, std::int64_t rank) {
  const ShardedDim& factors = type.dims()[static_cast<std::size_t>(dim)];
  std::int64_t begin = 0, outer = 1;
  for (const ShardedFactor& f : factors) {
    const Share share = ShareOf(type, f, rank);
    HW_CHECK(f.axes.empty() || outer == 1)
        << "a share of dimension " << dim << " is no range of " << type.ToString();
    begin = begin * f.factor.size + share.begin;
    outer *= share.size;
  }
  return begin;
}

absl::Status CheckDual(const LayoutType& gradient, const LayoutType& value) {
  if (!gradient.defined() || !value.defined()) return absl::OkStatus();
  const auto differ = [&](const std::string& why) {
    return absl::FailedPreconditionError(
        absl::StrCat("gradient ", gradient.ToString(), " of ", value.ToString(), ": ", why));
  };
  if (!(gradient.mesh() == value.mesh()) || gradient.view() != value.view()) {
    return differ("they lie on different meshes or views");
  }
  if (gradient.rank() != value.rank()) return differ("the ranks differ");
  for (int axis = 0; axis < static_cast<int>(value.axis_types().size()); ++axis) {
    const AxisType dual = DualOf(value.axis_type(axis));
    if (gradient.axis_type(axis) == dual &&
        (dual != AxisType::kShard || gradient.ShardedBy(axis) == value.ShardedBy(axis))) {
      continue;
    }
    return differ(absl::StrCat("on axis ", value.mesh().Axes(value.view())[axis].name, " it is ",
                               gradient.AxisToString(axis), ", and the gradient of ",
                               value.AxisToString(axis), " is ",
                               dual == AxisType::kShard ? value.AxisToString(axis) : Name(dual)));
  }
  for (int dim = 0; dim < value.rank(); ++dim) {
    if (gradient.dims()[dim] != value.dims()[dim]) {
      return differ(absl::StrCat("dimension ", dim, " differs: [",
                                 DimToString(gradient.dims()[dim]), "] and [",
                                 DimToString(value.dims()[dim]), "]"));
    }
  }
  return absl::OkStatus();
}

}  // namespace headwise
