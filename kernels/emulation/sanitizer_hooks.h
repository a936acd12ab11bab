// What ASan and TSan must be told about fibers. Nothing without them. Internal to kernels/emulation.
//
// ASan keeps the bounds of the running stack; a switch announces the next ones.
//
// Under TSan every CUDA thread is a TSan fiber of its own. The runtime is compiled without TSan, so
// that only kernels are watched, and tells it which threads wait for which: TSan then finds what a
// kernel leaves unordered. The build defines HW_EMULATION_TSAN for that, as the macro that GCC would
// define is undefined in this repository's tsan configuration.
#ifndef HEADWISE_KERNELS_EMULATION_SANITIZER_HOOKS_H_
#define HEADWISE_KERNELS_EMULATION_SANITIZER_HOOKS_H_

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
extern "C" void __asan_handle_no_return();
#endif
#if defined(HW_EMULATION_TSAN)
#include <sanitizer/tsan_interface.h>
extern "C" void __tsan_ignore_thread_begin();
extern "C" void __tsan_ignore_thread_end();
#endif

namespace headwise::emulation {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kAsan = true;
#else
inline constexpr bool kAsan = false;
#endif
#if defined(HW_EMULATION_TSAN)
inline constexpr bool kTsan = true;
#else
inline constexpr bool kTsan = false;
#endif

// Frames that were left for good stay poisoned otherwise.
inline void AsanUnpoison([[maybe_unused]] void* data, [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(data, bytes);
#endif
}

// The frames of the running stack are left for good: the next thread's, on the same stack, begin clean.
inline void AsanLeaveFrames() {
#if defined(__SANITIZE_ADDRESS__)
  __asan_handle_no_return();
#endif
}

inline void* TsanCreateFiber() {
#if defined(HW_EMULATION_TSAN)
  return __tsan_create_fiber(0);
#else
  return nullptr;
#endif
}
inline void* TsanCurrentFiber() {
#if defined(HW_EMULATION_TSAN)
  return __tsan_get_current_fiber();
#else
  return nullptr;
#endif
}
inline void TsanDestroyFiber([[maybe_unused]] void* fiber) {
#if defined(HW_EMULATION_TSAN)
  __tsan_destroy_fiber(fiber);
#endif
}
// Just before the stacks are exchanged. Ordered: what came before happens before what comes.
inline void TsanSwitch([[maybe_unused]] void* fiber, [[maybe_unused]] bool ordered) {
#if defined(HW_EMULATION_TSAN)
  __tsan_switch_to_fiber(fiber, ordered ? 0 : __tsan_switch_to_fiber_no_sync);
#endif
}
// What happened before a release of a tag happens before what follows an acquire of it.
inline void TsanRelease([[maybe_unused]] char* tag) {
#if defined(HW_EMULATION_TSAN)
  __tsan_release(tag);
#endif
}
inline void TsanAcquire([[maybe_unused]] char* tag) {
#if defined(HW_EMULATION_TSAN)
  __tsan_acquire(tag);
#endif
}

// While it lives, the running thread's accesses are not watched: for the library functions, compiled
// elsewhere with TSan or intercepted by it, that the runtime calls.
class TsanIgnore {
 public:
#if defined(HW_EMULATION_TSAN)
  TsanIgnore() { __tsan_ignore_thread_begin(); }
  ~TsanIgnore() { __tsan_ignore_thread_end(); }
#else
  TsanIgnore() {}  // not defaulted: a variable of the type is used
#endif
  TsanIgnore(const TsanIgnore&) = delete;
  TsanIgnore& operator=(const TsanIgnore&) = delete;
};

}  // namespace headwise::emulation

#endif  // HEADWISE_KERNELS_EMULATION_SANITIZER_HOOKS_H_
