// What a layout must not do: every one of these is refused with words that explain it, has a fix
// that was tried, and is wrong in fact: run on ranks with the check off (LayoutChecker::set_relaxed)
// its loss or a gradient differs by more than 1e-3 from that of one rank, or it cannot be run,
// because a rank's tensors do not fit together.
//
// Cases are named after the part of a decoder and the mistake, in the order of the table:
//
//   part                     a layout must not
//   embedding                give a P to a norm; look up shards of tokens in shards of rows
//   norms                    norm shards of the width, a stream that is S with a weight that is I,
//                            one that is I with a weight that is R, a P
//   wqkv                     take an x that is I; one that is not gathered; cut kv groups
//   split                    cut heads or the concatenation of a group
//   head norms               be I next to S; be left out of the plan; be reduced where it is I
//   RoPE                     take positions of other tokens
//   attention                see part of the keys; gather them to I; mask other queries
//   output gate              be R where the output is S
//   wo, w2                   put a P into the stream; add a bias to a P; reduce twice; leave an R
//   residual                 add R, S or P to I or S
//   SwiGLU                   gate what is cut otherwise
//   experts on ep            be reduced over ep or dp; change views with mixed types; be routed by
//                            an I; be cut by an ep that does not divide them
//   experts on tp            call dx R or I
//   router                   use counts that are P, as they are or in a product
//   head                     give each rank a loss
//   loss scale               be a number of a rank's own
//   kv replication           cut queries unevenly; leave them whole; leave an axis unreduced
//
// Those that no plan can say (a lookup without a mask, orders of tokens, packings, a softmax or a
// mean over shards, random numbers) are in refused_operations_test.cc.
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/dtype/dtype.h"
#include "core/parallel/layout_checker.h"
#include "core/parallel/layout_plan.h"
#include "core/parallel/mesh.h"
#include "gtest/gtest.h"
#include "model/standard_layout.h"
#include "model/test_presets.h"
#include "model/test_ranks.h"
#include "model/type_pass.h"

