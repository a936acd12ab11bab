#include "core/parallel/step.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/parallel/layout_error.h"
#include "core/parallel/layout_maker.h"

namespace headwise {
namespace {

using enum AxisType;

constexpr StepKind kKinds[] = {
    StepKind::kAllReduce, StepKind::kAllGather,   StepKind::kReduceScatter,  StepKind::kAllToAll,
    StepKind::kConvert,   StepKind::kReinterpret, StepKind::kReinterpretMesh};

// The table of the header.
constexpr struct {
  StepKind kind;
  AxisType from, to;
} kPossible[] = {
    {StepKind::kAllReduce, kPartial, kReplicate},   {StepKind::kAllReduce, kPartial, kInvariant},
    {StepKind::kAllGather, kShard, kReplicate},     {StepKind::kAllGather, kShard, kInvariant},
    {StepKind::kReduceScatter, kPartial, kShard},   {StepKind::kAllToAll, kShard, kShard},
    {StepKind::kConvert, kInvariant, kReplicate},   {StepKind::kConvert, kReplicate, kShard},
    {StepKind::kConvert, kInvariant, kShard},       {StepKind::kConvert, kReplicate, kPartial},
    {StepKind::kConvert, kShard, kPartial},         {StepKind::kReinterpret, kVarying, kPartial},
    {StepKind::kReinterpret, kReplicate, kVarying},
};

bool Possible(StepKind kind, AxisType from, AxisType to) {
  return std::any_of(std::begin(kPossible), std::end(kPossible), [&](const auto& row) {
    return row.kind == kind && row.from == from && row.to == to;
  });
}

bool Reduces(StepKind kind) {
  return kind == StepKind::kAllReduce || kind == StepKind::kReduceScatter;
}

absl::string_view WhyNot(StepKind kind, AxisType from, AxisType to) {
  if (Reduces(kind)) {
    switch (from) {
      case kReplicate:
      case kInvariant:
        return "there is no sum to make: every rank has the value already, and adding them up "
               "multiplies it by the number of ranks";
      case kShard:
        return "shares of a tensor are put side by side, not added up: all_gather";
      case kVarying:
        return "nothing says that these are terms of a sum; reinterpret V -> P says so";
      case kPartial:
        return kind == StepKind::kAllReduce
                   ? "an all_reduce leaves the whole sum on every rank, so the result is R or I"
                   : "a reduce_scatter leaves each rank its share of the sum, so the result is S";
    }
  }
  if (kind == StepKind::kAllGather) {
    return from == kShard ? "after an all_gather every rank has the whole, so the result is R or I"
           : from == kVarying ? "V does not say in what order to put the ranks' data"
           : from == kPartial ? "terms of a sum are added up, not put side by side: all_reduce"
                              : "every rank has the whole already";
  }
  if (kind == StepKind::kAllToAll) {
    return "an exchange moves the shares of one dimension to another: from S to S only";
  }
  if (kind == StepKind::kReinterpret) {
    return "saying that data are something else does not make them so; only V -> P, and R -> V "
           "where it is its backward, say nothing that is not true already";
  }
  if (from == kPartial)
    return "a sum over the ranks is finished by a reduction only: all_reduce or "
           "reduce_scatter";
  if (from == kVarying)
    return "nothing says how the ranks' data make a whole, or that they are the "
           "same";
  if (from == kShard && to == kShard) {
    return "shares go from one dimension to another by an all_to_all: every rank has a part of "
           "every other's";
  }
  if (from == to) return "it has this type already";
  if (from == kShard && to == kVarying) return "S says what V says of the same data, and more";
  if (from == kShard) return "a rank lacks the other ranks' shares: all_gather";
  if (from == kReplicate && to == kInvariant) {
    return "as R every rank uses the value in its own way and has its own part of the gradient; "
           "calling it I would drop the other ranks' parts. Reduce or gather to I in the first "
           "place";
  }
  if (to == kPartial) return "convert it to R first, so that its gradient is that of a sum's term";
  return "no rank would keep what the others have: reinterpret or slice an R";
}

// What a step on an axis of this type may give: "P to R or I".
std::string RowsOf(StepKind kind) {
  std::vector<std::string> rows;
  for (const auto& row : kPossible) {
    if (row.kind == kind) rows.push_back(absl::StrCat(Name(row.from), " -> ", Name(row.to)));
  }
  return absl::StrJoin(rows, ", ");
}

// Whether x's rows are those of experts, whose number on a rank only the ranks know, and the step
// does anything but send them from their tokens' ranks to their experts', or back.
bool CutsRows(const Step& step, int axis, const LayoutType& x) {
  const bool cuts = step.to == kShard || x.axis_type(axis) == kShard;
  for (int dim = 0; cuts && dim < x.rank(); ++dim) {
    const ShardedDim& factors = x.dims()[static_cast<std::size_t>(dim)];
    const bool rows = std::any_of(factors.begin(), factors.end(), [](const ShardedFactor& f) {
      return f.factor.kind == FactorKind::kRagged;
    });
    if (!rows) continue;
    const int from = x.ShardedBy(axis);
    const bool exchange = step.kind == StepKind::kAllToAll && dim > 0 &&
                          std::min(from, step.dim) == dim - 1 && std::max(from, step.dim) == dim;
    return !exchange;
  }
  return false;
}

absl::StatusOr<LayoutType> ApplyToAxis(const Step& step, int axis, const LayoutType& x) {
  const AxisType from = x.axis_type(axis);
  const std::string& axis_name = x.mesh().Axes(x.view())[axis].name;
  const auto error = [&](const std::string& why) {
    return LayoutError(step.ToString(), axis_name, {{"x", x}}, why);
  };
  const bool backward_only = step.kind == StepKind::kReinterpret && from == kReplicate;
  if (!Possible(step.kind, from, step.to) || (backward_only && !step.of_backward)) {
    return error(absl::StrCat(Name(step.kind), " knows ", RowsOf(step.kind), ", not ", Name(from),
                              " -> ", Name(step.to), ": ", WhyNot(step.kind, from, step.to)));
  }
  if (Reduces(step.kind) && SizeOf(x.dtype()) < 4 && !step.reduce_in.has_value()) {
    return error(absl::StrCat("a reduction in ", Name(x.dtype()),
                              " must say in what dtype it adds: ", Name(step.kind), "(F32) or ",
                              Name(step.kind), "(", Name(x.dtype()), ")"));
  }
  if (CutsRows(step, axis, x)) {
    return error(
        "how many rows an expert has depends on the tokens, so a rank's share of them is "
        "not known beforehand: an all_to_all between the experts and their rows is all "
        "that moves them");
  }
  LayoutMaker maker(x);
  if (from == kShard) {
    const int dim = x.ShardedBy(axis);
    const std::vector<int> axes = x.AxesOf(dim);
    if (axes.back() != axis) {
      return error(absl::StrCat("dimension ", dim, " is cut further by axis ",
                                x.mesh().Axes(x.view())[axes.back()].name,
                                ": undo the innermost axis first"));
    }
    if (step.kind == StepKind::kAllToAll && dim == step.dim) {
      return error(absl::StrCat("dimension ", dim, " is sharded by this axis already"));
    }
    maker.Unshard(axis);
  }
  if (step.to == kShard) {
    if (step.dim < 0 || step.dim >= x.rank()) {
      return error(absl::StrCat("there is no dimension ", step.dim));
    }
    if (absl::Status status = maker.Shard(step.dim, axis, step.sizes); !status.ok()) {
      return error(std::string(status.message()));
    }
  }
  maker.types[static_cast<std::size_t>(axis)] = step.to;
  return std::move(maker).Make();
}

// --- reinterpret_mesh ---

// Consecutive axes of each view that cover the same ranks.
struct AxisGroup {
  std::vector<int> from, to;
};

std::vector<AxisGroup> Groups(absl::Span<const MeshAxis> from, absl::Span<const MeshAxis> to) {
  std::vector<AxisGroup> groups;
  std::size_t i = 0, j = 0;
  while (i < from.size() || j < to.size()) {
    AxisGroup& group = groups.emplace_back();
    std::int64_t a = 1, b = 1;
    do {
      const bool take_from = i < from.size() && (a <= b || j == to.size());
      if (take_from) {
        a *= from[i].size;
        group.from.push_back(static_cast<int>(i++));
      } else {
        b *= to[j].size;
        group.to.push_back(static_cast<int>(j++));
      }
    } while (a != b);
  }
  return groups;
}

std::string NamesOf(absl::Span<const MeshAxis> axes, const std::vector<int>& group) {
  return absl::StrCat("{",
                      absl::StrJoin(group, ",",
                                    [&](std::string* out, int axis) {
                                      absl::StrAppend(out,
                                                      axes[static_cast<std::size_t>(axis)].name);
                                    }),
                      "}");
}

absl::StatusOr<LayoutType> ReinterpretMesh(const Step& step, const LayoutType& x) {
  const auto from_axes = x.mesh().Axes(x.view()), to_axes = x.mesh().Axes(step.view);
  if (x.view() == step.view) {
    return LayoutError(step.ToString(), "", {{"x", x}},
                       absl::StrCat("it is typed in the ", Name(x.view()), " view already"));
  }
  LayoutMaker maker(x.mesh(), step.view, x.dtype());
  maker.dims = x.dims();
  for (ShardedDim& dim : maker.dims) {
    for (ShardedFactor& f : dim) f.axes.clear();
  }
  for (const AxisGroup& group : Groups(from_axes, to_axes)) {
    const AxisType type = x.axis_type(group.from[0]);
    const auto mixed = [&](const char* why) {
      return LayoutError(
          step.ToString(), from_axes[static_cast<std::size_t>(group.from[0])].name, {{"x", x}},
          absl::StrCat("the axes ", NamesOf(from_axes, group.from), " cover the ranks of ",
                       NamesOf(to_axes, group.to), ", so the type must be uniform on them: ", why));
    };
    for (const int axis : group.from) {
      if (x.axis_type(axis) != type) return mixed("here the types differ");
    }
    for (const int axis : group.to) maker.types[static_cast<std::size_t>(axis)] = type;
    if (type != kShard) continue;
    for (std::size_t d = 0; d < x.dims().size(); ++d) {
      for (std::size_t i = 0; i < x.dims()[d].size(); ++i) {
        const ShardedFactor& f = x.dims()[d][i];
        const auto at =
            std::search(f.axes.begin(), f.axes.end(), group.from.begin(), group.from.end());
        if (at == f.axes.end()) {
          if (std::find(f.axes.begin(), f.axes.end(), group.from[0]) == f.axes.end()) continue;
          return mixed("they must shard one factor, consecutively and in this order");
        }
        if (!f.sizes.empty() && group.from.size() + group.to.size() > 2) {
          return mixed("a table of sizes belongs to one axis");
        }
        auto& axes = maker.dims[d][i].axes;
        axes.insert(axes.end(), group.to.begin(), group.to.end());
      }
    }
  }
  // The loop put the new axes in the order of the mesh, which must be that of the old ones.
  for (std::size_t d = 0; d < x.dims().size(); ++d) {
    for (const ShardedFactor& f : x.dims()[d]) {
      if (!std::is_sorted(f.axes.begin(), f.axes.end())) {
        return LayoutError(step.ToString(), "", {{"x", x}},
                           absl::StrCat("the axes of ", f.factor.ToString(),
                                        " do not come in the order of the mesh"));
      }
    }
  }
  return std::move(maker).Make();
}

}  // namespace

absl::StatusOr<std::vector<int>> AxesOf(const Step& step, const LayoutType& x) {
  HW_ASSIGN_OR_RETURN(std::vector<int> axes, x.mesh().Find(x.view(), step.axis));
  // What undoes shares begins with the innermost.
  const bool undoes =
      step.kind == StepKind::kAllGather ||
      (step.kind == StepKind::kConvert && !axes.empty() && x.axis_type(axes.back()) == kShard);
  if (undoes) std::reverse(axes.begin(), axes.end());
  return axes;
}

const char* Name(StepKind kind) {
  static constexpr const char* kNames[] = {"all_reduce",      "all_gather", "reduce_scatter",
                                           "all_to_all",      "convert",    "reinterpret",
                                           "reinterpret_mesh"};
  return kNames[static_cast<int>(kind)];
}

absl::StatusOr<Step> Step::Parse(absl::string_view text) {
  const auto unreadable = [&] {
    return absl::InvalidArgumentError(
        absl::StrCat("step '", text,
                     "' must be like all_gather@tp -> R, reduce_scatter(F32)@tp -> S(0), "
                     "convert@tp -> P or reinterpret_mesh -> expert; a step is on one axis, and "
                     "several steps stand with ; between them"));
  };
  const std::vector<absl::string_view> sides = absl::StrSplit(text, "->");
  if (sides.size() != 2) return unreadable();
  const absl::string_view left = absl::StripAsciiWhitespace(sides[0]);
  const absl::string_view right = absl::StripAsciiWhitespace(sides[1]);
  const std::vector<absl::string_view> halves = absl::StrSplit(left, '@');
  absl::string_view kind = halves[0];
  Step step;
  if (const std::size_t open = kind.find('('); open != absl::string_view::npos) {
    absl::string_view dtype = kind.substr(open + 1);
    if (!absl::ConsumeSuffix(&dtype, ")")) return unreadable();
    for (const DType known : {DType::kF32, DType::kBF16, DType::kF64, DType::kF16}) {
      if (dtype == headwise::Name(known)) step.reduce_in = known;
    }
    if (!step.reduce_in.has_value()) return unreadable();
    kind = kind.substr(0, open);
  }
  const auto* found = std::find_if(std::begin(kKinds), std::end(kKinds),
                                   [&](StepKind k) { return kind == headwise::Name(k); });
  if (found == std::end(kKinds)) return unreadable();
  step.kind = *found;
  if (step.kind == StepKind::kReinterpretMesh) {
    if (halves.size() != 1 || (right != "expert" && right != "dense")) return unreadable();
    step.view = right == "expert" ? MeshView::kExpert : MeshView::kDense;
    return step;
  }
  if (halves.size() != 2) return unreadable();
  // The rest has the syntax of a layout.
  const auto spec = LayoutSpec::Parse(absl::StrCat(right, "@", halves[1]));
  if (!spec.ok() || spec->axes.size() != 1) return unreadable();
  step.axis = spec->axes[0].axis;
  step.to = spec->axes[0].type;
  step.dim = spec->axes[0].dim;
  step.sizes = spec->axes[0].sizes;
  return step;
}

std::string Step::ToString() const {
  std::string text = headwise::Name(kind);
  if (kind == StepKind::kReinterpretMesh) return absl::StrCat(text, " -> ", headwise::Name(view));
  if (reduce_in.has_value()) absl::StrAppend(&text, "(", headwise::Name(*reduce_in), ")");
  absl::StrAppend(&text, "@", axis, " -> ", headwise::Name(to));
  if (to == kShard) {
    absl::StrAppend(&text, "(", dim, sizes.empty() ? "" : ": ", absl::StrJoin(sizes, " "), ")");
  }
  return text;
}

absl::StatusOr<LayoutType> Apply(const Step& step, const LayoutType& x) {
  if (!x.defined()) return LayoutType();
  if (step.kind == StepKind::kReinterpretMesh) return ReinterpretMesh(step, x);
  HW_ASSIGN_OR_RETURN(const std::vector<int> axes, AxesOf(step, x));
  LayoutType result = x;
  for (const int axis : axes) {
    HW_ASSIGN_OR_RETURN(result, ApplyToAxis(step, axis, result));
  }
  return result;
}

Step BackwardOf(const Step& step, const LayoutType& x) {
  Step back = step;
  if (!x.defined()) return back;
  if (step.kind == StepKind::kReinterpretMesh) {
    back.view = x.view();
    return back;
  }
  const auto axes = AxesOf(step, x);
  HW_CHECK(axes.ok()) << axes.status();
  if (axes->empty()) return back;
  const int axis = axes->front();
  const AxisType from = x.axis_type(axis);
  HW_CHECK(Possible(step.kind, from, step.to)) << step.ToString() << " of " << x.ToString();
  // The gradient goes from the dual of the result's type to the dual of x's.
  const AxisType gradient = DualOf(step.to);
  back.to = DualOf(from);
  back.sizes.clear();
  if (from == kShard) {
    back.dim = x.ShardedBy(axis);
    for (const ShardedFactor& f : x.dims()[static_cast<std::size_t>(back.dim)]) {
      if (!f.axes.empty() && f.axes[0] == axis) back.sizes = f.sizes;
    }
  } else {
    back.dim = 0;
  }
  for (const auto& row : kPossible) {
    // Of the rows between these types, the one that a table of duals names: a reinterpretation
    // stays one, an exchange an exchange, and otherwise there is one row only.
    const bool same_family =
        (row.kind == StepKind::kReinterpret) == (step.kind == StepKind::kReinterpret);
    if (row.from == gradient && row.to == back.to && same_family) back.kind = row.kind;
  }
  back.of_backward = back.kind == StepKind::kReinterpret && back.to == kVarying;
  return back;
}

std::int64_t BytesSent(const Step& step, const LayoutType& x) {
  if (!x.defined() || step.kind == StepKind::kReinterpretMesh) return 0;
  const auto axes = AxesOf(step, x);
  HW_CHECK(axes.ok()) << axes.status();
  std::int64_t ranks = 1;
  for (const int axis : *axes)
    ranks *= x.mesh().Axes(x.view())[static_cast<std::size_t>(axis)].size;
  const std::int64_t bytes = x.LocalBytes(0);
  switch (step.kind) {
    case StepKind::kAllReduce:
      return 2 * (bytes - bytes / ranks);
    case StepKind::kAllGather:
      return bytes * (ranks - 1);
    case StepKind::kReduceScatter:
    case StepKind::kAllToAll:
      return bytes - bytes / ranks;
    default:
      return 0;
  }
}

}  // namespace headwise
