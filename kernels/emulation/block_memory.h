// BlockMemory: the stacks and the shared memory that the blocks of a launch use one after another.
// Internal to kernels/emulation.
#ifndef HEADWISE_KERNELS_EMULATION_BLOCK_MEMORY_H_
#define HEADWISE_KERNELS_EMULATION_BLOCK_MEMORY_H_

#include <cstddef>
#include <cstdint>

#include "kernels/emulation/sanitizer_hooks.h"

namespace headwise::emulation {

inline constexpr int kMostThreads = 1024;
// Sanitizers make frames larger.
inline constexpr std::int64_t kStackBytes = kAsan || kTsan ? 128 << 10 : 64 << 10;
inline constexpr std::int64_t kMostShared = 227 << 10;

// The lowest part of a stack: a thread that has come here has overflowed, and harmed nobody yet.
inline constexpr std::int64_t kRedZone = 8 << 10;

class BlockMemory {
 public:
  BlockMemory();
  ~BlockMemory();
  BlockMemory(const BlockMemory&) = delete;
  BlockMemory& operator=(const BlockMemory&) = delete;

  // Before a block of so many threads. `abandoned`: the last block left frames on its stacks.
  void Prepare(int threads, bool abandoned);

  // The lowest address of a thread's kStackBytes.
  char* stack(int thread) const { return stacks_ + thread * kStride + kGuard; }
  // False if the thread wrote to its red zone.
  bool RedZoneIntact(int thread) const;

  char* shared() const { return shared_; }

 private:
  static constexpr std::int64_t kGuard = 4096;
  static constexpr std::int64_t kStride = kStackBytes + kGuard;

  char* stacks_;
  char* shared_;
  int guarded_ = 0;  // stacks with a guard page below
};

}  // namespace headwise::emulation

#endif  // HEADWISE_KERNELS_EMULATION_BLOCK_MEMORY_H_
