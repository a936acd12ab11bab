#include "core/parallel/op_rules.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/parallel/index_rule.h"
#include "core/parallel/layout_maker.h"

namespace headwise {
namespace {

using enum AxisType;

// Factors of size 1 are left out, as everywhere.
ShardedDim Unsharded(const Dim& dim) {
  ShardedDim sharded;
  for (const Factor& factor : dim) {
    if (factor.size != 1) sharded.push_back({.factor = factor});
  }
  return sharded;
}

void CheckDim(absl::string_view op, const LayoutType& x, int dim) {
  HW_CHECK(dim >= 0 && dim < x.rank()) << op << ": dimension " << dim << " of " << x.ToString();
}

// The first axis that shards `dim`; -1.
int ShardingAxis(const LayoutType& x, int dim) {
  const std::vector<int> axes = x.AxesOf(dim);
  return axes.empty() ? -1 : axes[0];
}

std::string AxisName(const LayoutType& x, int axis) { return x.mesh().Axes(x.view())[axis].name; }

// Rows per expert as a factor that the axes of x's tokens shard.
ShardedFactor RowsOfExpert(const LayoutType& x, const Factor& experts, std::int64_t chosen) {
  std::int64_t tokens = 1;
  for (const ShardedFactor& f : x.dims()[0]) tokens *= f.factor.size;
  return {.factor = Factor::Ragged("R", (tokens * chosen + experts.size - 1) / experts.size),
          .axes = x.AxesOf(0)};
}

absl::Status CheckUngrouped(absl::string_view op, const Operand& rows, const Operand& like) {
  const LayoutType& x = rows.type;
  HW_CHECK(x.rank() > 0 && !x.dims()[0].empty()) << op << ": " << x.ToString();
  const ShardedFactor& first = x.dims()[0][0];
  if (first.factor.kind != FactorKind::kRagged && !first.axes.empty()) {
    return LayoutError(op, AxisName(x, first.axes[0]), {rows},
                       "the rows are still with their experts' ranks; exchange them back "
                       "(all_to_all) first");
  }
  if (x.view() != like.type.view()) {
    return LayoutError(op, "", {rows, like},
                       "the rows are typed in another view of the mesh than the tokens; "
                       "reinterpret_mesh back first");
  }
  const std::vector<int> of_rows = x.AxesOf(0), of_tokens = like.type.AxesOf(0);
  if (of_rows != of_tokens) {
    const int axis = of_rows.empty() ? of_tokens[0] : of_rows[0];
    return LayoutError(op, AxisName(x, axis), {rows, like},
                       "rows and tokens are sharded by different axes, so a rank would add rows to "
                       "tokens that it does not hold");
  }
  return absl::OkStatus();
}

// Joins `rows` and `like` on the axes that shard neither.
absl::StatusOr<LayoutType> Ungroup(absl::string_view op, const Operand& rows, const Operand& like,
                                   int kept_dims) {
  if (!rows.type.defined() || !like.type.defined()) return LayoutType();
  HW_RETURN_IF_ERROR(CheckUngrouped(op, rows, like));
  LayoutMaker maker(rows.type);
  std::vector<ShardedDim> dims(like.type.dims().begin(), like.type.dims().begin() + kept_dims);
  dims.insert(dims.end(), maker.dims.begin() + 1, maker.dims.end());
  maker.dims = std::move(dims);
  return std::move(maker).Make();
}

}  // namespace

absl::StatusOr<LayoutType> Cast(const LayoutType& x, DType dtype) {
  if (!x.defined()) return LayoutType();
  const bool widens = SizeOf(dtype) >= SizeOf(x.dtype());
  HW_ASSIGN_OR_RETURN(
      const LayoutType same,
      DeriveElementwise("cast", widens ? OpKind::kLinear : OpKind::kNonlinear, {{"x", x}}));
  LayoutMaker maker(same);
  maker.dtype = dtype;
  return std::move(maker).Make();
}

LayoutType SplitDim(const LayoutType& x, int dim, absl::Span<const absl::string_view> leading) {
  if (!x.defined()) return LayoutType();
  CheckDim("split", x, dim);
  LayoutMaker maker(x);
  ShardedDim& rest = maker.dims[static_cast<std::size_t>(dim)];
  const auto end = std::find_if(rest.begin(), rest.end(), [&](const ShardedFactor& f) {
    return std::find(leading.begin(), leading.end(), f.factor.name) == leading.end();
  });
  ShardedDim first(rest.begin(), end);
  rest.erase(rest.begin(), end);
  maker.dims.insert(maker.dims.begin() + dim, std::move(first));
  return std::move(maker).Make();
}

LayoutType MergeDims(const LayoutType& x, int first, int count) {
  if (!x.defined()) return LayoutType();
  HW_CHECK(count > 0);
  CheckDim("merge", x, first);
  CheckDim("merge", x, first + count - 1);
  LayoutMaker maker(x);
  const auto begin = maker.dims.begin() + first;
  for (auto next = begin + 1; next != begin + count; ++next) {
    begin->insert(begin->end(), next->begin(), next->end());
  }
  maker.dims.erase(begin + 1, begin + count);
  return std::move(maker).Make();
}

absl::StatusOr<LayoutType> TakeTerm(absl::string_view op, const LayoutType& x, int dim,
                                    absl::string_view term) {
  if (!x.defined()) return LayoutType();
  CheckDim(op, x, dim);
  HW_ASSIGN_OR_RETURN(const LayoutType same, DeriveElementwise(op, OpKind::kLinear, {{"x", x}}));
  LayoutMaker maker(same);
  ShardedDim& taken = maker.dims[static_cast<std::size_t>(dim)];
  HW_CHECK(taken.size() == 1 && taken[0].factor.kind == FactorKind::kSum && taken[0].axes.empty())
      << op << ": dimension " << dim << " of " << x.ToString() << " is no concatenation";
  const std::vector<Term> terms = taken[0].factor.terms;
  const auto found =
      std::find_if(terms.begin(), terms.end(), [&](const Term& t) { return t.name == term; });
  HW_CHECK(found != terms.end()) << op << ": no term " << term << " in " << x.ToString();
  taken = Unsharded(found->factors);
  return std::move(maker).Make();
}

absl::StatusOr<LayoutType> ConcatTerms(absl::string_view op, absl::Span<const Operand> parts,
                                       int dim, const Factor& sum) {
  HW_CHECK_EQ(parts.size(), sum.terms.size()) << op;
  // What the parts have in common: they without the dimension.
  std::vector<LayoutType> rests;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const LayoutType& part = parts[i].type;
    if (!part.defined()) return LayoutType();
    CheckDim(op, part, dim);
    if (const int axis = ShardingAxis(part, dim); axis >= 0) {
      return LayoutError(op, AxisName(part, axis), {parts[i]},
                         absl::StrCat("it is concatenated along dimension ", dim,
                                      ", of which a rank has a share: the ranks' concatenations "
                                      "would interleave the parts"));
    }
    LayoutMaker rest(part);
    HW_CHECK(rest.dims[static_cast<std::size_t>(dim)] == Unsharded(sum.terms[i].factors))
        << op << ": " << parts[i].name << " " << part.ToString() << " is no term "
        << sum.terms[i].name;
    rest.dims[static_cast<std::size_t>(dim)].clear();
    rests.push_back(std::move(rest).Make());
  }
  std::vector<Operand> operands;
  for (std::size_t i = 0; i < parts.size(); ++i) operands.push_back({parts[i].name, rests[i]});
  HW_ASSIGN_OR_RETURN(const LayoutType joined, DeriveElementwise(op, OpKind::kLinear, operands));
  LayoutMaker maker(joined);
  maker.dims[static_cast<std::size_t>(dim)] = {{.factor = sum}};
  return std::move(maker).Make();
}