namespace headwise {
namespace {

constexpr std::int64_t kLength = 16;  // tokens of a group
constexpr double kWrong = 1e-3;

enum class Fix { kOne, kNone };  // whether a change of one entry mends it
// What ranks make of it. A type that is said of a number which is right all the same changes
// nothing: those of kOtherNumbers are shown by the tests WrongInFact.
enum class Reality { kWrong, kCannotRun, kOtherNumbers };

struct Case {
  const char* name;
  const char* preset;
  const char* mesh;
  bool sequence_parallel;
  std::vector<const char*> edits;  // of the standard layout's plan
  const char* words;               // of a mistake
  Fix fix;
  Reality reality;
};

void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

constexpr bool kSp = true, kNoSp = false;

const std::vector<Case>& Cases() {
  static const auto* cases = new std::vector<Case>{
      // --- embedding ---
      {"EmbeddingPartialIntoItsNorm",
       "muse_glimmer_tiny",
       "tp=2",
       kNoSp,
       {"forward embedding.out:"},
       "not linear",
       Fix::kOne,
       Reality::kWrong},
      {"EmbeddingTokensAndRowsShardedAlike",
       "llama3_tiny",
       "tp=2",
       kSp,
       {"leaf tokens: S(0)@tp"},
       "its own two shares",
       Fix::kOne,
       Reality::kCannotRun},
      // --- block, post and final norms ---
      {"NormOfAShardedWidth",
       "llama3_tiny",
       "tp=2",
       kNoSp,
       {"forward embedding.out: reduce_scatter(F32)@tp -> S(1)"},
       "looks at all of dimension n",
       Fix::kOne,
       Reality::kCannotRun},
      {"NormOfShardsWithAnInvariantWeight",
       "llama3_tiny",
       "tp=2",
       kSp,
       {"leaf layers.*.attention_norm.weight: I@tp"},
       "counts once",
       Fix::kOne,
       Reality::kWrong},
      {"FinalNormOfShardsWithAnInvariantWeight",
       "llama3_tiny",
       "tp=2",
       kSp,
       {"leaf final_norm.weight: I@tp"},
       "counts once",
       Fix::kOne,
       Reality::kWrong},
      {"PostNormOfShardsWithAnInvariantWeight",
       "muse_glimmer_tiny",
       "tp=2",
       kSp,
       {"leaf layers.*.post_ffn_norm.weight: I@tp"},
       "counts once",
       Fix::kOne,
       Reality::kWrong},
      {"NormOfAnInvariantWithAReplicatedWeight",
       "llama3_tiny",
       "tp=2",
       kNoSp,
       {"leaf layers.*.ffn_norm.weight:"},
       "counts once",
       Fix::kOne,
       Reality::kWrong},
      {"PostNormOfAnInvariantWithAReplicatedWeight",
       "muse_glimmer_tiny",
       "tp=2",
       kNoSp,
       {"leaf layers.*.post_attention_norm.weight:"},
       "counts once",
       Fix::kOne,
       Reality::kWrong},
      {"FinalNormOfAnInvariantWithAReplicatedWeight",
       "llama3_tiny",
       "tp=2",
       kNoSp,
       {"leaf final_norm.weight:"},
       "counts once",
       Fix::kOne,
       Reality::kWrong},
      {"BlockNormOfAPartial",
       "llama3_tiny",
       "tp=2",
       kNoSp,
       {"forward embedding.out:"},
       "not linear",
       Fix::kOne,
       Reality::kWrong},
      {"PostNormOfAPartial",
       "muse_glimmer_tiny",
       "tp=2",
       kNoSp,
       {"forward layers.*.attention.out:"},
       "not linear",
       Fix::kOne,
       Reality::kWrong},
      // --- wqkv ---
      {"QkvOfAnInvariant",
       "qwen3_tiny",
       "tp=2",
       kNoSp,
       {"forward layers.*.attention.in:"},
       "counts once",
       Fix::kOne,
       Reality::kWrong},
      {"QkvOfTokensThatAreNotGathered",
       "qwen3_tiny",
       "tp=2",
       kSp,
       {"forward layers.*.attention.in:"},
       "its own two shares",
       Fix::kOne,
       Reality::kCannotRun},
      {"QkvCutBetweenKvGroups",
       "llama3_tiny",
       "tp=4",
       kNoSp,
       {"leaf layers.*.attention.wqkv: S(0)@tp"},
       "slots is a concatenation",
       Fix::kOne,
       Reality::kCannotRun},
      // --- split ---
      {"SplitOfAConcatenation",
       "llama3_tiny",
       "dp=2,tp=2",
       kNoSp,
       {"leaf layers.*.attention.wqkv: S(0)@tp, S(0)@dp"},
       "slots is a concatenation",
       Fix::kOne,
       Reality::kCannotRun},
      {"SplitOfAHead",
       "qwen3_tiny",
       "tp=2",
       kNoSp,
       {"leaf layers.*.attention.q_norm: S(0)@tp"},
       "stays whole",
       Fix::kOne,
       Reality::kCannotRun},
      // --- head norms ---
      {"HeadNormInvariantNextToShards",
       "qwen3_tiny",
       "tp=2",
       kNoSp,
       {"leaf layers.*.attention.q_norm: I@tp"},
       "counts once",
       Fix::kOne,
       Reality::kWrong},
      {"HeadNormLeftOutOfThePlan",
       "qwen3_tiny",
       "tp=2",
       kNoSp,
       {"reduction layers.*.attention.k_norm:"},
       "reduce it over this axis",
       Fix::kOne,
       Reality::kWrong},
      {"NormReducedWhereItIsInvariant",
       "qwen3_tiny",
       "tp=2",
       kNoSp,
       {"reduction layers.*.attention_norm.weight: all_reduce@tp -> R"},
       "multiplies it by the number of ranks",
       Fix::kOne,
       Reality::kWrong},
      // --- RoPE ---
      {"RopeWithPositionsOfTheWhole",
       "llama3_tiny",
       "cp=2",
       kNoSp,
       {"leaf positions:"},
       "must be sharded as the tokens are",
       Fix::kOne,
       Reality::kCannotRun},
      {"RopeWithPositionsOfARanksOwn",
       "llama3_tiny",
       "cp=2",
       kNoSp,
       {"leaf positions: V@cp"},
       "must be sharded as the tokens are",
       Fix::kOne,
       Reality::kCannotRun},
      // --- attention ---
      {"AttentionOverPartOfTheKeys",
       "llama3_tiny",
       "cp=2",
       kNoSp,
       {"forward layers.*.attention.k:", "forward layers.*.attention.v:"},
       "sharded along dimension l",
       Fix::kNone,
       Reality::kCannotRun},
      {"AttentionOverPartOfTheKeysAndAllValues",
       "llama3_tiny",
       "cp=2",
       kNoSp,
       {"forward layers.*.attention.k:"},
       "sharded along dimension l",
       Fix::kOne,
       Reality::kCannotRun},
      {"AttentionOverOtherRanksHeads",
       "llama3_tiny",
       "tp=2",
       kNoSp,
       {"forward layers.*.attention.v: all_gather(F32)@tp -> R"},
       "both must be sharded alike",
       Fix::kOne,
       Reality::kCannotRun},
      {"AttentionOfKeysGatheredToInvariant",
       "llama3_tiny",
       "cp=2",
       kNoSp,
       {"forward layers.*.attention.k: all_gather(F32)@cp -> I"},
       "counts once",
       Fix::kOne,
       Reality::kWrong},
      {"AttentionOfQueriesThatTheMaskIsNotOf",
       "llama3_tiny",
       "cp=2",
       kNoSp,
       {"forward layers.*.attention.q: all_gather(F32)@cp -> R"},
       "these are other queries",
       Fix::kOne,
       Reality::kCannotRun},
      // --- output gate ---
      {"OutputGateReplicated",
       "muse_glimmer_tiny",
       "tp=2",
       kNoSp,
       {"leaf layers.*.attention.gate:"},
       "gate has all of dimension",
       Fix::kOne,
       Reality::kCannotRun},
      // --- wo, w2 ---
      {"AttentionOutputPartialIntoTheResidual",
       "llama3_tiny",
       "tp=2",
       kNoSp,
       {"forward layers.*.attention.out:"},
       "finished value",
       Fix::kOne,
       Reality::kWrong},
      {"FfnOutputPartialIntoTheResidual",
       "llama3_tiny",
       "tp=2",
       kNoSp,
       {"forward layers.*.ffn.out:"},
       "finished value",
       Fix::kOne,
       Reality::kWrong},
      {"PartialWithABias",
       "gpt_oss_tiny",
       "tp=2",
       kSp,
       {"forward layers.*.attention.out:"},
       "counted once per rank",
       Fix::kOne,
       Reality::kCannotRun},
      {"PartialWithAnExpertsBias",
       "gpt_oss_tiny",
       "tp=2",
       kNoSp,
       {"forward layers.*.ffn.w2_bias:"},
       "counted once per rank",
       Fix::kOne,
       Reality::kWrong},
      {"AttentionOutputReducedTwice",
       "llama3_tiny",
       "tp=2",
       kNoSp,
       {"forward layers.*.attention.out: all_reduce(F32)@tp -> I; all_reduce(F32)@tp -> I"},
       "multiplies it by the number of ranks",
       Fix::kOne,
       Reality::kWrong},
      {"FfnOutputReducedTwice",
       "llama3_tiny",
       "tp=2",
       kNoSp,
       {"forward layers.*.ffn.out: all_reduce(F32)@tp -> I; all_reduce(F32)@tp -> I"},
       "multiplies it by the number of ranks",
       Fix::kOne,
       Reality::kWrong},
      {"AttentionOutputReducedToReplicate",
       "llama3_tiny",
       "tp=2",
       kNoSp,
       {"forward layers.*.attention.out: all_reduce(F32)@tp -> R"},
       "counts once",
       Fix::kOne,
       Reality::kWrong},
      // --- residual ---
      {"ResidualOfInvariantAndReplicate",
       "llama3_tiny",
       "tp=2",
       kNoSp,
       {"forward layers.*.ffn.out: all_reduce(F32)@tp -> R"},
       "counts once",
       Fix::kOne,
       Reality::kWrong},
      {"ResidualOfInvariantAndShards",
       "llama3_tiny",
       "tp=2",
       kNoSp,
       {"forward layers.*.ffn.out: reduce_scatter(F32)@tp -> S(0)"},
       "counts once",
       Fix::kOne,
       Reality::kCannotRun},
      {"ResidualOfShardsAndPartial",
       "llama3_tiny",
       "tp=2",
       kSp,
       {"forward layers.*.ffn.out:"},
       "neither adding up",
       Fix::kOne,
       Reality::kCannotRun},
      // --- SwiGLU ---
      {"SwigluOfWidthsCutOtherwise",
       "llama3_tiny",
       "tp=2",
       kNoSp,
       {"leaf layers.*.ffn.w3:"},
       "x has all of dimension",
       Fix::kOne,
       Reality::kCannotRun},
      // --- experts on ep ---
      {"ExpertsReducedOverEp",
       "gpt_oss_tiny",
       "dp=2,tp=2,ep=2",
       kSp,
       {"reduction layers.*.ffn.w1: all_reduce@edp -> R; all_reduce@ep -> R"},
       "put side by side, not added up",
       Fix::kOne,
       Reality::kCannotRun},
      {"ExpertsReducedOverDp",
       "gpt_oss_tiny",
       "dp=2,tp=2,ep=2",
       kSp,
       {"reduction layers.*.ffn.w1: all_reduce@dp -> R"},
       "no axis 'dp'",
       Fix::kOne,
       Reality::kCannotRun},
      {"ExpertsSentFromMixedTypes",
       "gpt_oss_tiny",
       "dp=2,tp=2,ep=4",
       kNoSp,
       {"forward layers.*.ffn.in: convert(F32)@tp -> R"},
       "here the types differ",
       Fix::kOne,
       Reality::kCannotRun},
      {"ExpertsRoutedByAnInvariant",
       "gpt_oss_tiny",
       "tp=2,ep=2",
       kSp,
       {"leaf layers.*.ffn.router: I@tp"},
       "counts once",
       Fix::kOne,
       Reality::kWrong},
      {"ExpertsThatEpDoesNotDivide",
       "gpt_oss_tiny",
       "dp=3,ep=3",
       kNoSp,
       {},
       "3 does not divide E=8; ep = 1, 2, 4, 8 would do",
       Fix::kNone,
       Reality::kCannotRun},
      // --- experts on tp ---
      {"ExpertsGradientCalledReplicate",
       "gpt_oss_tiny",
       "tp=2",
       kNoSp,
       {"backward layers.*.ffn.in: convert(F32)@tp -> R"},
       "finished by a reduction only",
       Fix::kOne,
       Reality::kWrong},
      {"ExpertsGradientCalledInvariant",
       "gpt_oss_tiny",
       "tp=2",
       kNoSp,
       {"backward layers.*.ffn.in: convert(F32)@tp -> I"},
       "finished by a reduction only",
       Fix::kOne,
       Reality::kCannotRun},
      {"ExpertsGradientLeftPartial",
       "gpt_oss_tiny",
       "tp=2",
       kNoSp,
       {"backward layers.*.ffn.in:"},
       "finished value",
       Fix::kOne,
       Reality::kWrong},
      // --- router ---
      {"RouterMovedByPartialCounts",
       "muse_spark_tiny",
       "dp=2",
       kNoSp,
       {"forward layers.*.ffn.loads:"},
       "must be those of all tokens",
       Fix::kOne,
       Reality::kWrong},
      {"RouterScoresTimesPartialCounts",
       "gpt_oss_tiny",
       "dp=2",
       kNoSp,
       {"forward layers.*.ffn.loads:"},
       "not the sum of the ranks'",
       Fix::kOne,
       Reality::kWrong},
      {"RouterLeftOutOfThePlan",
       "gpt_oss_tiny",
       "tp=2",
       kNoSp,
       {"reduction layers.*.ffn.router:"},
       "reduce it over this axis",
       Fix::kOne,
       Reality::kWrong},
      // --- head and loss ---
      {"HeadOfAnInvariant",
       "llama3_tiny",
       "tp=2",
       kNoSp,
       {"forward head.in:"},
       "counts once",
       Fix::kOne,
       Reality::kWrong},
      {"HeadThatGivesEachRankALoss",
       "llama3_tiny",
       "tp=2",
       kNoSp,
       {"leaf head.weight:", "leaf targets:", "leaf loss_scale:"},
       "gradients come out multiplied by the number of ranks",
       Fix::kNone,
       Reality::kWrong},
      // --- loss scale ---
      {"LossScaleOfARanksOwn",
       "llama3_tiny",
       "dp=2",
       kNoSp,
       {"leaf loss_scale: V@dp"},
       "neither adding up",
       Fix::kOne,
       Reality::kOtherNumbers},
      // --- kv replication ---
      {"ReplicatedGroupsQueriesNotSliced",
       "llama3_tiny",
       "tp=4",
       kNoSp,
       {"forward layers.*.attention.q:"},
       "",
       Fix::kOne,
       Reality::kCannotRun},
      {"ReplicatedGroupsLeftOutOfThePlan",
       "llama3_tiny",
       "tp=4",
       kNoSp,
       {"reduction layers.*.attention.wqkv:"},
       "axis tp_rep",
       Fix::kOne,
       Reality::kWrong},
  };
  return *cases;
}

std::int64_t Groups(const Mesh& mesh) {
  for (const MeshAxis& axis : mesh.Axes(MeshView::kDense)) {
    if (axis.name == "dp") return axis.size;
  }
  return 1;
}

class RejectedLayout : public testing::TestWithParam<Case> {
 protected:
  RejectedLayout() : config_(SmallPreset(GetParam().preset)) {
    const Mesh mesh = *Mesh::Parse(GetParam().mesh);
    groups_ = Groups(mesh);
    layout_ = *StandardLayout(config_, mesh, {.sequence_parallel = GetParam().sequence_parallel});
    for (const char* edit : GetParam().edits) layout_.plan.Apply(*PlanEntry::Parse(edit));
  }

