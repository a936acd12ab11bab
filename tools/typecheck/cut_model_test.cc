#include "tools/typecheck/cut_model.h"

#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "model/config.h"
#include "model/presets/presets.h"
#include "tools/typecheck/folded_names.h"

namespace headwise::typecheck {
namespace {

ModelConfig Model(const char* preset) { return ResolveModelConfig(LoadPreset(preset)->model()); }

TEST(CutModel, HasEveryKindOfLayerOfTheWhole) {
  ModelConfig model = Model("muse_spark");
  model.mutable_ffn()->set_hidden_dim(1024);
  model.mutable_ffn()->mutable_moe()->set_dense_layers(3);
  ASSERT_TRUE(ValidateModelConfig(model).ok());
  const CutModel cut = Cut(model, LayoutPlan(), -1);
  EXPECT_EQ(cut.layers, (std::vector<std::int64_t>{0, 1, 2, 3}));
  EXPECT_TRUE(ValidateModelConfig(cut.model).ok());
  std::set<bool> experts, rotates, windows;
  for (std::int64_t l = 0; l < cut.model.num_layers(); ++l) {
    experts.insert(LayerHasExperts(cut.model, l));
    rotates.insert(LayerUsesRope(cut.model, l));
    windows.insert(LayerWindow(cut.model, l) > 0);
    EXPECT_EQ(LayerHasExperts(cut.model, l), LayerHasExperts(model, cut.layers[l])) << l;
  }
  EXPECT_EQ(experts.size(), 2);
  EXPECT_EQ(rotates.size(), 2);
  EXPECT_EQ(windows.size(), 2);
}

TEST(CutModel, KeepsTheWantedLayerAndGivesItsEntriesItsNumber) {
  const LayoutPlan plan = *LayoutPlan::Parse(
      "leaf layers.*.attention.wqkv: S(0)@tp\n"
      "leaf layers.61.attention.wqkv: I@tp\n"
      "leaf layers.30.attention.wqkv: P@tp\n"
      "leaf layers.3.attention.wqkv: R@tp\n"
      "leaf head.weight: S(0)@tp\n");
  const CutModel cut = Cut(Model("muse_spark"), plan, 61);
  EXPECT_EQ(cut.layers, (std::vector<std::int64_t>{0, 1, 2, 61}));
  EXPECT_EQ(cut.plan.ToString(),
            "leaf layers.*.attention.wqkv: S(0)@tp\n"
            "leaf layers.3.attention.wqkv: I@tp\n"
            "leaf head.weight: S(0)@tp\n");
}

TEST(FoldNames, LayersThatAreAlikeAreOneLine) {
  const std::vector<NamedFact> items = {
      {"embedding", "R"},  {"layers.0.w", "S"}, {"layers.0.norm", "I"}, {"layers.1.w", "S"},
      {"layers.2.w", "R"}, {"layers.3.w", "S"}, {"layers.3.norm", "I"}, {"head", "R"}};
  std::vector<std::tuple<std::string, std::int64_t, std::size_t>> got;
  for (const FoldedName& one : FoldNames(items)) got.emplace_back(one.name, one.count, one.first);
  const std::vector<std::tuple<std::string, std::int64_t, std::size_t>> expected = {
      {"embedding", 1, 0},
      {"layers.0-1,3.w", 3, 1},
      {"layers.0,3.norm", 2, 2},
      {"layers.2.w", 1, 4},
      {"head", 1, 7}};
  EXPECT_EQ(got, expected);
  EXPECT_EQ(LayerOf("layers.17.ffn.w1"), 17);
  EXPECT_EQ(LayerOf("head.weight"), -1);
}

}  // namespace
}  // namespace headwise::typecheck
