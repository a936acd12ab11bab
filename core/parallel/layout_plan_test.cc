#include "core/parallel/layout_plan.h"

#include <string>

#include "gtest/gtest.h"

namespace headwise {
namespace {

TEST(MatchesName, ComponentByComponent) {
  EXPECT_TRUE(MatchesName("layers.*.ffn.in", "layers.12.ffn.in"));
  EXPECT_TRUE(MatchesName("head", "head"));
  EXPECT_FALSE(MatchesName("layers.*.ffn", "layers.12.ffn.in"));
  EXPECT_FALSE(MatchesName("layers.*.ffn.in", "layers.12.ffn"));
  EXPECT_FALSE(MatchesName("layers.1.ffn", "layers.12.ffn"));
}

TEST(LayoutPlan, TheLastEntryThatMatchesHolds) {
  LayoutPlan plan;
  plan.SetLeaf("layers.*.norm", "I@tp");
  plan.SetLeaf("layers.3.norm", "");
  EXPECT_EQ(plan.Leaf("layers.2.norm").ToString(), "I@tp");
  EXPECT_EQ(plan.Leaf("layers.3.norm").ToString(), "");
  EXPECT_EQ(plan.Leaf("final_norm"), LayoutSpec());
  plan.Apply(*PlanEntry::Parse("remove leaf layers.3.norm"));
  EXPECT_EQ(plan.Leaf("layers.3.norm").ToString(), "I@tp");
}

TEST(LayoutPlan, PartsDoNotMix) {
  LayoutPlan plan;
  plan.SetForward("head.in", {"all_gather@tp -> R"});
  EXPECT_EQ(plan.Forward("head.in").size(), 1);
  EXPECT_FALSE(plan.Backward("head.in").has_value());
  EXPECT_FALSE(plan.Reduction("head.in").has_value());
  plan.SetBackward("head.in", {});
  ASSERT_TRUE(plan.Backward("head.in").has_value());
  EXPECT_TRUE(plan.Backward("head.in")->empty());
}

TEST(LayoutPlan, TextRoundTrips) {
  const std::string text =
      "leaf layers.*.attention.wqkv: S(0)@tp\n"
      "leaf tokens:\n"
      "forward layers.*.attention.out: all_reduce(F32)@tp -> I\n"
      "backward layers.*.attention.out: convert@tp -> R; all_reduce@dp -> I\n"
      "reduction layers.*.attention_norm: all_reduce@dp -> R\n";
  const auto plan = LayoutPlan::Parse("# a comment\n\n" + text);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->ToString(), text);
  EXPECT_EQ(PlanEntry::Parse("remove backward head.in")->ToString(), "remove backward head.in");
}

TEST(LayoutPlan, ErrorsNameTheLine) {
  EXPECT_EQ(LayoutPlan::Parse("leaf a: R@tp\nleaf b: Q@tp").status().message(),
            "line 2: layout ' Q@tp': 'Q@tp' must be R, I, V, P or S(dim), then @axis; nothing at "
            "all is R on "
            "every axis");
  for (const char* text : {"leaf a", "leaves a: R@tp", "leaf : R@tp", "forward a: sum@tp -> R",
                           "remove leaf a: R@tp"}) {
    EXPECT_FALSE(LayoutPlan::Parse(text).ok()) << text;
  }
}

}  // namespace
}  // namespace headwise
