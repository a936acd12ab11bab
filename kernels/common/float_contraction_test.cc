#include <string>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "kernels/common/float_environment.h"

namespace headwise {
namespace {

// This target compiles float_environment.cc with g++'s own default, as a program without
// headwise.bazelrc would.
TEST(FloatContraction, IsRefused) {
  const absl::Status status = CheckFloatEnvironment();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(std::string(status.message()).find("-ffp-contract=off"), std::string::npos) << status;
}

}  // namespace
}  // namespace headwise
