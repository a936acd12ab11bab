// Fiber: a stack and a place in it to go on from. Internal to kernels/emulation.
//
//   Fiber main, fiber;
//   fiber.Prepare(stack, bytes, &Entry);   // Entry never returns; it switches away
//   Fiber::Switch(main, fiber);            // runs Entry until something switches back to main
//
// Some instructions on x86-64; elsewhere (or with HW_EMULATION_UCONTEXT) ucontext, slower by system
// calls. A fiber stays on the OS thread it was prepared on. The floating-point environment is the
// thread's.
#ifndef HEADWISE_KERNELS_EMULATION_FIBER_H_
#define HEADWISE_KERNELS_EMULATION_FIBER_H_

#include <cstddef>

#if !defined(__x86_64__) && !defined(HW_EMULATION_UCONTEXT)
#define HW_EMULATION_UCONTEXT 1
#endif
#if defined(HW_EMULATION_UCONTEXT)
#include <ucontext.h>
#endif

namespace headwise::emulation {

class Fiber {
 public:
  // The fiber of the code that is running; it needs no stack.
  Fiber() = default;
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // A fiber that has not begun, or that nobody will go back to, becomes one that begins at `entry`.
  // The lowest address of the stack and its size, both multiples of 16.
  void Prepare(char* stack, std::size_t bytes, void (*entry)());

  // Leaves `from`, which is running, for `to`; returns when something switches to `from`.
  static void Switch(Fiber& from, Fiber& to);
  // The same where nothing will switch back to `from`.
  static void SwitchForGood(Fiber& from, Fiber& to);
  // What `entry` calls first. The first fiber that `main` switches to learns its stack for it.
  static void Begin(Fiber& self, Fiber& main);

  void set_tsan_fiber(void* fiber) { tsan_fiber_ = fiber; }
  void* tsan_fiber() const { return tsan_fiber_; }

 private:
  void Jump(Fiber& to);
  void Arrive(Fiber* main = nullptr);

#if defined(HW_EMULATION_UCONTEXT)
  ucontext_t context_;
#else
  void* stack_pointer_ = nullptr;
#endif
  void* tsan_fiber_ = nullptr;
  // What ASan is told: the stack's bounds (learnt at the first switch, for the main fiber).
  const void* stack_ = nullptr;
  std::size_t stack_bytes_ = 0;
  void* fake_stack_ = nullptr;
};

}  // namespace headwise::emulation

#endif  // HEADWISE_KERNELS_EMULATION_FIBER_H_
