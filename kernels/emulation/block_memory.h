// BlockMemory: the stacks and the shared memory that blocks use one after another. Internal to
// kernels/emulation.
#ifndef HEADWISE_KERNELS_EMULATION_BLOCK_MEMORY_H_
#define HEADWISE_KERNELS_EMULATION_BLOCK_MEMORY_H_

#include <cstdint>

#include "kernels/emulation/sanitizer_hooks.h"
#include "kernels/emulation/shared_state.h"

namespace headwise::emulation {

inline constexpr int kMostThreads = 1024;
// What a thread may use. Sanitizers make frames larger.
inline constexpr std::int64_t kUsableStack = kAsan || kTsan ? 128 << 10 : 64 << 10;
// The lowest part of a stack: a thread that has come here has overflowed, and harmed nobody yet. It
// is large, so that a large array is found rather than a fault; only address space.
inline constexpr std::int64_t kRedZone = 192 << 10;
inline constexpr std::int64_t kStackBytes = kRedZone + kUsableStack;

class BlockMemory {
 public:
  BlockMemory();
  ~BlockMemory();
  BlockMemory(const BlockMemory&) = delete;
  BlockMemory& operator=(const BlockMemory&) = delete;

  // Before blocks of so many threads.
  void Reserve(int threads);
  // After a block of so many threads that left frames on its stacks.
  void Clean(int threads);

  // The lowest address of a thread's kStackBytes.
  char* stack(int thread) const { return stacks_ + thread * kStride + kGuard; }
  // False if the thread wrote to its red zone, as far as a look at some words can tell.
  bool RedZoneIntact(int thread) const;

  char* shared() const { return shared_; }
  bool IsShared(const void* p) const { return p >= shared_ && p < shared_ + kMostShared; }

 private:
  static constexpr std::int64_t kGuard = 4096;
  static constexpr std::int64_t kStride = kStackBytes + kGuard;

  char* stacks_;
  char* shared_;
  int guarded_ = 0;  // stacks with a guard page below
};

}  // namespace headwise::emulation

#endif  // HEADWISE_KERNELS_EMULATION_BLOCK_MEMORY_H_
