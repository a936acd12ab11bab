// What TSan is told of who waits for whom, so that it finds the accesses of a kernel that nothing
// orders. Nothing happens without TSan. Internal to kernels/emulation.
//
// Each CUDA thread runs as a TSan fiber: to TSan, a thread. A fiber takes 0.4 ms to make, so blocks
// share them: the blocks of a launch fall into groups in turn, each with fibers and memory of its
// own. Blocks of one group are ordered, one after another; blocks of different groups are not, and a
// race between them is found. Which blocks share a group depends on ThreadOrder and seed.
#ifndef HEADWISE_KERNELS_EMULATION_TSAN_GROUP_H_
#define HEADWISE_KERNELS_EMULATION_TSAN_GROUP_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/emulation/sanitizer_hooks.h"

namespace headwise::emulation {

// How many groups there are for so many blocks of so many threads: TSan has 8128 threads at most.
inline int TsanGroups(std::int64_t blocks, int threads) {
  return kTsan ? static_cast<int>(std::min<std::int64_t>(blocks, std::clamp(512 / threads, 2, 8)))
               : 1;
}

// The host before the launch, the threads, the host after it.
struct TsanLaunch {
  char before = 0, after = 0;

  void Start() { TsanRelease(&before); }
  void Finish() { TsanAcquire(&after); }
};

class TsanGroup {
 public:
  ~TsanGroup() { DestroyFibers(); }

  // Before a block of so many threads.
  void Reserve(int threads) {
    if (!kTsan) return;
    while (static_cast<int>(fibers_.size()) < threads) fibers_.push_back(TsanCreateFiber());
    if (static_cast<int>(came_.size()) < threads) came_.resize(threads), goes_.resize(threads);
  }
  void* fiber(int thread) const { return kTsan ? fibers_[thread] : nullptr; }
  // After a block whose threads stopped inside functions: TSan believes them to be there still. What
  // they did happened before what `main`, which calls, does next.
  void Abandon(void* main) {
    for (void* fiber : fibers_) {
      TsanSwitch(fiber, /*ordered=*/false);
      TsanSwitch(main, /*ordered=*/true);
    }
    DestroyFibers();
  }

  void BlockBegins() { ++block_number_; }
  // After the threads of the group's last block; those of its own may have returned already.
  void ThreadBegins(TsanLaunch& launch) {
    TsanAcquire(&launch.before);
    TsanAcquire(&block_[(block_number_ - 1) % 2]);
  }
  void ThreadReturns(TsanLaunch& launch) {
    TsanRelease(&launch.after);
    TsanRelease(&block_[block_number_ % 2]);
  }

  // Barriers have two tags in turn: with one, a fast thread's next barrier would also order what a
  // slow thread has yet to do after this one.
  void ComesToBarrier(unsigned number) { TsanRelease(&barrier_[number % 2]); }
  void LeavesBarrier(unsigned number) { TsanAcquire(&barrier_[number % 2]); }

  // The last thread that comes to a __syncwarp calls Passes for each of the mask's, twice.
  void ComesToSyncWarp(int thread) {
    if (kTsan) TsanRelease(&came_[thread].tag);
  }
  void AcquireFrom(int thread) {
    if (kTsan) TsanAcquire(&came_[thread].tag);
  }
  void ReleaseTo(int thread) {
    if (kTsan) TsanRelease(&goes_[thread].tag);
  }
  void LeavesSyncWarp(int thread) {
    if (kTsan) TsanAcquire(&goes_[thread].tag);
  }

 private:
  void DestroyFibers() {
    for (void* fiber : fibers_) TsanDestroyFiber(fiber);
    fibers_.clear();
  }

  struct alignas(8) Tag {  // TSan's granule
    char tag = 0;
  };

  std::vector<void*> fibers_;
  std::vector<Tag> came_, goes_;
  unsigned block_number_ = 0;
  char block_[2] = {};
  char barrier_[2] = {};
};

}  // namespace headwise::emulation

#endif  // HEADWISE_KERNELS_EMULATION_TSAN_GROUP_H_
