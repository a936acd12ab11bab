#include "core/base/nearest_name.h"

#include "gtest/gtest.h"

namespace headwise {
namespace {

TEST(NearestName, FindsTyposAndLeavesStrangersAlone) {
  const std::vector<std::string> commands = {"train", "generate", "info"};
  EXPECT_EQ(NearestName("trian", commands), "train");
  EXPECT_EQ(NearestName("generat", commands), "generate");
  EXPECT_EQ(NearestName("inof", commands), "info");
  EXPECT_EQ(NearestName("evaluate_all", commands), "");
  EXPECT_EQ(NearestName("", commands), "");
  EXPECT_EQ(NearestName("x", {}), "");
}

TEST(NearestName, PrefersTheCloserOfTwo) {
  EXPECT_EQ(NearestName("muse_17", {"muse_demo", "muse_17m"}), "muse_17m");
  EXPECT_EQ(DidYouMean("dept", {"depth"}), "; did you mean 'depth'?");
  EXPECT_EQ(DidYouMean("dept", {"width"}), "");
}

}  // namespace
}  // namespace headwise
