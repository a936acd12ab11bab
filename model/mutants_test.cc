// Every change of one entry of a layout's plan is refused by the checker, or gives the loss and the
// gradients of one rank: what the checker accepts is right, as far as single mistakes go.
//
// The mutants are those of model/test_mutants.h, on the tiny presets in two narrow layers and in
// double precision, where a right layout agrees to 1e-11 and a wrong one does not come near. Those
// that are accepted run on ranks in threads; they are equivalent for the reasons of
// WhyEquivalent().
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/dtype/dtype.h"
#include "core/parallel/layout_checker.h"
#include "core/parallel/mesh.h"
#include "gtest/gtest.h"
#include "model/standard_layout.h"
#include "model/test_config.h"
#include "model/test_mutants.h"
#include "model/test_presets.h"
#include "model/test_ranks.h"
#include "model/type_pass.h"

namespace headwise {
namespace {

constexpr std::int64_t kLength = 16;  // tokens of a group
constexpr double kRoundingOfDoubles = 1e-11;

std::int64_t Groups(const Mesh& mesh) {
  for (const MeshAxis& axis : mesh.Axes(MeshView::kDense)) {
    if (axis.name == "dp") return axis.size;
  }
  return 1;
}

// What makes an accepted mutant compute the same; "" if nothing is known to.
std::string WhyEquivalent(const Mutant& mutant) {
  const std::string& name = mutant.edit.name;
  switch (mutant.kind) {
    case MutantKind::kReductionType:
      return "a reduced gradient that is I is used as one that is R is: once";
    case MutantKind::kLeafOrder:
      if (name == "embedding.weight" || name == "head.weight") {
        return "which rank holds which part of the vocabulary does not matter to sums over it";
      }
      return "";
    case MutantKind::kStepsSwapped:
      if (absl::EndsWith(name, ".loads")) return "a sum over two axes may begin with either";
      return "";
    case MutantKind::kStepReplaced:
      if (absl::EndsWith(name, ".loads")) {
        return "a slice that the next boundary pads with zeros is the term of a sum that a copy on "
               "the first rank is";
      }
      return "";
    default:
      return "";
  }
}

struct Counts {
  int mutants = 0, equivalent = 0;
};

class Layout {
 public:
  Layout(const ModelConfig& config, const char* mesh_text, bool sequence_parallel)
      : config_(config) {
    const Mesh mesh = *Mesh::Parse(mesh_text);
    const auto layout = StandardLayout(config, mesh, {.sequence_parallel = sequence_parallel});
    EXPECT_TRUE(layout.ok()) << layout.status();
    layout_ = *layout;
    batch_ = GroupedBatch(Groups(mesh), kLength, config.vocab_size());
    expected_ = PassOnOneRank(config, batch_, DType::kF64);
  }

  Counts CheckMutants() const {
    LayoutChecker standard(layout_.mesh, layout_.plan);
    Pass(standard, DType::kF64);
    Counts counts;
    for (const Mutant& mutant : MutantsOf(standard)) {
      ++counts.mutants;
      LayoutPlan plan = layout_.plan;
      plan.Apply(mutant.edit);
      LayoutChecker checker(layout_.mesh, plan), narrow(layout_.mesh, plan);
      Pass(checker, DType::kF64);
      Pass(narrow, DType::kBF16);
      if (!checker.status().ok()) {
        EXPECT_FALSE(narrow.status().ok()) << mutant.edit.ToString() << ": accepted in BF16 only";
        continue;
      }
      ++counts.equivalent;
      EXPECT_NE(WhyEquivalent(mutant), "") << Name(mutant.kind) << ": " << mutant.edit.ToString();
      EXPECT_EQ(OnRanks({layout_.mesh, plan}), "")
          << Name(mutant.kind) << ": " << mutant.edit.ToString();
    }
    return counts;
  }

 private:
  void Pass(LayoutChecker& checker, DType compute) const {
    const auto report = TypePass(config_, {.compute = compute, .length = kLength}, checker);
    EXPECT_TRUE(report.ok()) << report.status();
  }

  // "", or how the layout differs from one rank.
  std::string OnRanks(const ShardedLayout& layout) const {
    const PassOutcome ranks = PassOnRanks(config_, layout, batch_, DType::kF64);
    if (!ranks.failure.empty()) return ranks.failure;
    const Difference difference = LargestDifference(ranks, expected_);
    if (difference.size < kRoundingOfDoubles) return "";
    return absl::StrCat(difference.where, " differs by ", difference.size);
  }

