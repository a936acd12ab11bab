#include "kernels/emulation/shared_state.h"

#include <memory>

#include "gtest/gtest.h"

namespace headwise::emulation {
namespace {

TEST(SharedState, ArraysLieOneAfterAnotherFromTheDynamicBytesOn) {
  const auto state = std::make_unique<SharedState>();
  int a = 0, b = 0, c = 0;
  state->StartLaunch(20);
  EXPECT_EQ(state->Static(&a, 10), 32);
  EXPECT_EQ(state->Static(&b, 100), 48);
  EXPECT_EQ(state->Static(&a, 10), 32);
  EXPECT_EQ(state->Static(&c, 1), 160);
  EXPECT_EQ(state->dynamic_bytes(), 20);
  EXPECT_EQ(state->static_bytes(), 16 + 112 + 16);
}

TEST(SharedState, StaticArraysHaveALimitOfTheirOwn) {
  const auto state = std::make_unique<SharedState>();
  int a = 0, b = 0;
  state->StartLaunch(0);
  EXPECT_EQ(state->Static(&a, (48 << 10) + 1), -1);
  EXPECT_EQ(state->Static(&a, 48 << 10), 0);
  EXPECT_EQ(state->Static(&b, 1), -1);
}

TEST(SharedState, AllTogetherHaveALimit) {
  const auto state = std::make_unique<SharedState>();
  int a = 0, b = 0;
  state->StartLaunch(200 << 10);
  EXPECT_EQ(state->Static(&a, (27 << 10) + 1), -1);
  EXPECT_EQ(state->Static(&b, 27 << 10), 200 << 10);
}

TEST(SharedState, NothingIsWrittenAtTheBeginning) {
  const auto state = std::make_unique<SharedState>();
  int a = 0, b = 0;
  for (int launch = 0; launch < 2; ++launch) {
    state->StartLaunch(launch == 0 ? 48 : 16);
    for (int block = 0; block < 2; ++block) {
      state->StartBlock();
      const int first = static_cast<int>(state->Static(&a, 70));
      const int second = static_cast<int>(state->Static(&b, 200));
      for (int i = 0; i < second + 200; i += 2) EXPECT_FALSE(state->Written(i, 1)) << i;
      for (int i = 0; i < 16; ++i) state->Write(i, 1);
      state->Write(first, 16);
      state->Write(second + 4, 4);
      EXPECT_TRUE(state->Written(first, 16));
      EXPECT_TRUE(state->Written(second + 6, 2));
      EXPECT_FALSE(state->Written(second, 8));
      EXPECT_FALSE(state->Written(second + 8, 4));
      state->Write(second + 196, 4);
    }
  }
}

}  // namespace
}  // namespace headwise::emulation
