// BlockRunner: runs the threads of one block after another, each a fiber, on the calling OS thread.
// Internal to kernels/emulation.
//
// A thread runs until it waits for others at a barrier or a warp operation, or until it breaks a
// rule: then the block stops where it is, and no thread of it runs again.
#ifndef HEADWISE_KERNELS_EMULATION_BLOCK_RUNNER_H_
#define HEADWISE_KERNELS_EMULATION_BLOCK_RUNNER_H_

#include <cstdint>

#include "kernels/emulation/block_memory.h"
#include "kernels/emulation/emulation.h"
#include "kernels/emulation/fiber.h"
#include "kernels/emulation/finding.h"
#include "kernels/emulation/launch.h"
#include "kernels/emulation/region.h"
#include "kernels/emulation/runtime.h"
#include "kernels/emulation/shared_state.h"
#include "kernels/emulation/traffic_log.h"
#include "kernels/emulation/vector_types.h"

namespace headwise::emulation {

class BlockRunner {
 public:
  // All three outlive the launch.
  void StartLaunch(const LaunchRequest& request, const Options& options, const Regions& regions);
  // False if a thread broke a rule; finding() then says which.
  bool RunBlock(const Dim3& block, std::uint64_t seed);
  void FinishLaunch();

  const Finding& finding() const { return finding_; }
  const std::vector<Traffic>& traffic() const { return traffic_.by_region(); }
  std::int64_t static_shared_bytes() const { return shared_.static_bytes(); }

  // What runtime.h says, for the running thread.
  void TouchGlobal(const void* p, int bytes, Use use, Site site);
  SharedRange StaticShared(const void* key, std::int64_t bytes);
  SharedRange DynamicShared(std::int64_t byte_offset, int alignment, Site site);
  void TouchShared(const SharedRange& range, std::int64_t offset, int bytes, Use use, Site site);
  void Barrier(Site site);
  std::uint64_t WarpWait(WarpOperation operation, unsigned mask, std::uint64_t value, int source,
                         Site site);
  int lane() const { return (current_ - threads_) & 31; }
  [[noreturn]] void Fail(const Finding& finding);
  Finding Broken(Rule rule, Site site) const;

 private:
  struct Thread {
    Fiber fiber;
    device::uint3 index;
    // While it waits:
    Site site;
    std::uint64_t value;  // given, then got
    unsigned mask;
    std::uint8_t source;
    WarpOperation operation;
  };
  struct Warp {
    unsigned present;  // lanes that the block has
    unsigned ready;    // may run
    unsigned waiting;  // at a warp operation
    unsigned at_barrier;
    unsigned returned;
  };

  static void ThreadMain();
  void PrepareThreads();
  void Return();  // the running thread has come to its end
  void CompleteWarpOperation(Warp& warp, Thread* lanes, Thread& last);
  void ReleaseBarrier();

  void MakeReady(int warp, unsigned lanes) {
    warps_[warp].ready |= lanes;
    if (lanes != 0) ready_warps_ |= 1u << warp;
  }
  // The thread that runs next, no longer ready; null if none is.
  Thread* Next();
  // Runs others until the running thread is chosen again.
  void Yield();
  void RunOthersByChance();
  void SwitchTo(Thread& to);
  void EnterThread(Thread& to);
  void CheckStack(Site site);
  [[noreturn]] void ReportDeadlock();
  std::uint64_t Random();

  // For TSan: what happens before a thread leaves a barrier, the even and the odd ones; before it came
  // to a warp operation; before it leaves it.
  static constexpr int kTagStep = 8;
  char* BarrierTag(int parity) const { return tags_ + kTagStep * parity; }
  char* CameTag(const Thread& t) const { return tags_ + kTagStep * (2 + 2 * (&t - threads_)); }
  char* GoesTag(const Thread& t) const { return tags_ + kTagStep * (3 + 2 * (&t - threads_)); }

  const LaunchRequest* request_ = nullptr;
  const Options* options_ = nullptr;
  const Regions* regions_ = nullptr;
  int thread_count_ = 0, warp_count_ = 0;
  std::uint64_t preempt_below_ = 0;  // of 2^32

  Fiber main_;
  Thread* current_ = nullptr;
  const char* stack_limit_ = nullptr;  // of the running thread
  std::uint32_t ready_warps_ = 0;
  int live_ = 0, at_barrier_ = 0;
  int first_at_barrier_ = 0;  // thread
  unsigned barriers_ = 0;
  std::uint64_t random_ = 0;
  bool failed_ = false, abandoned_ = false;
  Finding finding_;
  char end_tag_ = 0;
  char* tags_ = nullptr;  // of this block, for TSan

  // The region that the last access of a place of the kernel fell into.
  struct LastRegion {
    const void* site;
    int region;
  };
  LastRegion last_region_[64];

  SharedState shared_;
  TrafficLog traffic_;
  BlockMemory memory_;
  Warp warps_[kMostThreads / 32];
  Thread threads_[kMostThreads];
};

}  // namespace headwise::emulation

#endif  // HEADWISE_KERNELS_EMULATION_BLOCK_RUNNER_H_
