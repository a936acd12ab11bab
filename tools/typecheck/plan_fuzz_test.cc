// Plans and meshes that nobody would write: whatever they are, the answer is a report.
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/split_mix.h"
#include "gtest/gtest.h"
#include "model/presets/presets.h"
#include "tools/typecheck/json.h"
#include "tools/typecheck/layer_drawing.h"
#include "tools/typecheck/report.h"
#include "tools/typecheck/svg.h"
#include "tools/typecheck/text.h"

// Fewer for the sanitizers, which take ten times as long.
#ifndef HW_PLANS
#define HW_PLANS 600
#endif

namespace headwise::typecheck {
namespace {

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : state_(seed) {}
  std::uint64_t Roll(std::uint64_t n) { return NextSplitMix(state_) % n; }
  template <typename T>
  const T& Of(const std::vector<T>& choices) {
    return choices[Roll(choices.size())];
  }

 private:
  std::uint64_t state_;
};

std::string AnyType(Dice& dice) {
  const std::string axis =
      dice.Of<std::string>({"dp", "cp", "tp", "tp", "tp_kv", "tp_rep", "ep", "edp"});
  const std::string type = dice.Of<std::string>(
      {"R", "I", "V", "P", "S(0)", "S(1)", "S(2)", "S(0: 1 3)", "S(0: 0 4)", "S(0: 2 0)"});
  return absl::StrCat(type, "@", axis);
}

std::string AnySteps(Dice& dice) {
  std::string steps;
  for (std::uint64_t n = dice.Roll(3); n > 0; --n) {
    const std::string kind = dice.Of<std::string>(
        {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "convert", "reinterpret"});
    const std::string step =
        dice.Roll(8) == 0
            ? absl::StrCat("reinterpret_mesh -> ", dice.Of<std::string>({"expert", "dense"}))
            : absl::StrCat(kind, "(F32)@", dice.Of<std::string>({"dp", "cp", "tp", "ep", "edp"}),
                           " -> ", dice.Of<std::string>({"R", "I", "P", "V", "S(0)", "S(1)"}));
    absl::StrAppend(&steps, steps.empty() ? "" : "; ", step);
  }
  return steps;
}

std::string AnyEdit(Dice& dice, const LayoutChecker& checker) {
  const auto& [leaf, type] = dice.Of(checker.leaves());
  const std::string boundary = dice.Of(checker.crossings()).boundary;
  switch (dice.Roll(5)) {
    case 0:
      return absl::StrCat("leaf ", leaf, ": ", dice.Roll(6) == 0 ? "expert: " : "", AnyType(dice),
                          dice.Roll(2) == 0 ? absl::StrCat(", ", AnyType(dice)) : "");
    case 1:
      return absl::StrCat("backward ", boundary, ": ", AnySteps(dice));
    case 2:
      return absl::StrCat("reduction ", leaf, ": ", AnySteps(dice));
    default:
      return absl::StrCat("forward ", boundary, ": ", AnySteps(dice));
  }
}

TEST(PlanFuzz, AnyPlanOnAnyMeshEndsInAReport) {
  const std::vector<std::string> presets = {"muse_spark_tiny", "muse_glimmer_tiny", "gpt_oss_tiny",
                                            "qwen3_tiny"};
  const std::vector<std::string> meshes = {"",          "tp=2",           "dp=2,tp=2,ep=2",
                                           "cp=2,tp=2", "dp=2,cp=2,ep=4", "tp=4,ep=4",
                                           "dp=3,tp=2", "dp=2,cp=2,tp=2", "tp=8,ep=2"};
  int accepted = 0, refused = 0, fixed = 0;
  for (std::uint64_t i = 0; i < HW_PLANS; ++i) {
    Dice dice(i);
    const std::string preset = dice.Of(presets), mesh = dice.Of(meshes);
    CheckRequest request = {.model = LoadPreset(preset)->model(),
                            .mesh = *Mesh::Parse(mesh),
                            .sequence_parallel = dice.Roll(2) == 0,
                            .compute = dice.Roll(2) == 0 ? DType::kF32 : DType::kBF16,
                            .length = 8 + static_cast<std::int64_t>(dice.Roll(57))};
    const auto plain = MakeReport(request, {.find_fixes = false});
    ASSERT_TRUE(plain.ok()) << plain.status();
    std::string edits;
    for (std::uint64_t n = plain->checked == nullptr ? 0 : 1 + dice.Roll(2); n > 0; --n) {
      const std::string text = AnyEdit(dice, *plain->checked->checker);
      const auto edit = PlanEntry::Parse(text);
      ASSERT_TRUE(edit.ok()) << edit.status();
      request.edits.push_back(*edit);
      absl::StrAppend(&edits, " --edit '", text, "'");
    }
    SCOPED_TRACE(absl::StrCat(i, ": --preset ", preset, " --mesh ", mesh, " --length ",
                              request.length, request.sequence_parallel ? " --sp" : "", edits));
    const auto report = MakeReport(request, {.every_mistake = true, .find_fixes = i % 10 == 0});
    ASSERT_TRUE(report.ok()) << report.status();
    ++(report->accepted() ? accepted : refused);
    EXPECT_FALSE(ReportText(*report, {.explain = true}).empty());
    EXPECT_FALSE(ReportJson(*report, {.explain = true}).empty());
    if (report->accepted()) {
      EXPECT_FALSE(RenderSvg(DrawLayer(*report->checked->checker, 0)).empty());
    }
    for (const MistakeRow& row : report->mistakes) {
      EXPECT_FALSE(row.why.empty());
      fixed += !row.fixes.empty();
    }
  }
  // Both kinds, and some that one edit makes right.
  EXPECT_GT(accepted, HW_PLANS / 20);
  EXPECT_GT(refused, HW_PLANS / 3);
  EXPECT_GT(fixed, 0);
}

}  // namespace
}  // namespace headwise::typecheck
