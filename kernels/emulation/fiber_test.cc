#include "kernels/emulation/fiber.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/emulation/sanitizer_hooks.h"

namespace headwise::emulation {
namespace {

constexpr std::size_t kStack = 128 << 10;

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
  std::vector<std::vector<std::uint64_t>> stacks(kFibers, std::vector<std::uint64_t>(kStack / 8));
  for (auto& stack : stacks) {
    auto address = reinterpret_cast<std::uintptr_t>(stack.data());
    char* const aligned = reinterpret_cast<char*>((address + 15) / 16 * 16);
    state.fibers.push_back(std::make_unique<Fiber>());
    state.fibers.back()->Prepare(aligned, kStack - 16, &Visitor);
  }
  for (int repeat = 0; repeat < 2; ++repeat) {
    Fiber::Switch(state.main, *state.fibers[0]);
    std::vector<int> expected;
    for (int i = 0; i < 3 * kFibers; ++i) expected.push_back(i % kFibers);
    EXPECT_EQ(state.visits, expected);
    // The others are in their loops for good; their stacks serve again.
    state.visits.clear();
    state.running = 0;
    for (int i = 0; i < kFibers; ++i) {
      AsanUnpoison(stacks[i].data(), kStack);
      auto address = reinterpret_cast<std::uintptr_t>(stacks[i].data());
      state.fibers[i]->Prepare(reinterpret_cast<char*>((address + 15) / 16 * 16), kStack - 16,
                               &Visitor);
    }
  }
  ring = nullptr;
}

}  // namespace
}  // namespace headwise::emulation
