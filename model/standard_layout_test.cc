// The standard layouts of every family are accepted, forward, backward and gradients, on every mesh
// that they fit, at any size.
#include "model/standard_layout.h"

#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/parallel/layout_checker.h"
#include "gtest/gtest.h"
#include "model/config.h"
#include "model/presets/presets.h"
#include "model/type_pass.h"

namespace headwise {
namespace {

using absl::StrCat;

struct Case {
  std::string mesh;
  bool sequence_parallel = false;
  bool unfused = false;
  std::int64_t length = 4096;
};

// "", or what is wrong.
std::string Mistake(ModelConfig config, const Case& c) {
  config.mutable_attention()->set_unfused_qkv(c.unfused);
  const Mesh mesh = *Mesh::Parse(c.mesh);
  const auto layout = StandardLayout(config, mesh, {.sequence_parallel = c.sequence_parallel});
  if (!layout.ok()) return std::string(layout.status().message());
  LayoutChecker checker(layout->mesh, layout->plan);
  const auto report = TypePass(config, {.length = c.length}, checker);
  if (!report.ok()) return std::string(report.status().message());
  if (!checker.status().ok()) return std::string(checker.status().message());
  // Nothing was left out: every parameter but balancing biases, which have loads, is reduced.
  std::set<std::string> reduced, expected;
  for (const PlannedGradient& one : checker.gradient_plan().gradients()) {
    reduced.insert(one.parameter);
  }
  for (const auto& parameter : report->parameters) {
    if (parameter.role != ParameterRole::kBalancingBias) expected.insert(parameter.name);
  }
  return reduced == expected ? "" : "a parameter is missing in the gradient plan";
}

// A model with as many layers as have every kind once.
ModelConfig Model(const std::string& preset, int layers = 0) {
  ModelConfig config = LoadPreset(preset)->model();
  if (layers > 0) config.set_num_layers(layers);
  return config;
}

constexpr const char* kTiny[] = {"muse_demo",      "muse_17m",     "llama3_tiny",
                                 "qwen3_tiny",     "gpt_oss_tiny", "muse_glimmer_tiny",
                                 "muse_spark_tiny"};

TEST(StandardLayout, OfEveryFamilyOnEveryMeshUpToFourRanksAnAxis) {
  int checked = 0;
  for (const char* preset : kTiny) {
    const ModelConfig config = Model(preset, 4);
    for (const int dp : {1, 2, 4}) {
      for (const int cp : {1, 2, 4}) {
        for (const int tp : {1, 2, 4}) {
          for (const bool sp : {false, true}) {
            const std::string mesh = StrCat("dp=", dp, ",cp=", cp, ",tp=", tp);
            const std::string mistake =
                Mistake(config, {.mesh = mesh, .sequence_parallel = sp, .length = 64});
            EXPECT_EQ(mistake, "") << preset << " " << mesh << " sp " << sp;
            ++checked;
          }
        }
      }
    }
  }
  EXPECT_EQ(checked, 7 * 27 * 2);
}

TEST(StandardLayout, FusedAndUnfused) {
  for (const char* preset :
       {"muse_spark", "muse_glimmer_30b", "llama3_8b", "qwen3_8b", "gpt_oss_20b"}) {
    for (const bool sp : {false, true}) {
      for (const bool unfused : {false, true}) {
        for (const char* mesh : {"tp=2", "cp=2"}) {
          EXPECT_EQ(Mistake(Model(preset, 4),
                            {.mesh = mesh, .sequence_parallel = sp, .unfused = unfused}),
                    "")
              << preset << " " << mesh << " sp " << sp << " unfused " << unfused;
        }
      }
    }
  }
}

TEST(StandardLayout, ExpertParallel) {
  for (const char* preset : {"muse_spark_tiny", "gpt_oss_tiny", "muse_spark", "gpt_oss_20b"}) {
    for (const char* mesh : {"ep=1", "tp=2,ep=1", "tp=2,ep=2", "dp=2,ep=2", "cp=2,ep=2",
                             "dp=2,tp=2,ep=2", "dp=2,tp=2,ep=4", "dp=2,cp=2,tp=2,ep=4"}) {
      for (const bool sp : {false, true}) {
        EXPECT_EQ(Mistake(Model(preset, 4), {.mesh = mesh, .sequence_parallel = sp, .length = 64}),
                  "")
            << preset << " " << mesh << " sp " << sp;
      }
    }
  }
}

TEST(StandardLayout, ReplicatesKvGroups) {
  const ModelConfig glimmer = Model("muse_glimmer_30b");
  const std::int64_t groups = glimmer.attention().num_kv_heads();
  const std::int64_t tp = 2 * groups;
  for (const bool sp : {false, true}) {
    EXPECT_EQ(Mistake(glimmer, {.mesh = StrCat("tp=", tp), .sequence_parallel = sp}), "");
  }
  EXPECT_EQ(Mistake(Model("muse_glimmer_tiny"), {.mesh = "tp=4", .length = 64}), "");
  const auto layout = StandardLayout(glimmer, *Mesh::Parse(StrCat("tp=", tp)), {});
  EXPECT_EQ(layout->mesh.Axes(MeshView::kDense).size(), 2) << layout->mesh.ToString();
}

TEST(StandardLayout, AtNativeSizesUpTo4096Ranks) {
  const struct {
    const char* preset;
    const char* mesh;
  } kCases[] = {
      {"muse_spark", "dp=16,cp=4,tp=16,ep=64"},  {"muse_spark", "dp=64,cp=4,tp=16,ep=256"},
      {"muse_spark", "dp=256,tp=16,ep=16"},      {"muse_spark", "dp=1024,cp=4"},
      {"llama3_8b", "dp=128,cp=4,tp=8"},         {"qwen3_8b", "dp=512,tp=8"},
      {"gpt_oss_20b", "dp=128,cp=4,tp=8,ep=32"}, {"muse_glimmer_30b", "dp=1024,tp=4"},
  };
  for (const auto& c : kCases) {
    for (const bool sp : {false, true}) {
      EXPECT_EQ(Mistake(Model(c.preset), {.mesh = c.mesh, .sequence_parallel = sp, .length = 8192}),
                "")
          << c.preset << " " << c.mesh << " sp " << sp;
    }
  }
}

TEST(StandardLayout, SaysWhichTensorParallelSizesFit) {
  EXPECT_EQ(Mistake(Model("muse_spark"), {.mesh = "tp=24"}),
            "mesh: tp=24 shares out neither the 16 kv groups of muse_spark nor, replicating them, "
            "the 8 query heads of each; expected one of 1, 2, 4, 8, 16, 32, 64, 128");
  // What else does not divide is the checker's to say.
  const std::string tokens = Mistake(Model("muse_spark", 4), {.mesh = "cp=3", .length = 4096});
  EXPECT_TRUE(absl::StrContains(tokens, "tokens: axis cp (3) cannot shard dimension 0")) << tokens;
  const std::string experts = Mistake(Model("muse_spark", 4), {.mesh = "dp=3,ep=3"});
  EXPECT_TRUE(absl::StrContains(experts, "w1: axis ep (3) cannot shard dimension 0 [E=256]"))
      << experts;
}

// A bias or a gain that lies in the plan by mistake must not hide behind the pattern of others.
TEST(StandardLayout, OfDenseLayersAmongLayersOfExperts) {
  ModelConfig config = Model("gpt_oss_tiny", 4);
  config.mutable_ffn()->mutable_moe()->set_dense_layers(1);
  config.mutable_ffn()->set_hidden_dim(64);
  for (const char* mesh : {"tp=2", "tp=2,ep=2", "dp=2,tp=2,ep=4"}) {
    for (const bool sp : {false, true}) {
      EXPECT_EQ(Mistake(config, {.mesh = mesh, .sequence_parallel = sp, .length = 64}), "")
          << mesh << " sp " << sp;
    }
  }
}

// --- type passes ---

TEST(TypePass, SeesEveryRankOfAnUnevenVocabulary) {
  const ModelConfig config = Model("llama3_tiny", 2);
  const Mesh mesh = *Mesh::Parse("tp=2");
  ShardedLayout layout = *StandardLayout(config, mesh, {});
  for (const char* table : {"embedding.weight", "head.weight"}) {
    layout.plan.SetLeaf(table, "S(0: 100 156)@tp");
  }
  std::vector<std::int64_t> kinds = {0};
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    LayoutChecker checker(layout.mesh, layout.plan);
    ASSERT_TRUE(TypePass(config, {.length = 64, .rank = kinds[i]}, checker).ok());
    EXPECT_EQ(checker.status().message(), "") << kinds[i];
    if (i == 0) kinds = RankKinds(checker);
  }
  EXPECT_EQ(kinds, (std::vector<std::int64_t>{0, 1}));
}

TEST(TypePass, CountsTheMemoryOfARank) {
  const ModelConfig config = Model("llama3_tiny", 2);
  const auto pass = [&](const char* mesh) {
    const ShardedLayout layout = *StandardLayout(config, *Mesh::Parse(mesh), {});
    LayoutChecker checker(layout.mesh, layout.plan);
    return *TypePass(config, {.length = 64}, checker);
  };
  const TypePassReport one = pass(""), two = pass("tp=2");
  std::int64_t bytes_of_one = 0, bytes_of_two = 0;
  for (std::size_t i = 0; i < one.parameters.size(); ++i) {
    bytes_of_one += one.parameters[i].bytes;
    bytes_of_two += two.parameters[i].bytes;
  }
  // All but the norms is shared out.
  EXPECT_LT(bytes_of_two, bytes_of_one / 2 + 100 * config.dim());
  EXPECT_GE(bytes_of_two, bytes_of_one / 2);
  EXPECT_GT(one.activation_bytes, 64 * config.dim() * 2 * 8);
  EXPECT_LT(two.activation_bytes, one.activation_bytes);
  EXPECT_LT(two.weight_copy_bytes, one.weight_copy_bytes);
}

}  // namespace
}  // namespace headwise
