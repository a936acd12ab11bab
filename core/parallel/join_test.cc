#include "core/parallel/join.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace headwise {
namespace {

AxisType TypeOf(char letter) {
  for (const AxisType type : {AxisType::kReplicate, AxisType::kInvariant, AxisType::kVarying,
                              AxisType::kPartial, AxisType::kShard}) {
    if (Name(type)[0] == letter) return type;
  }
  ADD_FAILURE() << letter;
  return AxisType::kReplicate;
}

// The result's letter, or words of the refusal; "+1" at the end stands for a literal scalar.
std::string Join(OpKind kind, std::string operands) {
  const bool scalar = absl::EndsWith(operands, "+1");
  if (scalar) operands.resize(operands.size() - 2);
  std::vector<AxisType> types;
  for (const char letter : operands) types.push_back(TypeOf(letter));
  const JoinResult result = JoinAxis(kind, types, scalar);
  return result.ok ? Name(result.type) : std::string(result.why);
}

constexpr OpKind kAll[] = {OpKind::kLinear, OpKind::kMultilinear, OpKind::kDivision,
                           OpKind::kNonlinear};

TEST(Join, WithoutPartialsTheKindOfOperationDoesNotMatter) {
  const struct {
    const char *operands, *result;
  } kRows[] = {
      {"R", "R"},
      {"RR", "R"},
      {"RR+1", "R"},
      {"I", "I"},
      {"III", "I"},
      {"II+1", "I"},
      {"V", "V"},
      {"RV", "V"},
      {"VRV", "V"},
      {"V+1", "V"},
      {"S", "S"},
      {"SR", "S"},
      {"RS+1", "S"},
      {"IR", "counts once"},
      {"RI", "counts once"},
      {"IV", "counts once"},
      {"IS", "counts once"},
      {"SI", "counts once"},
      {"IP", "still to be made"},
      {"PI", "still to be made"},
      {"PV", "neither adding up"},
      {"VP", "neither adding up"},
      {"PS", "neither adding up"},
      {"PSR", "neither adding up"},
      {"VS", "cannot be matched"},
      {"SV", "cannot be matched"},
      {"RVS", "cannot be matched"},
  };
  for (const auto& [operands, result] : kRows) {
    for (const OpKind kind : kAll) {
      const std::string found = Join(kind, operands);
      EXPECT_TRUE(std::string(result).size() == 1 ? found == result
                                                  : absl::StrContains(found, result))
          << Name(kind) << " of " << operands << ": " << found;
    }
  }
}

TEST(Join, SumsOfPartialsArePartial) {
  EXPECT_EQ(Join(OpKind::kLinear, "P"), "P");
  EXPECT_EQ(Join(OpKind::kLinear, "PPP"), "P");
}

TEST(Join, AnythingElseInASumWithAPartialIsCountedOncePerRank) {
  for (const char* operands : {"PR", "RP", "PPR", "P+1", "PP+1"}) {
    EXPECT_TRUE(absl::StrContains(Join(OpKind::kLinear, operands), "counted once per rank"))
        << operands;
  }
}

TEST(Join, AProductMayHaveOnePartial) {
  EXPECT_EQ(Join(OpKind::kMultilinear, "P"), "P");
  EXPECT_EQ(Join(OpKind::kMultilinear, "PR"), "P");
  EXPECT_EQ(Join(OpKind::kMultilinear, "RPR+1"), "P");
  EXPECT_TRUE(absl::StrContains(Join(OpKind::kMultilinear, "PP"), "not the sum of the ranks'"));
  EXPECT_TRUE(absl::StrContains(Join(OpKind::kMultilinear, "PRP"), "not the sum of the ranks'"));
}

TEST(Join, APartialMayBeDividedAndNotDivide) {
  EXPECT_EQ(Join(OpKind::kDivision, "PR"), "P");
  EXPECT_EQ(Join(OpKind::kDivision, "P+1"), "P");
  EXPECT_TRUE(absl::StrContains(Join(OpKind::kDivision, "RP"), "dividing by a part"));
  EXPECT_TRUE(absl::StrContains(Join(OpKind::kDivision, "PP"), "dividing by a part"));
}

TEST(Join, NothingElseTakesAPartial) {
  for (const char* operands : {"P", "PR", "PP", "P+1"}) {
    EXPECT_TRUE(absl::StrContains(Join(OpKind::kNonlinear, operands), "not linear")) << operands;
  }
}

}  // namespace
}  // namespace headwise