absl::StatusOr<LayoutType> OneHot(absl::string_view op, const Operand& tokens, const Operand& table,
                                  bool masked) {
  if (!tokens.type.defined() || !table.type.defined()) return LayoutType();
  CheckDim(op, table.type, 0);
  if (const int axis = ShardingAxis(table.type, 0); axis >= 0 && !masked) {
    return LayoutError(op, AxisName(table.type, axis), {tokens, table},
                       "a rank holds a share of the rows, and without a mask it would read some "
                       "other row for every id that it does not hold");
  }
  LayoutMaker rows(table.type);
  rows.dims.resize(1);
  for (std::size_t axis = 0; axis < rows.types.size(); ++axis) {
    if (table.type.ShardedBy(static_cast<int>(axis)) > 0) rows.types[axis] = kReplicate;
  }
  const LayoutType vocabulary = std::move(rows).Make();
  return DeriveIndexed({.op = op, .letters = "t,v->tv", .kind = OpKind::kNonlinear},
                       {tokens, {table.name, vocabulary}});
}

absl::StatusOr<LayoutType> TopK(absl::string_view op, const Operand& x, const Factor& chosen) {
  if (!x.type.defined()) return LayoutType();
  HW_CHECK_EQ(x.type.rank(), 2) << op;
  HW_ASSIGN_OR_RETURN(
      const LayoutType best,
      DeriveIndexed({.op = op, .letters = "te->t", .kind = OpKind::kNonlinear, .whole = "e"}, {x}));
  LayoutMaker maker(best);
  maker.dims.push_back({{.factor = chosen}});
  return std::move(maker).Make();
}

