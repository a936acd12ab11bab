#include "core/parallel/rules/attention_rules.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/parallel/index_rule.h"
#include "core/parallel/layout_error.h"
#include "core/parallel/op_rules.h"
#include "core/parallel/rules/layer_rules.h"

namespace headwise::rules {
namespace {

constexpr absl::string_view kGroups = "G", kQueries = "M", kSlots = "slots";

absl::StatusOr<LayoutType> Product(absl::string_view op, absl::string_view letters,
                                   const Operand& a, const Operand& b,
                                   std::optional<DType> dtype = {}) {
  return DeriveIndexed({.op = op, .letters = letters, .kind = OpKind::kMultilinear, .dtype = dtype},
                       {a, b});
}

// One role of the packed row as [T, heads D]; heads are [G M] or [G], in both packings.
absl::StatusOr<LayoutType> TakeRole(const LayoutType& packed, absl::string_view role) {
  const LayoutType apart = SplitDim(SplitDim(packed, 1, {kGroups}), 2, {kSlots});
  HW_ASSIGN_OR_RETURN(const LayoutType taken, TakeTerm("prepare_qkv", apart, 2, role));
  return MergeDims(taken, 1, 3);
}

// The inverse for all three roles.
absl::StatusOr<LayoutType> PutRoles(const LayoutType& packed, const QkvTypes& roles) {
  if (!packed.defined() || !roles.q.defined() || !roles.k.defined() || !roles.v.defined()) {
    return LayoutType();
  }
  const LayoutType apart = SplitDim(SplitDim(packed, 1, {kGroups}), 2, {kSlots});
  const Factor& slots = apart.dims()[2].at(0).factor;
  const bool sectioned = apart.dims()[1].empty() && slots.terms.at(1).factors.size() == 1;
  const auto part = [&](const LayoutType& role) {
    const LayoutType groups = sectioned ? SplitDim(role, 1, {}) : SplitDim(role, 1, {kGroups});
    return SplitDim(groups, 2, {kGroups, kQueries});
  };
  const LayoutType q = part(roles.q), k = part(roles.k), v = part(roles.v);
  HW_ASSIGN_OR_RETURN(
      const LayoutType whole,
      ConcatTerms("prepare_qkv backward", {{"dq", q}, {"dk", k}, {"dv", v}}, 2, slots));
  return MergeDims(whole, 1, 3);
}

// [T, heads D] as [T, heads, D].
LayoutType ByHead(const LayoutType& x) { return SplitDim(x, 1, {kGroups, kQueries}); }

// Rotation by position: linear in x. The pairs of a head are rotated together.
absl::StatusOr<LayoutType> Rotate(absl::string_view op, const LayoutType& x,
                                  const LayoutType* positions) {
  if (positions == nullptr) return x;
  return DeriveIndexed(
      {.op = op, .letters = "thd,t->thd", .kind = OpKind::kMultilinear, .whole = "d"},
      {{"x", x}, {"positions", *positions}});
}

absl::StatusOr<LayoutType> PrepareRole(const QkvOperands& operands, const LayoutType* weight,
                                       const LayoutType& x) {
  LayoutType y = ByHead(x);
  if (operands.norm) {
    HW_ASSIGN_OR_RETURN(y, RmsNorm(y, weight));
  }
  HW_ASSIGN_OR_RETURN(y, Rotate("rope", y, operands.positions));
  return y.defined() ? MergeDims(y, 1, 2) : y;
}

struct RoleGradients {
  LayoutType x, weight;
};

absl::StatusOr<RoleGradients> RoleBackward(const QkvOperands& operands, const LayoutType* weight,
                                           const LayoutType& x, const LayoutType& dy,
                                           DType weight_dtype) {
  const LayoutType heads = ByHead(x);
  HW_ASSIGN_OR_RETURN(LayoutType d, Rotate("rope backward", ByHead(dy), operands.positions));
  RoleGradients gradients;
  if (operands.norm) {
    HW_ASSIGN_OR_RETURN(const NormGradients norm, RmsNormBackward(heads, weight, d, weight_dtype));
    d = norm.x;
    if (weight != nullptr && norm.x.defined()) {
      // Per kv group: [T, G, M, D] summed over T and M.
      HW_ASSIGN_OR_RETURN(
          gradients.weight,
          Product("head norm backward (weight)", "tgmd,tgmd->gd", {"dy", SplitDim(d, 1, {kGroups})},
                  {"x", SplitDim(heads, 1, {kGroups})}, weight_dtype));
    }
  }
  gradients.x = d.defined() ? MergeDims(d, 1, 2) : d;
  return gradients;
}

// [T, G M D] as [batch, tokens, G, M, D].
LayoutType Apart(const LayoutType& x) {
  if (!x.defined()) return x;
  absl::string_view batch;
  const ShardedDim& tokens = x.dims()[0];
  if (!tokens.empty() && tokens[0].factor.kind == FactorKind::kBatch) {
    batch = tokens[0].factor.name;
  }
  return SplitDim(SplitDim(SplitDim(x, 0, {batch}), 2, {kGroups}), 3, {kQueries});
}

// Keys and values as [batch, keys, G, D].
LayoutType KeysApart(const LayoutType& x) { return x.defined() ? MergeDims(Apart(x), 3, 2) : x; }

LayoutType Together(const LayoutType& x) {
  if (!x.defined()) return x;
  return MergeDims(MergeDims(x, 0, 2), 1, x.rank() - 2);
}

absl::StatusOr<LayoutType> Probabilities(absl::string_view op, const LayoutType& q,
                                         const LayoutType& k, const LayoutType* sinks) {
  HW_ASSIGN_OR_RETURN(const LayoutType scores,
                      Product(op, "blgmd,bsgd->blgms", {"q", q}, {"k", k}));
  if (sinks == nullptr) {
    return DeriveIndexed(
        {.op = op, .letters = "blgms->blgms", .kind = OpKind::kNonlinear, .whole = "s"},
        {{"scores", scores}});
  }
  const LayoutType by_group = SplitDim(*sinks, 0, {kGroups});
  return DeriveIndexed(
      {.op = op, .letters = "blgms,gm->blgms", .kind = OpKind::kNonlinear, .whole = "s"},
      {{"scores", scores}, {"sinks", by_group}});
}

}  // namespace

Dim InterleavedQkv(std::int64_t kv_groups, std::int64_t queries_of_group, std::int64_t head_dim) {
  return {{"G", kv_groups},
          Factor::Sum("slots", {{"q", {{"M", queries_of_group}}}, {"k", {}}, {"v", {}}}),
          Factor::Whole("D", head_dim)};
}

Dim SectionedQkv(std::int64_t kv_groups, std::int64_t queries_of_group, std::int64_t head_dim) {
  const Dim keys = {{"G", kv_groups}};
  return {
      Factor::Sum("slots",
                  {{"q", {{"G", kv_groups}, {"M", queries_of_group}}}, {"k", keys}, {"v", keys}}),
      Factor::Whole("D", head_dim)};
}

Dim QueryHeads(std::int64_t kv_groups, std::int64_t queries_of_group, std::int64_t head_dim) {
  return {{"G", kv_groups}, {"M", queries_of_group}, Factor::Whole("D", head_dim)};
}

Dim KeyHeads(std::int64_t kv_groups, std::int64_t head_dim) {
  return {{"G", kv_groups}, Factor::Whole("D", head_dim)};
}

absl::StatusOr<QkvTypes> PrepareQkv(const QkvOperands& operands, const LayoutType& packed) {
  if (!packed.defined()) return QkvTypes();
  QkvTypes qkv;
  HW_ASSIGN_OR_RETURN(const LayoutType q, TakeRole(packed, "q"));
  HW_ASSIGN_OR_RETURN(const LayoutType k, TakeRole(packed, "k"));
  HW_ASSIGN_OR_RETURN(qkv.v, TakeRole(packed, "v"));
  HW_ASSIGN_OR_RETURN(qkv.q, PrepareRole(operands, operands.q_weight, q));
  HW_ASSIGN_OR_RETURN(qkv.k, PrepareRole(operands, operands.k_weight, k));
  return qkv;
}

absl::StatusOr<QkvGradients> PrepareQkvBackward(const QkvOperands& operands,
                                                const LayoutType& packed, const QkvTypes& gradients,
                                                DType weight_dtype) {
  if (!packed.defined()) return QkvGradients();
  HW_ASSIGN_OR_RETURN(const LayoutType q, TakeRole(packed, "q"));
  HW_ASSIGN_OR_RETURN(const LayoutType k, TakeRole(packed, "k"));
  HW_ASSIGN_OR_RETURN(const RoleGradients dq,
                      RoleBackward(operands, operands.q_weight, q, gradients.q, weight_dtype));
  HW_ASSIGN_OR_RETURN(const RoleGradients dk,
                      RoleBackward(operands, operands.k_weight, k, gradients.k, weight_dtype));
  QkvGradients d = {.q_weight = dq.weight, .k_weight = dk.weight};
  HW_ASSIGN_OR_RETURN(d.packed, PutRoles(packed, {.q = dq.x, .k = dk.x, .v = gradients.v}));
  return d;
}

absl::StatusOr<LayoutType> ReduceHeadNormGradient(const LayoutType& per_group) {
  return DeriveIndexed({.op = "head norm gradient", .letters = "gd->d"},
                       {{"per kv group", per_group}});
}

absl::Status CheckMask(const LayoutType& tokens, const LayoutType& q) {
  if (!tokens.defined() || !q.defined()) return absl::OkStatus();
  const std::vector<int> of_tokens = tokens.AxesOf(0), of_queries = q.AxesOf(0);
  if (tokens.dims()[0] == q.dims()[0]) return absl::OkStatus();
  std::string axis;
  for (int i = 0; axis.empty() && i < static_cast<int>(q.axis_types().size()); ++i) {
    const auto cuts = [&](const std::vector<int>& axes) {
      return std::find(axes.begin(), axes.end(), i) != axes.end();
    };
    if (cuts(of_tokens) != cuts(of_queries)) {
      axis = q.mesh().Axes(q.view())[static_cast<std::size_t>(i)].name;
    }
  }
  return LayoutError("attention", axis, {{"tokens", tokens}, {"q", q}},
                     "the mask is that of the tokens that a rank was given, and these are other "
                     "queries: the two must be sharded alike, in the same order");
}

absl::StatusOr<AttentionTypes> Attention(const QkvTypes& qkv, const LayoutType* sinks,
                                         DType statistics) {
  constexpr absl::string_view kOp = "attention";
  const LayoutType q = Apart(qkv.q), k = KeysApart(qkv.k), v = KeysApart(qkv.v);
  HW_ASSIGN_OR_RETURN(const LayoutType p, Probabilities(kOp, q, k, sinks));
  HW_ASSIGN_OR_RETURN(const LayoutType o,
                      Product(kOp, "blgms,bsgd->blgmd", {"probabilities", p}, {"v", v}));
  HW_ASSIGN_OR_RETURN(const LayoutType lse, DeriveIndexed({.op = kOp,
                                                           .letters = "blgms->blgm",
                                                           .kind = OpKind::kNonlinear,
                                                           .whole = "s",
                                                           .dtype = statistics},
                                                          {{"scores", p}}));
  return AttentionTypes{.o = Together(o), .log_sum_exp = Together(lse)};
}

absl::StatusOr<AttentionGradients> AttentionBackward(const QkvTypes& qkv, const LayoutType* sinks,
                                                     const AttentionTypes& saved,
                                                     const LayoutType& d_o) {
  constexpr absl::string_view kOp = "attention backward";
  const LayoutType q = Apart(qkv.q), k = KeysApart(qkv.k), v = KeysApart(qkv.v);
  const LayoutType o = Apart(saved.o), dout = Apart(d_o);
  // p from the scores and log_sum_exp.
  HW_ASSIGN_OR_RETURN(const LayoutType scores,
                      Product(kOp, "blgmd,bsgd->blgms", {"q", q}, {"k", k}));
  LayoutType lse = saved.log_sum_exp;
  if (lse.defined()) {
    const ShardedDim& tokens = lse.dims()[0];
    const absl::string_view batch = !tokens.empty() && tokens[0].factor.kind == FactorKind::kBatch
                                        ? absl::string_view(tokens[0].factor.name)
                                        : absl::string_view();
    lse = SplitDim(SplitDim(lse, 0, {batch}), 2, {kGroups});
  }
  HW_ASSIGN_OR_RETURN(
      const LayoutType p,
      DeriveIndexed({.op = kOp, .letters = "blgms,blgm->blgms", .kind = OpKind::kNonlinear},
                    {{"scores", scores}, {"log_sum_exp", lse}}));
  AttentionGradients d;
  HW_ASSIGN_OR_RETURN(const LayoutType dv,
                      Product(kOp, "blgmd,blgms->bsgd", {"d_o", dout}, {"probabilities", p}));
  HW_ASSIGN_OR_RETURN(const LayoutType dp,
                      Product(kOp, "blgmd,bsgd->blgms", {"d_o", dout}, {"v", v}));
  // ds = p (dp - sum(d_o o)).
  HW_ASSIGN_OR_RETURN(const LayoutType delta,
                      Product(kOp, "blgmd,blgmd->blgm", {"d_o", dout}, {"o", o}));
  HW_ASSIGN_OR_RETURN(
      const LayoutType difference,
      DeriveIndexed({.op = kOp, .letters = "blgms,blgm->blgms"}, {{"dp", dp}, {"d_o o", delta}}));
  HW_ASSIGN_OR_RETURN(
      const LayoutType ds,
      DeriveElementwise(kOp, OpKind::kMultilinear, {{"dp", difference}, {"probabilities", p}}));
  HW_ASSIGN_OR_RETURN(const LayoutType dq, Product(kOp, "blgms,bsgd->blgmd", {"ds", ds}, {"k", k}));
  HW_ASSIGN_OR_RETURN(const LayoutType dk, Product(kOp, "blgms,blgmd->bsgd", {"ds", ds}, {"q", q}));
  d.qkv = {.q = Together(dq), .k = Together(dk), .v = Together(dv)};
  if (sinks != nullptr) {
    // dsink = -sum over tokens of p(sink) delta.
    const LayoutType by_group = SplitDim(*sinks, 0, {kGroups});
    HW_ASSIGN_OR_RETURN(
        const LayoutType p_sink,
        DeriveIndexed({.op = kOp, .letters = "blgm,gm->blgm", .kind = OpKind::kNonlinear},
                      {{"log_sum_exp", lse}, {"sinks", by_group}}));
    HW_ASSIGN_OR_RETURN(const LayoutType dsinks,
                        Product(kOp, "blgm,blgm->gm", {"d_o o", delta}, {"p(sink)", p_sink},
                                sinks->defined() ? sinks->dtype() : DType::kF32));
    d.sinks = dsinks.defined() ? MergeDims(dsinks, 0, 2) : dsinks;
  }
  return d;
}

}  // namespace headwise::rules
