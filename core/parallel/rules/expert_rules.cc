#include "core/parallel/rules/expert_rules.h"

#include "absl/strings/string_view.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/parallel/index_rule.h"
#include "core/parallel/op_rules.h"

namespace headwise::rules {
namespace {

constexpr absl::string_view kExperts = "E";

absl::StatusOr<LayoutType> Product(absl::string_view op, absl::string_view letters,
                                   const Operand& a, const Operand& b,
                                   std::optional<DType> dtype = {}) {
  return DeriveIndexed({.op = op, .letters = letters, .kind = OpKind::kMultilinear, .dtype = dtype},
                       {a, b});
}

LayoutType ByExpert(const LayoutType& rows) { return SplitDim(rows, 0, {kExperts}); }

LayoutType Together(const LayoutType& rows) {
  return rows.defined() ? MergeDims(rows, 0, 2) : rows;
}

Step Exchange(int dim) {
  return {.kind = StepKind::kAllToAll, .axis = "ep", .to = AxisType::kShard, .dim = dim};
}

Step Reinterpret(MeshView view) { return {.kind = StepKind::kReinterpretMesh, .view = view}; }

}  // namespace

absl::StatusOr<RoutingTypes> Route(const LayoutType& logits, const LayoutType* selection_bias,
                                   std::int64_t chosen) {
  constexpr absl::string_view kOp = "route";
  if (!logits.defined()) return RoutingTypes();
  HW_ASSIGN_OR_RETURN(
      const LayoutType scores,
      DeriveIndexed({.op = kOp, .letters = "te->te", .kind = OpKind::kNonlinear, .whole = "e"},
                    {{"logits", logits}}));
  LayoutType selection = scores;
  if (selection_bias != nullptr) {
    HW_ASSIGN_OR_RETURN(selection,
                        DeriveIndexed({.op = kOp, .letters = "te,e->te"},
                                      {{"scores", scores}, {"balancing bias", *selection_bias}}));
  }
  const Factor k = {"k", chosen};
  RoutingTypes routing;
  HW_ASSIGN_OR_RETURN(const LayoutType best, TopK(kOp, {"scores", selection}, k));
  HW_ASSIGN_OR_RETURN(
      routing.experts,
      DeriveIndexed(
          {.op = kOp, .letters = "tk->tk", .kind = OpKind::kNonlinear, .dtype = DType::kI32},
          {{"experts", best}}));
  HW_ASSIGN_OR_RETURN(
      routing.weights,
      DeriveIndexed({.op = kOp, .letters = "te,tk->tk", .kind = OpKind::kNonlinear, .whole = "e"},
                    {{"scores", scores}, {"experts", routing.experts}}));
  HW_CHECK_EQ(logits.dims()[1].size(), 1) << "experts: " << logits.ToString();
  routing.expert_factor = logits.dims()[1][0].factor;
  return routing;
}

absl::StatusOr<LayoutType> RouteBackward(const LayoutType& logits, const RoutingTypes& routing,
                                         const LayoutType& dweights) {
  constexpr absl::string_view kOp = "route backward";
  // The Jacobian [T, k, E] depends on the logits and the choice.
  HW_ASSIGN_OR_RETURN(
      const LayoutType jacobian,
      DeriveIndexed({.op = kOp, .letters = "te,tk->tke", .kind = OpKind::kNonlinear, .whole = "e"},
                    {{"logits", logits}, {"experts", routing.experts}}));
  return Product(kOp, "tk,tke->te", {"dweights", dweights}, {"scores", jacobian});
}

absl::StatusOr<LayoutType> CountLoads(const LayoutType& logits, const RoutingTypes& routing,
                                      DType dtype) {
  constexpr absl::string_view kOp = "count loads";
  HW_ASSIGN_OR_RETURN(
      const LayoutType hits,
      DeriveIndexed({.op = kOp, .letters = "tk,te->te", .kind = OpKind::kNonlinear, .whole = "ke"},
                    {{"experts", routing.experts}, {"logits", logits}}));
  return DeriveIndexed({.op = kOp, .letters = "te->e", .dtype = dtype}, {{"choices", hits}});
}

absl::StatusOr<LayoutType> BalancingLoss(const LayoutType& logits, const LayoutType& counts) {
  constexpr absl::string_view kOp = "balancing loss";
  HW_ASSIGN_OR_RETURN(
      const LayoutType scores,
      DeriveIndexed({.op = kOp, .letters = "te->te", .kind = OpKind::kNonlinear, .whole = "e"},
                    {{"logits", logits}}));
  HW_ASSIGN_OR_RETURN(const LayoutType sums,
                      DeriveIndexed({.op = kOp, .letters = "te->e"}, {{"scores", scores}}));
  return Product(kOp, "e,e->", {"scores", sums}, {"counts", counts});
}

absl::StatusOr<LayoutType> AddBalancingGradient(const LayoutType& logits, const LayoutType& counts,
                                                const LayoutType& dlogits) {
  constexpr absl::string_view kOp = "balancing gradient";
  HW_ASSIGN_OR_RETURN(
      const LayoutType jacobian,
      DeriveIndexed({.op = kOp, .letters = "te->te", .kind = OpKind::kNonlinear, .whole = "e"},
                    {{"logits", logits}}));
  HW_ASSIGN_OR_RETURN(const LayoutType gradient,
                      Product(kOp, "te,e->te", {"scores", jacobian}, {"counts", counts}));
  return DeriveElementwise(kOp, OpKind::kLinear, {{"dlogits", dlogits}, {"gradient", gradient}});
}

absl::StatusOr<LayoutType> DispatchTokens(const RoutingTypes& routing, const LayoutType& x) {
  constexpr absl::string_view kOp = "dispatch";
  if (!x.defined() || !routing.experts.defined()) return LayoutType();
  // A copy for each choice: linear in x, and the choice must be of the same tokens.
  HW_ASSIGN_OR_RETURN(const LayoutType copies,
                      Product(kOp, "tn,tk->tkn", {"x", x}, {"experts", routing.experts}));
  HW_ASSIGN_OR_RETURN(const LayoutType tokens,
                      DeriveIndexed({.op = kOp, .letters = "tkn->tn"}, {{"x", copies}}));
  return GroupRows(kOp, {"x", tokens}, routing.expert_factor, routing.experts.GlobalShape()[1]);
}

absl::StatusOr<LayoutType> DispatchTokensBackward(const RoutingTypes& routing,
                                                  const LayoutType& drows) {
  return UngroupRows("dispatch backward", {"drows", drows}, {"experts", routing.experts});
}

absl::StatusOr<LayoutType> CombineExperts(const RoutingTypes& routing, const LayoutType& outputs) {
  constexpr absl::string_view kOp = "combine";
  if (!outputs.defined() || !routing.weights.defined()) return LayoutType();
  HW_RETURN_IF_ERROR(UngroupRows(kOp, {"outputs", outputs}, {"weights", routing.weights}).status());
  HW_ASSIGN_OR_RETURN(const LayoutType weights,
                      GroupChoices(kOp, {"weights", routing.weights}, routing.expert_factor));
  HW_ASSIGN_OR_RETURN(const LayoutType weighted,
                      Product(kOp, "rn,r->rn", {"outputs", outputs}, {"weights", weights}));
  return UngroupRows(kOp, {"outputs", weighted}, {"weights", routing.weights});
}

absl::StatusOr<ExpertGradients> CombineExpertsBackward(const RoutingTypes& routing,
                                                       const LayoutType& outputs,
                                                       const LayoutType& dy, DType weights_dtype) {
  constexpr absl::string_view kOp = "combine backward";
  if (!dy.defined() || !routing.weights.defined()) return ExpertGradients();
  HW_ASSIGN_OR_RETURN(const LayoutType weights,
                      GroupChoices(kOp, {"weights", routing.weights}, routing.expert_factor));
  HW_ASSIGN_OR_RETURN(const LayoutType dy_rows, GroupRows(kOp, {"dy", dy}, routing.expert_factor,
                                                          routing.weights.GlobalShape()[1]));
  ExpertGradients d;
  HW_ASSIGN_OR_RETURN(d.outputs, Product(kOp, "rn,r->rn", {"dy", dy_rows}, {"weights", weights}));
  HW_ASSIGN_OR_RETURN(const LayoutType choices, Product(kOp, "rn,rn->r", {"outputs", outputs},
                                                        {"dy", dy_rows}, weights_dtype));
  HW_ASSIGN_OR_RETURN(d.weights,
                      UngroupChoices(kOp, {"dweights", choices}, {"weights", routing.weights}));
  return d;
}

absl::StatusOr<LayoutType> ToExperts(const LayoutType& rows) {
  HW_ASSIGN_OR_RETURN(const LayoutType there, Apply(Reinterpret(MeshView::kExpert), rows));
  HW_ASSIGN_OR_RETURN(const LayoutType sent, Apply(Exchange(0), ByExpert(there)));
  return Together(sent);
}

absl::StatusOr<LayoutType> ToTokens(const LayoutType& rows) {
  HW_ASSIGN_OR_RETURN(const LayoutType sent, Apply(Exchange(1), ByExpert(rows)));
  return Apply(Reinterpret(MeshView::kDense), Together(sent));
}

std::int64_t ExchangeBytes(const LayoutType& rows) {
  if (!rows.defined()) return 0;
  const auto there = rows.view() == MeshView::kExpert
                         ? rows
                         : Apply(Reinterpret(MeshView::kExpert), rows).value_or(LayoutType());
  return BytesSent(Exchange(0), ByExpert(there));
}

absl::StatusOr<LayoutType> ExpertLinear(const LayoutType& x, const LayoutType& weight,
                                        const LayoutType* bias) {
  constexpr absl::string_view kOp = "expert linear";
  HW_ASSIGN_OR_RETURN(const LayoutType y,
                      Product(kOp, "erk,enk->ern", {"x", ByExpert(x)}, {"weight", weight}));
  if (bias == nullptr) return Together(y);
  HW_ASSIGN_OR_RETURN(const LayoutType biased, DeriveIndexed({.op = kOp, .letters = "ern,en->ern"},
                                                             {{"x W^T", y}, {"bias", *bias}}));
  return Together(biased);
}

absl::StatusOr<LayoutType> ExpertLinearBackwardInput(const LayoutType& dy,
                                                     const LayoutType& weight) {
  HW_ASSIGN_OR_RETURN(const LayoutType dx, Product("expert linear backward (input)", "ern,enk->erk",
                                                   {"dy", ByExpert(dy)}, {"weight", weight}));
  return Together(dx);
}

absl::StatusOr<LayoutType> ExpertLinearBackwardWeight(const LayoutType& dy, const LayoutType& x,
                                                      DType dtype) {
  return Product("expert linear backward (weight)", "ern,erk->enk", {"dy", ByExpert(dy)},
                 {"x", ByExpert(x)}, dtype);
}

absl::StatusOr<LayoutType> ExpertLinearBackwardBias(const LayoutType& dy, DType dtype) {
  return DeriveIndexed(
      {.op = "expert linear backward (bias)", .letters = "ern->en", .dtype = dtype},
      {{"dy", ByExpert(dy)}});
}

}  // namespace headwise::rules
