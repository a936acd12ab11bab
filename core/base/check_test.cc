#include "core/base/check.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "gtest/gtest.h"

namespace headwise {
namespace {

TEST(CheckDeathTest, PrintsExpressionOperandsAndMessage) {
  const int rows = 3;
  HW_CHECK(rows == 3) << "not printed";
  EXPECT_DEATH(HW_CHECK_EQ(rows, 4) << "of the weight", "rows == 4 \\(3 vs 4\\) of the weight");
  EXPECT_DEATH(HW_CHECK(rows > 5), "check_test.cc.*check failed: rows > 5");
}

absl::StatusOr<int> Half(int n) {
  if (n % 2) return absl::InvalidArgumentError(absl::StrCat(n, " is odd"));
  return n / 2;
}

absl::StatusOr<int> Quarter(int n) {
  HW_ASSIGN_OR_RETURN(const int half, Half(n));
  HW_RETURN_IF_ERROR(Half(half).status());
  return Half(half);
}

TEST(StatusMacros, HandErrorsToTheCaller) {
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_EQ(Quarter(6).status().message(), "3 is odd");
  EXPECT_EQ(Quarter(5).status().message(), "5 is odd");
}

}  // namespace
}  // namespace headwise