absl::StatusOr<LayoutType> TakeRange(absl::string_view op, const Operand& x, int dim,
                                     const Factor& kept) {
  if (!x.type.defined()) return LayoutType();
  CheckDim(op, x.type, dim);
  if (const int axis = ShardingAxis(x.type, dim); axis >= 0) {
    return LayoutError(op, AxisName(x.type, axis), {x},
                       absl::StrCat("it takes a range of dimension ", dim,
                                    ", of which a rank has a share: which rank holds the range "
                                    "depends on its numbers"));
  }
  HW_ASSIGN_OR_RETURN(const LayoutType same, DeriveElementwise(op, OpKind::kLinear, {x}));
  LayoutMaker maker(same);
  maker.dims[static_cast<std::size_t>(dim)] = {{.factor = kept}};
  return std::move(maker).Make();
}

absl::StatusOr<LayoutType> GroupRows(absl::string_view op, const Operand& x, const Factor& experts,
                                     std::int64_t chosen) {
  if (!x.type.defined()) return LayoutType();
  CheckDim(op, x.type, 0);
  LayoutMaker maker(x.type);
  maker.dims[0] = {{.factor = experts}, RowsOfExpert(x.type, experts, chosen)};
  return std::move(maker).Make();
}

absl::StatusOr<LayoutType> GroupChoices(absl::string_view op, const Operand& weights,
                                        const Factor& experts) {
  if (!weights.type.defined()) return LayoutType();
  HW_CHECK_EQ(weights.type.rank(), 2) << op;
  HW_CHECK(ShardingAxis(weights.type, 1) < 0) << op << ": " << weights.type.ToString();
  const std::int64_t chosen = weights.type.GlobalShape()[1];
  LayoutMaker maker(weights.type);
  maker.dims = {{{.factor = experts}, RowsOfExpert(weights.type, experts, chosen)}};
  return std::move(maker).Make();
}

absl::StatusOr<LayoutType> UngroupRows(absl::string_view op, const Operand& rows,
                                       const Operand& like) {
  return Ungroup(op, rows, like, 1);
}

absl::StatusOr<LayoutType> UngroupChoices(absl::string_view op, const Operand& rows,
                                          const Operand& like) {
  return Ungroup(op, rows, like, 2);
}

absl::StatusOr<LayoutType> ReorderTokens(absl::string_view op, const Operand& x, int dim,
                                         absl::string_view factor, absl::string_view order) {
  if (!x.type.defined()) return LayoutType();
  CheckDim(op, x.type, dim);
  HW_ASSIGN_OR_RETURN(const LayoutType same, DeriveElementwise(op, OpKind::kLinear, {x}));
  LayoutMaker maker(same);
  for (ShardedFactor& f : maker.dims[static_cast<std::size_t>(dim)]) {
    if (f.factor.name != factor) continue;
    if (!f.axes.empty()) {
      return LayoutError(op, AxisName(x.type, f.axes[0]), {x},
                         absl::StrCat("a rank has a share of ", f.factor.ToString(),
                                      " and cannot move its tokens to other ranks; reorder before "
                                      "the split, or after a gather"));
    }
    f.factor.order = std::string(order);
    return std::move(maker).Make();
  }
  HW_CHECK(false) << op << ": no factor " << factor << " in " << x.type.ToString();
  return LayoutType();
}

absl::StatusOr<LayoutType> RandomLike(absl::string_view op, const Operand& x,
                                      absl::Span<const std::string> folded) {
  if (!x.type.defined()) return LayoutType();
  LayoutMaker maker(x.type);
  std::vector<bool> differs(maker.types.size(), false);
  for (const std::string& name : folded) {
    HW_ASSIGN_OR_RETURN(const std::vector<int> axes, x.type.mesh().Find(x.type.view(), name));
    for (const int axis : axes) differs[static_cast<std::size_t>(axis)] = true;
  }
  for (std::size_t axis = 0; axis < maker.types.size(); ++axis) {
    const AxisType type = maker.types[axis];
    const bool must_differ = type == kShard || type == kVarying;
    if (must_differ != differs[axis]) {
      return LayoutError(
          op, AxisName(x.type, static_cast<int>(axis)), {x},
          must_differ
              ? "every rank would draw the same numbers for its own part: fold the axis into "
                "the seed"
              : "the ranks hold the same data and would draw different numbers for it: do "
                "not fold the axis into the seed");
    }
    if (type == kPartial) maker.types[axis] = kReplicate;
  }
  return std::move(maker).Make();
}

}  // namespace headwise
