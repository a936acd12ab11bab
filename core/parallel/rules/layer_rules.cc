#include "core/parallel/rules/layer_rules.h"

#include <string>

#include "absl/strings/string_view.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/parallel/index_rule.h"
#include "core/parallel/op_rules.h"
#include "core/parallel/step.h"

namespace headwise::rules {
namespace {

// The letters of a norm's operands: rows of one head or of the whole width.
struct NormLetters {
  absl::string_view root, scale, product, weight;
};

constexpr NormLetters kRows = {"tn->t", "tn,t->tn", "tn,n->tn", "tn,tn->n"};
constexpr NormLetters kHeads = {"thn->th", "thn,th->thn", "thn,n->thn", "thn,thn->n"};

const NormLetters& LettersOf(const LayoutType& x) {
  HW_CHECK(!x.defined() || x.rank() == 2 || x.rank() == 3) << x.ToString();
  return x.defined() && x.rank() == 3 ? kHeads : kRows;
}

absl::StatusOr<LayoutType> Product(absl::string_view op, absl::string_view letters,
                                   const Operand& a, const Operand& b,
                                   std::optional<DType> dtype = {}) {
  return DeriveIndexed({.op = op, .letters = letters, .kind = OpKind::kMultilinear, .dtype = dtype},
                       {a, b});
}

Step ScatterTokens(absl::string_view axis, DType reduce_in) {
  return {.kind = StepKind::kReduceScatter,
          .axis = std::string(axis),
          .to = AxisType::kShard,
          .dim = 0,
          .reduce_in = reduce_in};
}

// r = 1 / rms(x).
absl::StatusOr<LayoutType> InverseRms(const NormLetters& letters, const LayoutType& x) {
  return DeriveIndexed(
      {.op = "rms_norm", .letters = letters.root, .kind = OpKind::kNonlinear, .whole = "n"},
      {{"x", x}});
}

}  // namespace

absl::StatusOr<LayoutType> Linear(const LayoutType& x, const LayoutType& weight,
                                  const LayoutType* bias, std::optional<DType> dtype) {
  HW_ASSIGN_OR_RETURN(const LayoutType y,
                      Product("linear", "tk,nk->tn", {"x", x}, {"weight", weight}, dtype));
  if (bias == nullptr) return y;
  return DeriveIndexed({.op = "linear", .letters = "tn,n->tn"}, {{"x W^T", y}, {"bias", *bias}});
}

absl::StatusOr<LayoutType> LinearBackwardInput(const LayoutType& dy, const LayoutType& weight) {
  return Product("linear backward (input)", "tn,nk->tk", {"dy", dy}, {"weight", weight});
}

absl::StatusOr<LayoutType> LinearBackwardWeight(const LayoutType& dy, const LayoutType& x,
                                                DType dtype) {
  return Product("linear backward (weight)", "tn,tk->nk", {"dy", dy}, {"x", x}, dtype);
}

absl::StatusOr<LayoutType> LinearBackwardBias(const LayoutType& dy, DType dtype) {
  return DeriveIndexed({.op = "linear backward (bias)", .letters = "tn->n", .dtype = dtype},
                       {{"dy", dy}});
}

absl::StatusOr<LayoutType> AllGatherLinear(const LayoutType& x, const LayoutType& weight,
                                           const LayoutType* bias, absl::string_view axis) {
  const Step gather = {
      .kind = StepKind::kAllGather, .axis = std::string(axis), .to = AxisType::kReplicate};
  HW_ASSIGN_OR_RETURN(const LayoutType whole, Apply(gather, x));
  return Linear(whole, weight, bias);
}

absl::StatusOr<LayoutType> AllGatherLinearBackwardInput(const LayoutType& dy,
                                                        const LayoutType& weight,
                                                        absl::string_view axis, DType reduce_in) {
  HW_ASSIGN_OR_RETURN(const LayoutType partial, LinearBackwardInput(dy, weight));
  return Apply(ScatterTokens(axis, reduce_in), partial);
}

absl::StatusOr<LayoutType> LinearReduceScatter(const LayoutType& x, const LayoutType& weight,
                                               absl::string_view axis, DType reduce_in) {
  HW_ASSIGN_OR_RETURN(const LayoutType partial, Linear(x, weight, nullptr));
  return Apply(ScatterTokens(axis, reduce_in), partial);
}

absl::StatusOr<LayoutType> RmsNorm(const LayoutType& x, const LayoutType* weight) {
  const NormLetters& letters = LettersOf(x);
  HW_ASSIGN_OR_RETURN(const LayoutType r, InverseRms(letters, x));
  HW_ASSIGN_OR_RETURN(const LayoutType xh,
                      Product("rms_norm", letters.scale, {"x", x}, {"1/rms", r}));
  if (weight == nullptr) return xh;
  return Product("rms_norm", letters.product, {"x", xh}, {"weight", *weight});
}

absl::StatusOr<NormGradients> RmsNormBackward(const LayoutType& x, const LayoutType* weight,
                                              const LayoutType& dy, DType weight_dtype) {
  constexpr absl::string_view kOp = "rms_norm backward";
  const NormLetters& letters = LettersOf(x);
  HW_ASSIGN_OR_RETURN(const LayoutType r, InverseRms(letters, x));
  HW_ASSIGN_OR_RETURN(const LayoutType xh, Product(kOp, letters.scale, {"x", x}, {"1/rms", r}));
  LayoutType h = dy, dweight;
  if (weight != nullptr) {
    HW_ASSIGN_OR_RETURN(dweight, Product(kOp, letters.weight, {"dy", dy}, {"x", xh}, weight_dtype));
    HW_ASSIGN_OR_RETURN(h, Product(kOp, letters.product, {"dy", dy}, {"weight", *weight}));
  }
  // dx = r (h - xh mean(h xh)).
  HW_ASSIGN_OR_RETURN(const LayoutType all,
                      DeriveElementwise(kOp, OpKind::kMultilinear, {{"dy", h}, {"x", xh}}));
  HW_ASSIGN_OR_RETURN(
      const LayoutType c1,
      DeriveIndexed({.op = kOp, .letters = letters.root, .kind = OpKind::kLinear, .whole = "n"},
                    {{"dy x", all}}));
  HW_ASSIGN_OR_RETURN(const LayoutType along, Product(kOp, letters.scale, {"x", xh}, {"mean", c1}));
  HW_ASSIGN_OR_RETURN(
      const LayoutType difference,
      DeriveElementwise(kOp, OpKind::kLinear, {{"dy w", h}, {"x mean(dy w x)", along}}));
  HW_ASSIGN_OR_RETURN(const LayoutType dx,
                      Product(kOp, letters.scale, {"dy", difference}, {"1/rms", r}));
  return NormGradients{.x = dx, .weight = dweight};
}

absl::StatusOr<LayoutType> Map(const LayoutType& x) {
  return DeriveElementwise("map", OpKind::kNonlinear, {{"x", x}});
}

absl::StatusOr<LayoutType> Add(const LayoutType& a, const LayoutType& b) {
  return DeriveElementwise("add", OpKind::kLinear, {{"a", a}, {"b", b}});
}

absl::StatusOr<LayoutType> Scale(const LayoutType& x, const LayoutType& number) {
  const absl::string_view letters = !x.defined() || x.rank() == 0 ? ",->"
                                    : x.rank() == 1               ? "a,->a"
                                                                  : "ab,->ab";
  return Product("scale", letters, {"x", x}, {"number", number});
}

absl::StatusOr<LayoutType> Gate(const LayoutType& x, const LayoutType& gate) {
  HW_ASSIGN_OR_RETURN(const LayoutType f,
                      DeriveElementwise("gate", OpKind::kNonlinear, {{"gate", gate}}));
  return DeriveElementwise("gate", OpKind::kMultilinear, {{"x", x}, {"gate", f}});
}

absl::StatusOr<GateGradients> GateBackward(const LayoutType& x, const LayoutType& gate,
                                           const LayoutType& dout) {
  constexpr absl::string_view kOp = "gate backward";
  HW_ASSIGN_OR_RETURN(const LayoutType f,
                      DeriveElementwise(kOp, OpKind::kNonlinear, {{"gate", gate}}));
  HW_ASSIGN_OR_RETURN(const LayoutType dx,
                      DeriveElementwise(kOp, OpKind::kMultilinear, {{"dout", dout}, {"gate", f}}));
  HW_ASSIGN_OR_RETURN(
      const LayoutType dgate,
      DeriveElementwise(kOp, OpKind::kMultilinear, {{"dout", dout}, {"x", x}, {"gate", f}}));
  return GateGradients{.x = dx, .gate = dgate};
}

absl::StatusOr<LayoutType> GatedResidual(const LayoutType& h, const LayoutType& branch,
                                         const LayoutType& gate) {
  constexpr absl::string_view kOp = "gated residual";
  HW_ASSIGN_OR_RETURN(const LayoutType f,
                      DeriveElementwise(kOp, OpKind::kNonlinear, {{"gate", gate}}));
  HW_ASSIGN_OR_RETURN(const LayoutType a, Product(kOp, "tn,n->tn", {"h", h}, {"gate", f}));
  HW_ASSIGN_OR_RETURN(const LayoutType b,
                      Product(kOp, "tn,n->tn", {"branch", branch}, {"gate", f}));
  return DeriveElementwise(kOp, OpKind::kLinear, {{"h", a}, {"branch", b}});
}

absl::StatusOr<ResidualGradients> GatedResidualBackward(const LayoutType& h,
                                                        const LayoutType& branch,
                                                        const LayoutType& gate,
                                                        const LayoutType& dout) {
  constexpr absl::string_view kOp = "gated residual backward";
  HW_ASSIGN_OR_RETURN(const LayoutType f,
                      DeriveElementwise(kOp, OpKind::kNonlinear, {{"gate", gate}}));
  ResidualGradients d;
  HW_ASSIGN_OR_RETURN(d.h, Product(kOp, "tn,n->tn", {"dout", dout}, {"gate", f}));
  d.branch = d.h;
  // dgate = alpha' sum(dout h) + beta' sum(dout branch).
  HW_ASSIGN_OR_RETURN(const LayoutType of_h,
                      Product(kOp, "tn,tn->n", {"dout", dout}, {"h", h}, gate.dtype()));
  HW_ASSIGN_OR_RETURN(const LayoutType of_branch,
                      Product(kOp, "tn,tn->n", {"dout", dout}, {"branch", branch}, gate.dtype()));
  HW_ASSIGN_OR_RETURN(const LayoutType a, DeriveElementwise(kOp, OpKind::kMultilinear,
                                                            {{"dout h", of_h}, {"gate", f}}));
  HW_ASSIGN_OR_RETURN(
      const LayoutType b,
      DeriveElementwise(kOp, OpKind::kMultilinear, {{"dout branch", of_branch}, {"gate", f}}));
  HW_ASSIGN_OR_RETURN(d.gate, DeriveElementwise(kOp, OpKind::kLinear, {{"a", a}, {"b", b}}));
  return d;
}

absl::StatusOr<LayoutType> Embedding(const LayoutType& tokens, const LayoutType& table, DType dtype,
                                     bool masked) {
  HW_ASSIGN_OR_RETURN(const LayoutType rows,
                      OneHot("embedding", {"tokens", tokens}, {"table", table}, masked));
  return Product("embedding", "tv,vn->tn", {"tokens", rows}, {"table", table}, dtype);
}

absl::StatusOr<LayoutType> EmbeddingBackward(const LayoutType& tokens, const LayoutType& table,
                                             const LayoutType& dout) {
  constexpr absl::string_view kOp = "embedding backward";
  HW_ASSIGN_OR_RETURN(const LayoutType rows, OneHot(kOp, {"tokens", tokens}, {"table", table}));
  return Product(kOp, "tv,tn->vn", {"tokens", rows}, {"dout", dout}, table.dtype());
}

}  // namespace headwise::rules