  void Pass(LayoutChecker& checker) const {
    const auto report = TypePass(config_, {.compute = DType::kF64, .length = kLength}, checker);
    ASSERT_TRUE(report.ok()) << report.status();
  }

  ModelConfig config_;
  ShardedLayout layout_;
  std::int64_t groups_ = 1;
};

TEST_P(RejectedLayout, IsRefusedWithItsReason) {
  LayoutChecker checker(layout_.mesh, layout_.plan);
  Pass(checker);
  ASSERT_FALSE(checker.status().ok());
  std::string mistakes;
  for (const LayoutMistake& mistake : checker.mistakes()) {
    absl::StrAppend(&mistakes, mistake.ToString(), "\n");
  }
  EXPECT_TRUE(absl::StrContains(mistakes, GetParam().words)) << mistakes;
}

TEST_P(RejectedLayout, HasAFixThatIsAccepted) {
  LayoutChecker failed(layout_.mesh, layout_.plan);
  Pass(failed);
  const std::vector<VerifiedFix> fixes =
      FindFixes(failed, [&](LayoutChecker& again) { Pass(again); });
  EXPECT_EQ(fixes.empty(), GetParam().fix == Fix::kNone) << failed.status().message();
  for (const VerifiedFix& fix : fixes) {
    LayoutPlan plan = layout_.plan;
    plan.Apply(fix.edit);
    LayoutChecker again(layout_.mesh, plan);
    Pass(again);
    EXPECT_TRUE(again.status().ok()) << fix.ToString() << ": " << again.status();
  }
}

TEST_P(RejectedLayout, IsWrongInFact) {
  if (GetParam().reality == Reality::kOtherNumbers) return;
  const TokenBatch batch = GroupedBatch(groups_, kLength, config_.vocab_size());
  const PassOutcome ranks = PassOnRanks(config_, layout_, batch, DType::kF64, /*relaxed=*/true);
  if (GetParam().reality == Reality::kCannotRun) {
    EXPECT_NE(ranks.failure, "");
    return;
  }
  ASSERT_EQ(ranks.failure, "");
  ASSERT_FALSE(ranks.mistakes.empty());
  const Difference difference =
      LargestDifference(ranks, PassOnOneRank(config_, batch, DType::kF64));
  EXPECT_GT(difference.size, kWrong) << difference.where;
}

// --- what is not a change of a plan ---

// A mesh whose tp does not divide the kv groups: the message says which would, and they do.
TEST(RejectedMesh, ThatCutsKvGroupsIsToldWhatWouldDo) {
  const ModelConfig config = SmallPreset("llama3_tiny");  // 2 kv groups of 4 query heads
  const auto accepted = [&](std::int64_t tp) {
    const auto layout =
        StandardLayout(config, *Mesh::Parse(absl::StrCat("tp=", tp)), {.sequence_parallel = true});
    if (!layout.ok()) return layout.status();
    LayoutChecker checker(layout->mesh, layout->plan);
    EXPECT_TRUE(TypePass(config, {.compute = DType::kF64, .length = kLength}, checker).ok());
    return checker.status();
  };
  for (const std::int64_t tp : {3, 6, 16}) {
    EXPECT_TRUE(absl::StrContains(accepted(tp).message(), "expected one of 1, 2, 4, 8"))
        << accepted(tp);
  }
  for (const std::int64_t tp : {1, 2, 4, 8}) EXPECT_TRUE(accepted(tp).ok()) << accepted(tp);

  // Without sub-axes the leaf itself says it.
  LayoutChecker checker(*Mesh::Parse("tp=4"),
                        *LayoutPlan::Parse("leaf layers.*.attention.wqkv: S(0)@tp"));
  EXPECT_TRUE(TypePass(config, {.compute = DType::kF64, .length = kLength}, checker).ok());
  EXPECT_TRUE(absl::StrContains(
      checker.status().message(),
      "4 does not divide G=2; tp = 1, 2 would do, or sub-axes of tp, the first of size 2 for G"))
      << checker.status();
}

// tp_rep = 3 of 4 query heads of a group.
TEST(RejectedMesh, ThatCutsTheQueriesOfAGroupUnevenly) {
  const ModelConfig config = SmallPreset("llama3_tiny");
  const Mesh mesh = *Mesh::Parse("tp=6")->WithSubAxes("tp", {{"tp_kv", 2}, {"tp_rep", 3}});
  LayoutChecker checker(mesh, *LayoutPlan::Parse("leaf layers.*.attention.wqkv: S(0)@tp_kv\n"
                                                 "forward layers.*.attention.q: "
                                                 "convert@tp_rep -> S(1)"));
  EXPECT_TRUE(TypePass(config, {.compute = DType::kF64, .length = kLength}, checker).ok());
  std::string mistakes;
  for (const LayoutMistake& mistake : checker.mistakes()) mistakes += mistake.ToString();
  EXPECT_TRUE(absl::StrContains(mistakes, "3 does not divide M=4; tp_rep = 1, 2, 4 would do"))
      << mistakes;
}

// An ep that divides the experts, of those that the message names, is accepted.
TEST(RejectedMesh, ThatEpDoesNotDivideIsToldWhatWouldDo) {
  const ModelConfig config = SmallPreset("gpt_oss_tiny");  // 8 experts
  for (const char* mesh_text : {"dp=2,ep=2", "dp=4,ep=4", "dp=8,ep=8"}) {
    const ShardedLayout layout = *StandardLayout(config, *Mesh::Parse(mesh_text), {});
    LayoutChecker checker(layout.mesh, layout.plan);
    EXPECT_TRUE(TypePass(config, {.compute = DType::kF64, .length = kLength}, checker).ok());
    EXPECT_TRUE(checker.status().ok()) << mesh_text << ": " << checker.status();
  }
}

// The loss and gradients of a batch on two ranks of cp, against those of another on one rank.
Difference OnTwoRanksOfCp(const TokenBatch& on_ranks, const TokenBatch& on_one) {
  const ModelConfig config = SmallPreset("llama3_tiny");
  const ShardedLayout layout = *StandardLayout(config, *Mesh::Parse("cp=2"), {});
  const PassOutcome ranks = PassOnRanks(config, layout, on_ranks, DType::kF64);
  EXPECT_EQ(ranks.failure, "");
  EXPECT_TRUE(ranks.mistakes.empty());
  return LargestDifference(ranks, PassOnOneRank(config, on_one, DType::kF64));
}

// Positions are part of the batch, and of whole documents: a rank that counted its own tokens from
// 0 would be wrong.
TEST(WrongInFact, PositionsThatARankCountsItself) {
  const TokenBatch batch = GroupedBatch(1, kLength, 32);
  TokenBatch local = batch;
  for (std::size_t t = 0; t < local.positions.size(); ++t) {
    local.positions[t] = static_cast<std::int64_t>(t % (kLength / 2));
  }
  EXPECT_LT(OnTwoRanksOfCp(batch, batch).size, 1e-11);
  EXPECT_GT(OnTwoRanksOfCp(local, batch).size, kWrong);
}

// Tokens of another order than the mask's and the positions': the order tags of
// refused_operations_test.cc keep them apart.
TEST(WrongInFact, TokensInAnotherOrderThanTheirMask) {
  const TokenBatch batch = GroupedBatch(1, kLength, 32);
  TokenBatch mixed = batch;
  // Rank 0 takes the first and the last quarter, rank 1 those between.
  const std::size_t quarter = static_cast<std::size_t>(kLength) / 4;
  for (std::size_t t = 0; t < mixed.inputs.size(); ++t) {
    const std::size_t from = t < quarter ? t : t < 2 * quarter ? t + 2 * quarter : t - quarter;
    mixed.inputs[t] = batch.inputs[from];
    mixed.targets[t] = batch.targets[from];
  }
  EXPECT_GT(OnTwoRanksOfCp(mixed, batch).size, kWrong);
}

// Each rank divides by its own targets, and the ranks' gradients are averaged.
TEST(WrongInFact, ALossDividedByARanksOwnTokens) {
  const ModelConfig config = SmallPreset("llama3_tiny");
  TokenBatch batch = GroupedBatch(2, kLength, config.vocab_size());
  for (std::size_t t = 0; t < 8; ++t) batch.targets[t] = kIgnoredTarget;
  const auto half = [&](std::size_t first) {
    TokenBatch part;
    const auto begin = static_cast<std::ptrdiff_t>(first * kLength), end = begin + kLength;
    part.inputs.assign(batch.inputs.begin() + begin, batch.inputs.begin() + end);
    part.targets.assign(batch.targets.begin() + begin, batch.targets.begin() + end);
    part.positions.assign(batch.positions.begin() + begin, batch.positions.begin() + end);
    for (AttentionSegment segment : batch.segments) {
      if (segment.query_begin < begin || segment.query_begin >= end) continue;
      segment.query_begin -= begin;
      segment.key_begin -= begin;
      part.segments.push_back(segment);
    }
    return PassOnOneRank(config, part, DType::kF64);
  };
  const PassOutcome a = half(0), b = half(1), whole = PassOnOneRank(config, batch, DType::kF64);
  PassOutcome mean = whole;
  for (auto& [name, gradient] : mean.gradients) {
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      gradient[i] = (a.gradients.at(name)[i] + b.gradients.at(name)[i]) / 2;
    }
  }
  EXPECT_GT(LargestDifference(mean, whole).size, kWrong);
}

INSTANTIATE_TEST_SUITE_P(Of, RejectedLayout, testing::ValuesIn(Cases()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace headwise
