#include "tools/typecheck/report.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "tools/typecheck/testing.h"
#include "tools/typecheck/text.h"

namespace headwise::typecheck {
namespace {

std::vector<std::string> Lines(const std::string& text) { return absl::StrSplit(text, '\n'); }

// The line of a text that begins with this, blanks at its head aside.
std::string LineOf(const std::string& text, const std::string& begin) {
  for (const std::string& line : Lines(text)) {
    const std::string words = line.substr(std::min(line.find_first_not_of(' '), line.size()));
    if (absl::StartsWith(words, begin)) return words;
  }
  return "";
}

const ParameterRow& Row(const Report& report, const std::string& name) {
  for (const ParameterRow& row : report.parameters) {
    if (row.name == name) return row;
  }
  HW_CHECK(false) << name;
}

std::int64_t Sent(const Report& report, Phase phase) {
  std::int64_t bytes = 0;
  for (const CommunicationRow& row : report.communication) {
    if (row.phase == phase) bytes += row.bytes;
  }
  return bytes;
}

TEST(Report, FoldsAlikeLayersAndSaysWhatARankHas) {
  const Report report = ReportFor(RequestFor("muse_spark", "dp=4,cp=2,tp=8,ep=32"));
  ASSERT_TRUE(report.accepted());
  const ParameterRow& wqkv = Row(report, "layers.0-61.attention.wqkv");
  EXPECT_EQ(wqkv.count, 62);
  EXPECT_EQ(wqkv.layout.ToString(), "F32[G=16 slots=8+1+1 D=64, N=8192] tp:S(G)");
  EXPECT_EQ(wqkv.bytes, 16 / 8 * 10 * 64 * 8192 * 4);
  EXPECT_EQ(wqkv.optimizer, "muon");
  EXPECT_EQ(Row(report, "layers.0-61.ffn.w1").layout.ToString(),
            "F32[E=256, F=4096, W=4096] ep:S(E)");
  EXPECT_EQ(Row(report, "layers.0-61.ffn.balancing_bias").optimizer, "balancing");
  EXPECT_EQ(Row(report, "head.weight").optimizer, "adamw");
  EXPECT_EQ(report.parameters_of_model, 819990552064);
  const std::string text = ReportText(report, {});
  EXPECT_EQ(LineOf(text, "layers.0-61.attention.wqkv  "),
            "layers.0-61.attention.wqkv               62  F32[G=16 slots=8+1+1 D=64, N=8192]  "
            "tp:S(G)   40 MiB");
  EXPECT_EQ(LineOf(text, "layers.0-61.attention.in x 62"),
            "layers.0-61.attention.in x 62  BF16[B=4 L=64, N=8192]");
  EXPECT_TRUE(absl::StrContains(text,
                                "dp:S(B) cp:S(L) tp:I  ->  dp:S(B) cp:S(L)\n"
                                "      by convert(F32)@tp -> R\n"));
  EXPECT_TRUE(absl::StrContains(text, "\naccepted\n"));
}

TEST(Report, DenseLayersAmongLayersOfExpertsAreRowsOfTheirOwn) {
  CheckRequest request = RequestFor("muse_spark", "tp=2,ep=2");
  request.model.mutable_ffn()->set_hidden_dim(1024);
  request.model.mutable_ffn()->mutable_moe()->set_dense_layers(2);
  const Report report = ReportFor(request);
  ASSERT_TRUE(report.accepted()) << report.mistakes[0].message;
  EXPECT_EQ(Row(report, "layers.0-1.ffn.w1").count, 2);
  EXPECT_EQ(Row(report, "layers.2-61.ffn.w1").count, 60);
}

TEST(Report, MemoryOfOneRankIsThatOfTheModel) {
  CheckRequest request = RequestFor("muse_spark_tiny", "");
  request.compute = DType::kF32;
  const Report report = ReportFor(request);
  ASSERT_EQ(report.memory.size(), 1);
  const Memory& memory = report.memory[0];
  EXPECT_EQ(memory.weights, 4 * report.parameters_of_model);
  EXPECT_EQ(memory.gradients, memory.weights);
  EXPECT_EQ(memory.copies, 0);
  EXPECT_GT(memory.activations, 0);
  std::int64_t state = 0;
  for (const ParameterRow& row : report.parameters) {
    const std::int64_t each = row.optimizer == "adamw" ? 8 : row.optimizer == "muon" ? 4 : 0;
    state += row.count * each * row.bytes / 4;
  }
  EXPECT_EQ(memory.optimizer, state);
  EXPECT_TRUE(report.communication.empty());
  EXPECT_EQ(ReportFor(RequestFor("muse_spark_tiny", "tp=2,dp=2")).memory[0].copies % 2, 0);
}

TEST(Report, OptimizerStateIsWhatTheOptimizerKeeps) {
  for (const char* mesh : {"", "tp=2", "dp=2,tp=2,ep=2"}) {
    const CheckRequest request = RequestFor("muse_spark_tiny", mesh);
    const Report report = ReportFor(request);
    const auto account = CheckOptimizer(request, *PlannedLayout(request));
    ASSERT_TRUE(account.ok()) << account.status();
    // It counts its steps besides.
    EXPECT_GE(account->state_bytes, report.memory[0].optimizer) << mesh;
    EXPECT_LE(account->state_bytes, report.memory[0].optimizer + 1024) << mesh;
    EXPECT_EQ(Sent(report, Phase::kOptimizer), account->bytes_sent()) << mesh;
  }
}

TEST(Report, CommunicationAddsUpToWhatTheCheckerCounts) {
  for (const bool sp : {false, true}) {
    const Report report = ReportFor(RequestFor("muse_spark_tiny", "dp=2,cp=2,tp=2,ep=2", sp));
    ASSERT_TRUE(report.accepted());
    const std::int64_t parts = Sent(report, Phase::kForward) + Sent(report, Phase::kBackward) +
                               Sent(report, Phase::kGradients);
    EXPECT_EQ(parts, report.checked->checker->bytes_sent());
    for (const Phase phase : {Phase::kForward, Phase::kBackward, Phase::kGradients}) {
      EXPECT_GT(Sent(report, phase), 0) << Name(phase);
    }
  }
}

TEST(Report, EveryLineFitsAHundredAndTenColumns) {
  for (const Preset& preset : ListPresets()) {
    for (const char* mesh : {"", "dp=2,cp=2,tp=2,ep=2"}) {
      const Report report = ReportFor(RequestFor(preset.name, mesh, true));
      for (const bool explain : {false, true}) {
        for (const std::string& line : Lines(ReportText(report, {.explain = explain}))) {
          EXPECT_LE(line.size(), 110) << preset.name << " " << mesh << ": " << line;
        }
      }
    }
  }
}

TEST(Report, ExplainsEveryParameterAndBoundary) {
  const Report report = ReportFor(RequestFor("muse_spark_tiny", "dp=2,tp=2"));
  const std::string text = ReportText(report, {.explain = true});
  EXPECT_TRUE(
      absl::StrContains(text, "tp: S(G), the 2 of kv groups (G) are shared out to 2 ranks"));
  EXPECT_TRUE(absl::StrContains(text, "dp: R, whole on all 2, which use it in their own ways"));
  EXPECT_TRUE(absl::StrContains(text, "tp: I, whole on all 2, which do the same with it"));
  EXPECT_TRUE(absl::StrContains(text, "convert(F32)@tp -> R: from here every rank uses it"));
  for (const ParameterRow& row : report.parameters) {
    EXPECT_FALSE(LineOf(text, row.role + ": ").size() < row.role.size() + 10) << row.role;
  }
}

TEST(Mistakes, AreExplainedWithAFixThatMakesTheWholeRight) {
  CheckRequest request =
      RequestFor("muse_spark", "dp=4,cp=2,tp=8,ep=32", false, {"forward layers.*.attention.in:"});
  const Report report = ReportFor(request);
  ASSERT_EQ(report.mistakes.size(), 1);
  const MistakeRow& mistake = report.mistakes[0];
  EXPECT_EQ(mistake.module, "layers.0.attention");
  EXPECT_EQ(mistake.op, "linear");
  EXPECT_EQ(mistake.axis, "tp");
  EXPECT_EQ(mistake.operands,
            (std::vector<std::string>{"x BF16[B=4 L=64, N=8192] dp:S(B) cp:S(L) tp:I",
                                      "weight BF16[G=16 slots=8+1+1 D=64, N=8192] tp:S(G)"}));
  ASSERT_FALSE(mistake.fixes.empty());
  EXPECT_EQ(mistake.fixes[0].edit.ToString(),
            "forward layers.*.attention.in: convert(F32)@tp -> R");
  const std::string text = ReportText(report, {});
  EXPECT_EQ(LineOf(text, "--edit"), "--edit 'forward layers.*.attention.in: convert(F32)@tp -> R'");
  EXPECT_FALSE(absl::StrContains(text, "accepted\n"));
  for (const VerifiedFix& fix : mistake.fixes) {
    CheckRequest fixed = request;
    fixed.edits.push_back(fix.edit);
    const Report again = ReportFor(fixed);
    EXPECT_TRUE(again.accepted()) << fix.edit.ToString();
    EXPECT_EQ(again.checked->checker->bytes_sent(), fix.bytes_sent);
  }
}

TEST(Mistakes, InOneLayerAreFoundThereAndFixed) {
  CheckRequest request = RequestFor("muse_spark", "dp=2,tp=2,ep=4", true,
                                    {"forward layers.47.attention.out: all_reduce@tp -> R"});
  const Report report = ReportFor(request);
  ASSERT_FALSE(report.accepted());
  EXPECT_TRUE(absl::StartsWith(report.mistakes[0].module, "layers.47"));
  ASSERT_FALSE(report.mistakes[0].fixes.empty());
  for (const VerifiedFix& fix : report.mistakes[0].fixes) {
    CheckRequest fixed = request;
    fixed.edits.push_back(fix.edit);
    EXPECT_TRUE(ReportFor(fixed).accepted()) << fix.edit.ToString();
  }
}

TEST(Mistakes, OfLeavesAreFixedAtTheLeaf) {
  struct Case {
    const char *edit, *fix;
  };
  for (const Case& one :
       {Case{"leaf layers.*.attention_norm.weight:", "leaf layers.*.attention_norm.weight: I@tp"},
        Case{"leaf layers.*.attention.wqkv:", "leaf layers.*.attention.wqkv: S(0)@tp"},
        Case{"leaf targets: S(0)@dp, S(0)@cp", "leaf targets: S(0)@dp, S(0)@cp, I@tp"}}) {
    const Report report =
        ReportFor(RequestFor("muse_spark", "dp=4,cp=2,tp=8,ep=32", false, {one.edit}));
    ASSERT_FALSE(report.accepted()) << one.edit;
    ASSERT_FALSE(report.mistakes[0].fixes.empty()) << one.edit;
    EXPECT_EQ(report.mistakes[0].fixes[0].edit.ToString(), one.fix);
  }
}

TEST(Mistakes, AreAllThereIfAskedFor) {
  const CheckRequest request =
      RequestFor("muse_spark_tiny", "dp=2,tp=2", false,
                 {"reduction layers.*.attention.wqkv: all_reduce@dp -> R; all_reduce@dp -> R",
                  "reduction head.weight:"});
  const Report first = ReportFor(request, {.find_fixes = false});
  EXPECT_EQ(first.mistakes.size(), 1);
  const Report all = ReportFor(request, {.every_mistake = true, .find_fixes = false});
  ASSERT_EQ(all.mistakes.size(), 5);
  EXPECT_EQ(first.mistakes[0].message, all.mistakes[0].message);
  EXPECT_EQ(all.mistakes[4].module, "head.weight");
}

TEST(Mistakes, OfSizesSayWhichFlagsWouldDo) {
  CheckRequest request = RequestFor("muse_spark", "dp=2,cp=2,tp=8,ep=32", true);
  request.length = 1000;
  const Report report = ReportFor(request);
  ASSERT_FALSE(report.accepted());
  EXPECT_TRUE(report.mistakes[0].fixes.empty());
  ASSERT_FALSE(report.other_flags.empty());
  EXPECT_EQ(report.other_flags[0], "--length 1008");
  request.length = 1008;
  EXPECT_TRUE(ReportFor(request).accepted());
}

TEST(Mistakes, OfAMeshWithoutALayoutNameOneThatHasOne) {
  const Report report = ReportFor(RequestFor("muse_spark", "dp=2,tp=12"));
  ASSERT_EQ(report.mistakes.size(), 1);
  EXPECT_TRUE(absl::StrContains(report.mistakes[0].why, "expected one of 1, 2, 4, 8, 16"));
  EXPECT_EQ(report.checked, nullptr);
  ASSERT_EQ(report.other_flags, (std::vector<std::string>{"--mesh dp=2,tp=8"}));
  EXPECT_TRUE(ReportFor(RequestFor("muse_spark", "dp=2,tp=8")).accepted());
}

TEST(Mistakes, OfTwoEditsAreBlamedOnTheOneThatIsWrong) {
  // Only with both entries taken back is this right again; one of them is not enough.
  const Report two = ReportFor(RequestFor(
      "muse_spark_tiny", "tp=2", false,
      {"leaf layers.*.attention.wqkv: I@tp", "forward layers.*.attention.q: convert@tp -> R"}));
  EXPECT_FALSE(two.accepted());
  const Report one = ReportFor(
      RequestFor("muse_spark_tiny", "dp=2,tp=2", false,
                 {"leaf layers.*.attention.wo: S(1)@tp", "leaf tokens: S(0)@tp, S(0)@dp"}));
  ASSERT_FALSE(one.accepted());
  for (const VerifiedFix& fix : one.mistakes[0].fixes) {
    EXPECT_TRUE(absl::StrContains(fix.edit.ToString(), "tokens")) << fix.edit.ToString();
  }
}

// Plans that types alone do not refuse, or not yet, and with which a rank's tensors do not fit.
TEST(Mistakes, OfSharesThatDoNotFitHaveAPlace) {
  struct Case {
    const char *preset, *mesh;
    std::initializer_list<const char*> edits;
    const char* message;
  };
  for (const Case& one :
       {Case{"muse_spark_tiny",
             "dp=2,cp=2,tp=2",
             {"backward layers.2.ffn.narrow:"},
             "rank 0 has [128, 256] of the gradient, and [64, 256] of its parameter"},
        Case{"muse_spark_tiny",
             "cp=2",
             {"forward layers.3.attention.in: all_gather@cp -> R",
              "forward layers.3.attention.k:", "forward layers.3.attention.v:"},
             "the mask is that of the tokens that a rank was given"},
        Case{"muse_spark_tiny",
             "tp=2",
             {"leaf layers.*.attention.wqkv: S(0: 0 2)@tp"},
             "rank 0 has nothing of it"},
        Case{"gpt_oss_tiny",
             "dp=2,cp=2,ep=4",
             {"backward layers.3.ffn.combine:"},
             "they lie on different meshes or views"}}) {
    const CheckRequest request = RequestFor(one.preset, one.mesh, true, one.edits);
    const Report report = ReportFor(request, {.find_fixes = false});
    ASSERT_FALSE(report.accepted()) << one.message;
    EXPECT_TRUE(absl::StrContains(report.mistakes[0].message, one.message))
        << report.mistakes[0].message;
  }
}

TEST(Mistakes, EditsOfNothingAreNamedWithTheNearestName) {
  const auto report = MakeReport(
      RequestFor("muse_spark_tiny", "tp=2", false, {"forward layers.*.attention.inn:"}), {});
  EXPECT_EQ(report.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(report.status().message(), "the model has no boundary"));
  EXPECT_TRUE(
      absl::StrContains(report.status().message(), "did you mean 'layers.*.attention.in'?"));
}

TEST(Sizes, ThatNoPassCanHaveAreRefused) {
  CheckRequest request = RequestFor("muse_spark_tiny", "tp=2");
  for (const std::int64_t length : {std::int64_t{-1}, std::int64_t{0}, std::int64_t{1} << 40}) {
    request.length = length;
    EXPECT_EQ(MakeReport(request, {}).status().code(), absl::StatusCode::kInvalidArgument);
  }
  request.length = 64;
  for (const std::int64_t sequences : {std::int64_t{-1}, std::int64_t{1} << 60}) {
    request.sequences = sequences;
    EXPECT_EQ(MakeReport(request, {}).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace headwise::typecheck
