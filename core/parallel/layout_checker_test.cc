#include "core/parallel/layout_checker.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/parallel/index_rule.h"
#include "core/parallel/rules/attention_rules.h"
#include "core/parallel/rules/layer_rules.h"
#include "gtest/gtest.h"

namespace headwise {
namespace {

using ::absl::StrContains;

// --- one dense transformer layer, forward and backward, on types alone ---

constexpr std::int64_t kG = 2, kM = 4, kD = 16, kWidth = 64;
const Dim kT = {Factor::Batch("B", 2), {"L", 128}};
const Dim kN = {{"N", kWidth}};
const Dim kF = {{"F", 96}};

// What a mutant of the hand-written backward forgets.
enum class Forget { kNothing, kFfnResidual, kAttentionInput };

void Layer(LayoutChecker& check, Forget forget) {
  const DType kStored = DType::kBF16, kMaster = DType::kF32;
  const auto module = check.Enter("layers.0");
  const LayoutType h = check.Input("h", {kT, kN}, kStored);
  const LayoutType positions = check.Input("positions", {kT}, DType::kI64);
  const LayoutType dout = check.Input("dout", {kT, kN}, kStored);
  const LayoutType norm1 = check.Parameter("attention_norm", {kN}, kMaster);
  const LayoutType wqkv = check.Parameter("wqkv", {rules::InterleavedQkv(kG, kM, kD), kN}, kMaster);
  const LayoutType q_norm = check.Parameter("q_norm", {{Factor::Whole("D", kD)}}, kMaster);
  const LayoutType wo = check.Parameter("wo", {kN, rules::QueryHeads(kG, kM, kD)}, kMaster);
  const LayoutType wo_bias = check.Parameter("wo_bias", {kN}, kMaster);
  const LayoutType norm2 = check.Parameter("ffn_norm", {kN}, kMaster);
  const LayoutType w1 = check.Parameter("w1", {kF, kN}, kMaster);
  const LayoutType w3 = check.Parameter("w3", {kF, kN}, kMaster);
  const LayoutType w2 = check.Parameter("w2", {kN, kF}, kMaster);

  // Forward.
  const LayoutType x = check.Cross("attention_in", check(rules::RmsNorm(h, &norm1)));
  const LayoutType packed = check(rules::Linear(x, wqkv, nullptr));
  const rules::QkvOperands prepare = {
      .q_weight = &q_norm, .k_weight = &q_norm, .positions = &positions, .norm = true};
  const rules::QkvTypes qkv = check(rules::PrepareQkv(prepare, packed));
  const rules::AttentionTypes attention = check(rules::Attention(qkv, nullptr, kMaster));
  const LayoutType projected =
      check.Cross("attention_out", check(rules::Linear(attention.o, wo, nullptr)));
  // The bias joins after the reduction.
  const LayoutType branch = check(
      DeriveIndexed({.op = "bias", .letters = "tn,n->tn"}, {{"x", projected}, {"bias", wo_bias}}));
  const LayoutType middle = check(rules::Add(h, branch));
  const LayoutType y = check.Cross("ffn_in", check(rules::RmsNorm(middle, &norm2)));
  const LayoutType gate = check(rules::Linear(y, w1, nullptr));
  const LayoutType up = check(rules::Linear(y, w3, nullptr));
  const LayoutType hidden = check(rules::Gate(up, gate));
  const LayoutType ffn = check.Cross("ffn_out", check(rules::Linear(hidden, w2, nullptr)));
  const LayoutType out = check(rules::Add(middle, ffn));
  check.Note(CheckDual(dout, out));

  // Backward.
  const LayoutType dffn = check.CrossBackward("ffn_out", dout);
  check.ParameterGradient("w2", check(rules::LinearBackwardWeight(dffn, hidden, kMaster)));
  const LayoutType dhidden = check(rules::LinearBackwardInput(dffn, w2));
  const rules::GateGradients dgate = check(rules::GateBackward(up, gate, dhidden));
  check.ParameterGradient("w1", check(rules::LinearBackwardWeight(dgate.gate, y, kMaster)));
  check.ParameterGradient("w3", check(rules::LinearBackwardWeight(dgate.x, y, kMaster)));
  const LayoutType dy = check.CrossBackward(
      "ffn_in", check(rules::Add(check(rules::LinearBackwardInput(dgate.gate, w1)),
                                 check(rules::LinearBackwardInput(dgate.x, w3)))));
  const rules::NormGradients dnorm2 = check(rules::RmsNormBackward(middle, &norm2, dy, kMaster));
  check.ParameterGradient("ffn_norm", dnorm2.weight);
  const LayoutType dmiddle =
      forget == Forget::kFfnResidual ? dnorm2.x : check(rules::Add(dnorm2.x, dout));

  check.ParameterGradient("wo_bias", check(rules::LinearBackwardBias(dmiddle, kMaster)));
  const LayoutType dprojected = check.CrossBackward("attention_out", dmiddle);
  check.ParameterGradient("wo",
                          check(rules::LinearBackwardWeight(dprojected, attention.o, kMaster)));
  const LayoutType d_o = check(rules::LinearBackwardInput(dprojected, wo));
  const rules::AttentionGradients dqkv =
      check(rules::AttentionBackward(qkv, nullptr, attention, d_o));
  const rules::QkvGradients dpacked =
      check(rules::PrepareQkvBackward(prepare, packed, dqkv.qkv, kMaster));
  check.ParameterGradient(
      "q_norm", check(rules::Add(check(rules::ReduceHeadNormGradient(dpacked.q_weight)),
                                 check(rules::ReduceHeadNormGradient(dpacked.k_weight)))));
  check.ParameterGradient("wqkv", check(rules::LinearBackwardWeight(dpacked.packed, x, kMaster)));
  const LayoutType dx_in = check(rules::LinearBackwardInput(dpacked.packed, wqkv));
  const LayoutType dx =
      forget == Forget::kAttentionInput ? dx_in : check.CrossBackward("attention_in", dx_in);
  const rules::NormGradients dnorm1 = check(rules::RmsNormBackward(h, &norm1, dx, kMaster));
  check.ParameterGradient("attention_norm", dnorm1.weight);
  check.InputGradient("h", check(rules::Add(dnorm1.x, dmiddle)));
  check.Finish();
}

LayoutPlan TensorParallel() {
  LayoutPlan plan;
  for (const char* weight : {"wqkv", "w1", "w3"}) {
    plan.SetLeaf(absl::StrCat("layers.*.", weight), "S(0)@tp");
  }
  for (const char* weight : {"wo", "w2"}) {
    plan.SetLeaf(absl::StrCat("layers.*.", weight), "S(1)@tp");
  }
  plan.SetLeaf("layers.*.positions", "S(0)@dp");
  return plan;
}

LayoutPlan WithSequenceParallel() {
  LayoutPlan plan = TensorParallel();
  plan.SetLeaf("layers.*.h", "S(0)@dp, S(0)@tp");
  plan.SetLeaf("layers.*.dout", "S(0)@dp, S(0)@tp");
  for (const char* in : {"layers.*.attention_in", "layers.*.ffn_in"}) {
    plan.SetForward(in, {"all_gather(F32)@tp -> R"});
  }
  for (const char* out : {"layers.*.attention_out", "layers.*.ffn_out"}) {
    plan.SetForward(out, {"reduce_scatter(F32)@tp -> S(0)"});
  }
  return plan;
}

LayoutPlan WithoutSequenceParallel() {
  LayoutPlan plan = TensorParallel();
  plan.SetLeaf("layers.*.h", "S(0)@dp, I@tp");
  plan.SetLeaf("layers.*.dout", "S(0)@dp, I@tp");
  for (const char* weight : {"attention_norm", "ffn_norm", "wo_bias"}) {
    plan.SetLeaf(absl::StrCat("layers.*.", weight), "I@tp");
  }
  for (const char* in : {"layers.*.attention_in", "layers.*.ffn_in"}) {
    plan.SetForward(in, {"convert(F32)@tp -> R"});
  }
  for (const char* out : {"layers.*.attention_out", "layers.*.ffn_out"}) {
    plan.SetForward(out, {"all_reduce(F32)@tp -> I"});
  }
  return plan;
}

// The first mistake, or "".
std::string Mistake(const char* mesh, const LayoutPlan& plan, Forget forget = Forget::kNothing) {
  LayoutChecker check(*Mesh::Parse(mesh), plan);
  Layer(check, forget);
  return std::string(check.status().message());
}

TEST(DenseLayer, IsAcceptedWithAndWithoutSequenceParallelism) {
  for (const char* mesh : {"", "dp=2", "tp=2", "dp=2,tp=2"}) {
    EXPECT_EQ(Mistake(mesh, WithSequenceParallel()), "") << mesh;
    EXPECT_EQ(Mistake(mesh, WithoutSequenceParallel()), "") << mesh;
  }
}

TEST(DenseLayer, ReducesEveryGradientOnTheAxesWhereItIsPartial) {
  const auto plan_of = [](const LayoutPlan& plan) {
    LayoutChecker check(*Mesh::Parse("dp=2,tp=2"), plan);
    Layer(check, Forget::kNothing);
    std::vector<std::string> gradients;
    for (const PlannedGradient& one : check.gradient_plan().gradients()) {
      std::string axes;
      for (const Step& step : one.steps) absl::StrAppend(&axes, " ", step.axis);
      gradients.push_back(absl::StrCat(one.parameter.substr(sizeof("layers.0")), axes));
    }
    return gradients;
  };
  EXPECT_EQ(plan_of(WithSequenceParallel()),
            (std::vector<std::string>{"w2 dp", "w1 dp", "w3 dp", "ffn_norm dp tp", "wo_bias dp tp",
                                      "wo dp", "q_norm dp tp", "wqkv dp", "attention_norm dp tp"}));
  EXPECT_EQ(plan_of(WithoutSequenceParallel()),
            (std::vector<std::string>{"w2 dp", "w1 dp", "w3 dp", "ffn_norm dp", "wo_bias dp",
                                      "wo dp", "q_norm dp tp", "wqkv dp", "attention_norm dp"}));
}

TEST(DenseLayer, CountsWhatItSends) {
  LayoutChecker check(*Mesh::Parse("tp=2"), WithSequenceParallel());
  Layer(check, Forget::kNothing);
  // Two gathers and two scatters of half of [256, 64] bf16, and the same again backwards.
  EXPECT_EQ(check.communication().size(), 8);
  std::int64_t bytes = 0;
  for (const Communication& one : check.communication()) bytes += one.bytes;
  EXPECT_EQ(bytes, 8 * (256 * kWidth * 2 / 2));
  EXPECT_GT(check.bytes_sent(), bytes);  // gradients
}

// --- mutants: single edits of a correct layer ---

struct Mutant {
  const char* what;
  bool sequence_parallel;
  const char* edit;
  const char* words;  // of the first mistake
};

const Mutant kMutants[] = {
    {"an input used without its convert", false, "forward layers.*.attention_in:",
     "layers.0: linear: axis tp: x BF16[B=2 L=128, N=64] dp:S(B) tp:I with weight F32[G=2 "
     "slots=4+1+1 D=16, N=64] tp:S(G): I is one computation"},
    {"an input that is not gathered", true, "forward layers.*.ffn_in:", "its own two shares"},
    {"R for I in a norm's weight", false, "leaf layers.*.ffn_norm:", "counts once"},
    {"I for R in a norm's weight", true, "leaf layers.*.ffn_norm: I@tp", "counts once"},
    {"I for R in the weight of the head norm", false, "leaf layers.*.q_norm: I@tp", "counts once"},
    {"a sum that is never made", false, "forward layers.*.ffn_out:", "finished value"},
    {"a sum that is made twice", false,
     "forward layers.*.ffn_out: all_reduce(F32)@tp -> I; all_reduce(F32)@tp -> I",
     "multiplies it by the number of ranks"},
    {"a sum to the wrong type", false, "forward layers.*.attention_out: all_reduce(F32)@tp -> R",
     "counts once"},
    {"a bias before the reduction's type", false, "leaf layers.*.wo_bias:", "counts once"},
    {"another dimension of a weight", false, "leaf layers.*.w2: S(0)@tp", "its own two shares"},
    {"the hidden width of one of two matrices", false,
     "leaf layers.*.w3:", "x has all of dimension b [F=96] where gate has a share"},
    {"positions of the whole", false, "leaf layers.*.positions:", "positions"},
    {"a backward that forgets its all_reduce", false, "backward layers.*.ffn_in:",
     "layers.0: rms_norm backward: axis tp: dy BF16[B=2 L=128, N=64] dp:S(B) tp:P with x"},
    {"a backward that only changes the name", false,
     "backward layers.*.ffn_in: convert(F32)@tp -> I", "finished by a reduction only"},
    {"a backward that reduces to R", false,
     "backward layers.*.attention_in: all_reduce(F32)@tp -> R", "counts once"},
    {"a gradient that is not reduced", true,
     "reduction layers.*.attention_norm: all_reduce@dp -> R",
     "gradient plan of layers.0.attention_norm: axis tp"},
    {"a gradient of a head norm that is not reduced", false,
     "reduction layers.*.q_norm: all_reduce@dp -> R", "gradient plan of layers.0.q_norm: axis tp"},
    {"a gradient that is reduced although it is I", false,
     "reduction layers.*.ffn_norm: all_reduce@dp -> R; all_reduce@tp -> R",
     "multiplies it by the number of ranks"},
    {"a gradient that is reduced although it is S", false,
     "reduction layers.*.w1: all_reduce@dp -> R; all_reduce@tp -> R", "put side by side"},
    {"a reduction without a dtype", false, "forward layers.*.ffn_out: all_reduce@tp -> I",
     "must say in what dtype it adds"},
};

LayoutPlan PlanOf(const Mutant& mutant) {
  LayoutPlan plan = mutant.sequence_parallel ? WithSequenceParallel() : WithoutSequenceParallel();
  plan.Apply(*PlanEntry::Parse(mutant.edit));
  return plan;
}

TEST(Mutants, AreRefusedForTheRightReason) {
  for (const Mutant& mutant : kMutants) {
    const std::string mistake = Mistake("dp=2,tp=2", PlanOf(mutant));
    EXPECT_TRUE(StrContains(mistake, mutant.words)) << mutant.what << ": " << mistake;
  }
}

// Every mutant has a fix that was tried, and applying it by hand is accepted.
TEST(Mutants, HaveVerifiedFixes) {
  const auto model = [](LayoutChecker& check) { Layer(check, Forget::kNothing); };
  for (const Mutant& mutant : kMutants) {
    LayoutChecker failed(*Mesh::Parse("dp=2,tp=2"), PlanOf(mutant));
    model(failed);
    const std::vector<VerifiedFix> fixes = FindFixes(failed, model);
    ASSERT_FALSE(fixes.empty()) << mutant.what << ": " << failed.status();
    for (const VerifiedFix& fix : fixes) {
      LayoutPlan plan = PlanOf(mutant);
      plan.Apply(fix.edit);
      EXPECT_EQ(Mistake("dp=2,tp=2", plan), "") << mutant.what << ": " << fix.ToString();
    }
  }
}

TEST(Mutants, AFixReadsAsAnEdit) {
  const auto model = [](LayoutChecker& check) { Layer(check, Forget::kNothing); };
  LayoutChecker failed(*Mesh::Parse("dp=2,tp=2"), PlanOf(kMutants[0]));
  model(failed);
  const std::vector<VerifiedFix> fixes = FindFixes(failed, model, 1);
  ASSERT_EQ(fixes.size(), 1);
  EXPECT_TRUE(
      StrContains(fixes[0].ToString(), "forward layers.*.attention_in: convert(F32)@tp -> R ("))
      << fixes[0].ToString();
}

TEST(Mutants, BackwardsThatForgetAPart) {
  EXPECT_TRUE(StrContains(Mistake("dp=2,tp=2", WithoutSequenceParallel(), Forget::kAttentionInput),
                          "finished value"));
  EXPECT_TRUE(StrContains(Mistake("dp=2,tp=2", WithSequenceParallel(), Forget::kAttentionInput),
                          "rms_norm backward"));
  // Types see layouts, not formulas: a term that is missing has no type to be wrong.
  EXPECT_EQ(Mistake("dp=2,tp=2", WithSequenceParallel(), Forget::kFfnResidual), "");
}

// --- the checker itself ---

TEST(LayoutChecker, OneMistakeIsReportedOnce) {
  LayoutPlan plan = WithoutSequenceParallel();
  plan.SetForward("layers.*.attention_in", {});
  LayoutChecker check(*Mesh::Parse("dp=2,tp=2"), plan);
  Layer(check, Forget::kNothing);
  EXPECT_EQ(check.mistakes().size(), 1);
}

TEST(LayoutChecker, EveryMistakeIsReported) {
  LayoutPlan plan = WithoutSequenceParallel();
  plan.SetLeaf("layers.*.wqkv", "S(0)@dp, S(0)@tp");  // slots cannot be cut
  plan.SetLeaf("layers.*.w1", "S(0: 1 2)@tp");
  LayoutChecker check(*Mesh::Parse("dp=2,tp=2"), plan);
  Layer(check, Forget::kNothing);
  ASSERT_EQ(check.mistakes().size(), 2);
  EXPECT_TRUE(StrContains(check.mistakes()[0].ToString(), "layers.0.wqkv: axis tp (2) cannot"));
  EXPECT_TRUE(StrContains(check.mistakes()[0].ToString(), "slots is a concatenation"));
  EXPECT_TRUE(StrContains(check.mistakes()[1].ToString(), "the sizes (1 2) must be 2 numbers"));
}

TEST(LayoutChecker, AParameterNeedsAGradient) {
  LayoutChecker check(*Mesh::Parse("tp=2"), {});
  (void)check.Parameter("w", {kN}, DType::kF32);
  check.Finish();
  EXPECT_EQ(check.status().message(), "w: no gradient came for this parameter");
}

TEST(LayoutChecker, NamesFollowTheModules) {
  LayoutChecker check(*Mesh::Parse("tp=2"), {});
  {
    const auto layers = check.Enter("layers.7");
    const auto ffn = check.Enter("ffn");
    (void)check.Input("x", {kN}, DType::kF32);
  }
  (void)check.Input("y", {kN}, DType::kF32);
  EXPECT_EQ(check.leaves()[0].first, "layers.7.ffn.x");
  EXPECT_EQ(check.leaves()[1].first, "y");
}

}  // namespace
}  // namespace headwise
