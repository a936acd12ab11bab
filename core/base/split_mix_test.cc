#include "core/base/split_mix.h"

#include "gtest/gtest.h"

namespace headwise {
namespace {

// The published first outputs of the generator seeded with 1234567.
TEST(SplitMixTest, GivesThePublishedNumbers) {
  std::uint64_t state = 1234567;
  EXPECT_EQ(NextSplitMix(state), 6457827717110365317u);
  EXPECT_EQ(NextSplitMix(state), 3203168211198807973u);
  EXPECT_EQ(NextSplitMix(state), 9817491932198370423u);
}

TEST(SplitMixTest, AnyNumberIsReachedAtOnce) {
  std::uint64_t state = 7;
  for (std::uint64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(NextSplitMix(state), SplitMixScramble(7 + (i + 1) * kSplitMixIncrement));
  }
}

}  // namespace
}  // namespace headwise
