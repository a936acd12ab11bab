#include "kernels/common/float_environment.h"

#include <cfenv>

#include "absl/status/status.h"
#include "gtest/gtest.h"

#if defined(__SSE__)
#include <immintrin.h>
#endif

namespace headwise {
namespace {

TEST(FloatEnvironment, DefaultIsAccepted) { EXPECT_TRUE(CheckFloatEnvironment().ok()); }

TEST(FloatEnvironment, OtherRoundingIsRefused) {
  std::fesetround(FE_UPWARD);
  const absl::Status status = CheckFloatEnvironment();
  std::fesetround(FE_TONEAREST);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
}

#if defined(__SSE__)
TEST(FloatEnvironment, FlushedSubnormalsAreRefused) {
  for (const unsigned bit : {0x8000u, 0x0040u}) {  // FTZ, DAZ
    const unsigned saved = _mm_getcsr();
    _mm_setcsr(saved | bit);
    const absl::Status status = CheckFloatEnvironment();
    _mm_setcsr(saved);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << bit << ": " << status;
  }
}
#endif

}  // namespace
}  // namespace headwise
