#include "core/parallel/rules/loss_rules.h"

#include <string>

#include "absl/strings/match.h"
#include "core/parallel/rules/layer_rules.h"
#include "core/parallel/testing/declare.h"
#include "gtest/gtest.h"

namespace headwise::rules {
namespace {

using ::absl::StrContains;
using ::headwise::testing::Leaf;
using ::headwise::testing::Outcome;

const Dim kT = {Factor::Batch("B", 2), {"L", 64}};
const Dim kV = {{"V", 128}};
constexpr char kMesh[] = "dp=2,tp=2";

LayoutType Logits(const char* spec) { return Leaf(kMesh, {kT, kV}, spec); }
LayoutType Targets(const char* spec) { return Leaf(kMesh, {kT}, spec, DType::kI32); }

TEST(LossRule, VocabularyParallel) {
  const LayoutType z = Logits("S(0)@dp, S(1)@tp"), targets = Targets("S(0)@dp, I@tp");
  const LayoutType losses = *CrossEntropy(z, targets, DType::kF32);
  EXPECT_EQ(losses.ToString(), "F32[B=2 L=64] dp:S(B) tp:I");
  const LayoutType loss = *SumLosses(losses);
  EXPECT_EQ(loss.ToString(), "F32[] dp:P tp:I");
  EXPECT_TRUE(CheckLoss(loss).ok());
  EXPECT_TRUE(CheckDual(*CrossEntropyBackward(z, targets, nullptr, DType::kF32), z).ok());
  const LayoutType scale = Leaf(kMesh, {}, "I@tp");
  EXPECT_TRUE(CheckDual(*CrossEntropyBackward(z, targets, &scale, DType::kF32), z).ok());
}

TEST(LossRule, WholeVocabulary) {
  const char* spec = "S(0)@dp, S(0)@tp";
  const LayoutType losses = *CrossEntropy(Logits(spec), Targets(spec), DType::kF32);
  EXPECT_TRUE(CheckLoss(*SumLosses(losses)).ok());
  EXPECT_TRUE(StrContains(CheckLoss(losses).message(), "make no one loss"));
}

TEST(LossRule, Refusals) {
  EXPECT_TRUE(StrContains(Outcome(CrossEntropy(Logits("S(1)@tp"), Targets(""), DType::kF32)),
                          "the targets must be I"));
  EXPECT_TRUE(
      StrContains(Outcome(CrossEntropy(Logits("P@tp"), Targets(""), DType::kF32)), "not linear"));
  // Gathered logits: every rank would differentiate a loss of its own.
  const LayoutType losses = *CrossEntropy(Logits("S(0)@dp"), Targets("S(0)@dp"), DType::kF32);
  const absl::Status status = CheckLoss(*SumLosses(losses));
  EXPECT_TRUE(StrContains(status.message(), "axis tp"));
  EXPECT_TRUE(StrContains(status.message(), "multiplied by the number of ranks"));
  // A scale that differs from rank to rank.
  const LayoutType local = Leaf(kMesh, {}, "V@dp, I@tp");
  EXPECT_TRUE(
      StrContains(Outcome(CrossEntropyBackward(Logits("S(0)@dp, S(1)@tp"), Targets("S(0)@dp, I@tp"),
                                               &local, DType::kF32)),
                  "cannot be matched"));
}

}  // namespace
}  // namespace headwise::rules
