#include "kernels/emulation/fiber.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/emulation/sanitizer_hooks.h"

namespace headwise::emulation {
namespace {

struct alignas(16) Stack {
  char bytes[128 << 10];
};

struct Ring {
  Fiber main;
  std::vector<std::unique_ptr<Fiber>> fibers;
  int running = 0;
  std::vector<int> visits;
};
Ring* ring = nullptr;

// Goes round the ring three times; what lives on the stack survives the switches.
void Visitor() {
  const int self = ring->running;
  Fiber::Begin(*ring->fibers[self], ring->main);
  volatile double sum = 0;
  for (int round = 0; round < 3; ++round) {
    sum = sum + 1.5 * self;
    ring->visits.push_back(self);
    ring->running = (self + 1) % static_cast<int>(ring->fibers.size());
    Fiber::Switch(*ring->fibers[self], *ring->fibers[ring->running]);
  }
  EXPECT_EQ(sum, 4.5 * self);
  Fiber::SwitchForGood(*ring->fibers[self], ring->main);
}

TEST(Fiber, SwitchesKeepEachStack) {
  constexpr int kFibers = 5;
  Ring state;
  ring = &state;
  std::vector<int> expected(3 * kFibers);
  for (int i = 0; i < 3 * kFibers; ++i) expected[i] = i % kFibers;
  std::vector<Stack> stacks(kFibers);
  for (int i = 0; i < kFibers; ++i) state.fibers.push_back(std::make_unique<Fiber>());
  for (int repeat = 0; repeat < 2; ++repeat) {
    // The second time, four fibers are still in their loops: their stacks serve again.
    AsanUnpoison(stacks.data(), kFibers * sizeof(Stack));
    for (int i = 0; i < kFibers; ++i) {
      state.fibers[i]->Prepare(stacks[i].bytes, sizeof(Stack), &Visitor);
    }
    state.running = 0;
    state.visits.clear();
    Fiber::Switch(state.main, *state.fibers[0]);
    EXPECT_EQ(state.visits, expected);
  }
  ring = nullptr;
}

}  // namespace
}  // namespace headwise::emulation