  ModelConfig config_;
  ShardedLayout layout_;
  TokenBatch batch_;
  PassOutcome expected_;
};

struct Expected {
  const char* mesh;
  bool sequence_parallel;
  int mutants, equivalent;
};

void CheckAll(const ModelConfig& config, const std::vector<Expected>& all) {
  for (const Expected& expected : all) {
    const Counts counts = Layout(config, expected.mesh, expected.sequence_parallel).CheckMutants();
    const std::string layout = absl::StrCat(config.name(), " ", expected.mesh,
                                            expected.sequence_parallel ? " sequence parallel" : "");
    std::cout << layout << ": " << counts.mutants
              << " mutants: " << counts.mutants - counts.equivalent << " refused, "
              << counts.equivalent << " equivalent\n";
    EXPECT_EQ(counts.mutants, expected.mutants) << layout;
    EXPECT_EQ(counts.equivalent, expected.equivalent) << layout;
  }
}

TEST(Mutants, OfLlama3AreRefusedOrEquivalent) {
  CheckAll(SmallPreset("llama3_tiny"), {{"tp=2", false, 378, 0},
                                        {"tp=2", true, 384, 3},
                                        {"dp=2,tp=2", false, 722, 10},
                                        {"dp=2,tp=2", true, 728, 13},
                                        {"cp=2", false, 386, 10},
                                        {"dp=2,cp=2", false, 733, 20},
                                        {"tp=4", false, 725, 3},
                                        {"tp=4", true, 737, 9}});
}

TEST(Mutants, OfQwen3AreRefusedOrEquivalent) {
  CheckAll(SmallPreset("qwen3_tiny"), {{"tp=2", false, 392, 2},
                                       {"tp=2", true, 398, 5},
                                       {"dp=2,tp=2", false, 750, 14},
                                       {"dp=2,tp=2", true, 756, 17},
                                       {"cp=2", false, 400, 12},
                                       {"dp=2,cp=2", false, 761, 24},
                                       {"tp=4", false, 753, 7},
                                       {"tp=4", true, 765, 13}});
}

TEST(Mutants, OfMuseGlimmerAreRefusedOrEquivalent) {
  CheckAll(SmallPreset("muse_glimmer_tiny"), {{"tp=2", false, 394, 0},
                                              {"tp=2", true, 404, 5},
                                              {"dp=2,tp=2", false, 760, 13},
                                              {"dp=2,tp=2", true, 770, 18},
                                              {"cp=2", false, 408, 13},
                                              {"dp=2,cp=2", false, 777, 26},
                                              {"tp=4", false, 758, 3},
                                              {"tp=4", true, 778, 13}});
}

TEST(Mutants, OfGptOssAreRefusedOrEquivalent) {
  CheckAll(SmallPreset("gpt_oss_tiny"), {{"tp=2", false, 615, 6},
                                         {"tp=2", true, 623, 10},
                                         {"dp=2,tp=2", false, 1180, 23},
                                         {"dp=2,tp=2", true, 1188, 27},
                                         {"cp=2", false, 630, 19},
                                         {"dp=2,cp=2", false, 1198, 37},
                                         {"tp=4", false, 1180, 15},
                                         {"tp=4", true, 1196, 23}});
}

TEST(Mutants, OfGptOssWithExpertParallelismAreRefusedOrEquivalent) {
  CheckAll(SmallPreset("gpt_oss_tiny"), {{"tp=2,ep=2", false, 714, 4},
                                         {"tp=2,ep=2", true, 716, 8},
                                         {"dp=2,ep=2", false, 716, 14},
                                         {"cp=2,ep=2", false, 722, 14},
                                         {"dp=2,tp=2,ep=2", true, 1360, 26},
                                         {"dp=2,tp=2,ep=4", false, 1149, 16}});
}

TEST(Mutants, OfMuseSparkAreRefusedOrEquivalent) {
  CheckAll(SmallPreset("muse_spark_tiny"), {{"tp=2", false, 648, 4},
                                            {"tp=2", true, 660, 10},
                                            {"dp=2,tp=2", false, 1241, 23},
                                            {"dp=2,tp=2", true, 1253, 29},
                                            {"cp=2", false, 660, 20},
                                            {"dp=2,cp=2", false, 1256, 39},
                                            {"tp=4", false, 1240, 10},
                                            {"tp=4", true, 1264, 22}});
}

TEST(Mutants, OfMuseSparkWithExpertParallelismAreRefusedOrEquivalent) {
  CheckAll(SmallPreset("muse_spark_tiny"), {{"tp=2,ep=2", false, 748, 7},
                                            {"tp=2,ep=2", true, 754, 13},
                                            {"dp=2,ep=2", false, 752, 18},
                                            {"cp=2,ep=2", false, 758, 18},
                                            {"dp=2,tp=2,ep=2", true, 1426, 32},
                                            {"dp=2,tp=2,ep=4", false, 1256, 22}});
}

// A shared expert, a dense layer among those with experts, and a head tied to the embedding.
TEST(Mutants, OfASharedExpertAndATiedHeadAreRefusedOrEquivalent) {
  ModelConfig config = ExpertsConfig();
  config.set_vocab_size(20);
  CheckAll(config, {{"tp=2", false, 731, 4},
                    {"tp=2", true, 739, 9},
                    {"dp=2", false, 742, 24},
                    {"dp=2,tp=2", false, 1405, 26}});
}

}  // namespace
}  // namespace headwise
