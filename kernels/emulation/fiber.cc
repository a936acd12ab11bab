#include "kernels/emulation/fiber.h"

#include <cstdint>

#include "kernels/emulation/sanitizer_hooks.h"

#if !defined(HW_EMULATION_UCONTEXT)
// Saves the registers that a call preserves, exchanges the stacks, and takes up the other's.
extern "C" void headwise_emulation_switch(void** save_stack_pointer, void* load_stack_pointer);
asm(R"(
.text
.p2align 4
.type headwise_emulation_switch,@function
headwise_emulation_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size headwise_emulation_switch,.-headwise_emulation_switch
)");
#endif

namespace headwise::emulation {

#if defined(HW_EMULATION_UCONTEXT)

void Fiber::Prepare(char* stack, std::size_t bytes, void (*entry)()) {
  stack_ = stack;
  stack_bytes_ = bytes;
  fake_stack_ = nullptr;
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack;
  context_.uc_stack.ss_size = bytes;
  context_.uc_link = nullptr;
  makecontext(&context_, entry, 0);
}

inline void Fiber::Jump(Fiber& to) { swapcontext(&context_, &to.context_); }

#else

void Fiber::Prepare(char* stack, std::size_t bytes, void (*entry)()) {
  stack_ = stack;
  stack_bytes_ = bytes;
  fake_stack_ = nullptr;
  constexpr int kSavedRegisters = 6;
  // `ret` into entry leaves the stack as a call would: 8 below a multiple of 16.
  void** top = reinterpret_cast<void**>(stack + bytes);
  *--top = nullptr;  // where entry would return to
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < kSavedRegisters; ++i) *--top = nullptr;
  stack_pointer_ = top;
}

inline void Fiber::Jump(Fiber& to) {
  headwise_emulation_switch(&stack_pointer_, to.stack_pointer_);
}

#endif

inline void Fiber::Arrive([[maybe_unused]] Fiber* main) {
#if defined(__SANITIZE_ADDRESS__)
  const void* stack = nullptr;
  std::size_t bytes = 0;
  __sanitizer_finish_switch_fiber(fake_stack_, &stack, &bytes);
  if (main != nullptr && main->stack_ == nullptr) {
    main->stack_ = stack;
    main->stack_bytes_ = bytes;
  }
#endif
}

void Fiber::Begin(Fiber& self, Fiber& main) { self.Arrive(&main); }

void Fiber::Switch(Fiber& from, Fiber& to) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&from.fake_stack_, to.stack_, to.stack_bytes_);
#endif
  TsanSwitch(to.tsan_fiber_, /*ordered=*/false);
  from.Jump(to);
  from.Arrive();
}

void Fiber::SwitchForGood(Fiber& from, Fiber& to) {
  AsanLeaveFrames();
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(nullptr, to.stack_, to.stack_bytes_);
#endif
  TsanSwitch(to.tsan_fiber_, /*ordered=*/false);
  from.Jump(to);
}

}  // namespace headwise::emulation
