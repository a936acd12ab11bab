#include "sharded_ffn.h"

#include "core/parallel/index_rule.h"
#include "core/parallel/op_rules.h"
#include "core/parallel/rules/layer_rules.h"

namespace example {

using headwise::DeriveIndexed;
using headwise::Dim;
using headwise::DType;
using headwise::Factor;
using headwise::LayoutChecker;
using headwise::LayoutType;
using headwise::OpKind;
namespace rules = headwise::rules;

void ShardedFfn::Check(LayoutChecker& check) const {
  const auto module = check.Enter("ffn");
  const Dim t = {{"T", tokens}}, n = {{"N", width}};
  // A block is never cut.
  const Dim f = {{"F", blocks}}, fb = {{"F", blocks}, Factor::Whole("b", block_size)};
  const LayoutType x = check.Input("x", {t, n}, DType::kBF16);
  const LayoutType dy = check.Input("dy", {t, n}, DType::kBF16);
  const LayoutType w1 = check.Parameter("w1", {fb, n}, DType::kF32);
  const LayoutType gate = check.Parameter("gate", {f, n}, DType::kF32);
  const LayoutType w2 = check.Parameter("w2", {n, fb}, DType::kF32);

  // [t, f b] as [t, f, b], and back.
  const auto apart = [](const LayoutType& h) { return headwise::SplitDim(h, 1, {"F"}); };
  const auto together = [](const LayoutType& h) {
    return h.defined() ? headwise::MergeDims(h, 1, 2) : h;
  };

  const LayoutType in = check.Cross("in", x);
  const LayoutType a = check(rules::Linear(in, w1, nullptr));
  const LayoutType z = check(rules::Linear(in, gate, nullptr));
  const LayoutType s = check(rules::Map(z));  // the sigmoid
  const auto scale = [&](const char* op, const LayoutType& h) {
    return together(
        check(DeriveIndexed({.op = op, .letters = "tfb,tf->tfb", .kind = OpKind::kMultilinear},
                            {{"hidden", apart(h)}, {"gate", s}})));
  };
  const LayoutType hidden = scale("block gate", a);
  const LayoutType y = check.Cross("out", check(rules::Linear(hidden, w2, nullptr)));
  check.Note(headwise::CheckDual(dy, y));

  const LayoutType dout = check.CrossBackward("out", dy);
  check.ParameterGradient("w2", check(rules::LinearBackwardWeight(dout, hidden, DType::kF32)));
  const LayoutType dhidden = check(rules::LinearBackwardInput(dout, w2));
  const LayoutType da = scale("block gate backward", dhidden);
  // ds = sum over the block of dhidden a; dz = ds s'(z).
  const LayoutType ds = check(DeriveIndexed(
      {.op = "block gate backward", .letters = "tfb,tfb->tf", .kind = OpKind::kMultilinear},
      {{"dhidden", apart(dhidden)}, {"a", apart(a)}}));
  const LayoutType dz = check(headwise::DeriveElementwise(
      "block gate backward", OpKind::kMultilinear, {{"ds", ds}, {"sigmoid", s}}));
  check.ParameterGradient("w1", check(rules::LinearBackwardWeight(da, in, DType::kF32)));
  check.ParameterGradient("gate", check(rules::LinearBackwardWeight(dz, in, DType::kF32)));
  const LayoutType din = check(rules::Add(check(rules::LinearBackwardInput(da, w1)),
                                          check(rules::LinearBackwardInput(dz, gate))));
  check.InputGradient("x", check.CrossBackward("in", din));
  check.Finish();
}

headwise::LayoutPlan TensorParallelFfn() {
  headwise::LayoutPlan plan;
  plan.SetLeaf("ffn.x", "S(0)@dp, I@tp");
  plan.SetLeaf("ffn.dy", "S(0)@dp, I@tp");
  plan.SetLeaf("ffn.w1", "S(0)@tp");
  plan.SetLeaf("ffn.gate", "S(0)@tp");
  plan.SetLeaf("ffn.w2", "S(1)@tp");
  plan.SetForward("ffn.in", {"convert(F32)@tp -> R"});
  plan.SetForward("ffn.out", {"all_reduce(F32)@tp -> I"});
  return plan;
}

}  // namespace example
