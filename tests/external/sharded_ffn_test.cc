#include "sharded_ffn.h"

#include <string>

#include "core/parallel/layout_checker.h"
#include "core/parallel/mesh.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace example {
namespace {

using headwise::FindFixes;
using headwise::LayoutChecker;
using headwise::LayoutPlan;
using headwise::Mesh;
using headwise::PlanEntry;
using headwise::VerifiedFix;
using testing::HasSubstr;

constexpr ShardedFfn kLayer = {.tokens = 128, .width = 64, .blocks = 12, .block_size = 8};

std::string Mistake(const char* mesh, const LayoutPlan& plan) {
  LayoutChecker check(*Mesh::Parse(mesh), plan);
  kLayer.Check(check);
  return std::string(check.status().message());
}

TEST(ShardedFfn, IsRight) {
  for (const char* mesh : {"", "dp=2", "tp=2", "tp=3", "tp=12", "dp=4,tp=6"}) {
    EXPECT_EQ(Mistake(mesh, TensorParallelFfn()), "") << mesh;
  }
}

TEST(ShardedFfn, BlocksAreNotCut) {
  EXPECT_THAT(Mistake("tp=8", TensorParallelFfn()), HasSubstr("8 does not divide F=12"));
}

TEST(ShardedFfn, AMistakeComesWithItsFix) {
  for (const char* edit : {"forward ffn.in:", "forward ffn.out:", "leaf ffn.gate:",
                           "backward ffn.in: convert(F32)@tp -> I", "leaf ffn.w2: S(0)@tp"}) {
    LayoutPlan plan = TensorParallelFfn();
    plan.Apply(*PlanEntry::Parse(edit));
    LayoutChecker check(*Mesh::Parse("dp=2,tp=2"), plan);
    kLayer.Check(check);
    ASSERT_FALSE(check.status().ok()) << edit;
    const auto fixes = FindFixes(check, [](LayoutChecker& again) { kLayer.Check(again); });
    ASSERT_FALSE(fixes.empty()) << edit << ": " << check.status();
    plan.Apply(fixes[0].edit);
    EXPECT_EQ(Mistake("dp=2,tp=2", plan), "") << edit << ": " << fixes[0].ToString();
  }
}

}  // namespace
}  // namespace example
