// BlockRunner: runs the threads of one block after another, each a fiber, on the calling OS thread.
// Internal to kernels/emulation.
//
// A thread runs until it waits for others at a barrier or a warp operation, or until it breaks a
// rule: then the block stops where it is, and no thread of it runs again.
//
// block_runner.cc runs blocks and chooses the next thread, waiting.cc has barriers and warp
// operations, memory_checks.cc accesses to memory.
#ifndef HEADWISE_KERNELS_EMULATION_BLOCK_RUNNER_H_
#define HEADWISE_KERNELS_EMULATION_BLOCK_RUNNER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/emulation/block_memory.h"
#include "kernels/emulation/emulation.h"
#include "kernels/emulation/fiber.h"
#include "kernels/emulation/finding.h"
#include "kernels/emulation/launch.h"
#include "kernels/emulation/region.h"
#include "kernels/emulation/runtime.h"
#include "kernels/emulation/shared_state.h"
#include "kernels/emulation/traffic_log.h"
#include "kernels/emulation/tsan_group.h"
#include "kernels/emulation/vector_types.h"

namespace headwise::emulation {

class BlockRunner {
 public:
  BlockRunner();
  ~BlockRunner();
  BlockRunner(const BlockRunner&) = delete;
  BlockRunner& operator=(const BlockRunner&) = delete;

  // The runner of the CUDA thread that calls; null outside of kernels.
  static BlockRunner* Running();

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
  SharedRange StaticShared(const void* key, std::int64_t bytes, Site site);
  SharedRange DynamicShared(std::int64_t byte_offset, int alignment, Site site);
  void TouchShared(const SharedRange& range, std::int64_t offset, int bytes, Use use, Site site);
  void Barrier(Site site);
  std::uint64_t WarpWait(WarpOperation operation, unsigned mask, std::uint64_t value, int source,
                         Site site);
  int lane() const { return thread() & 31; }
  // A finding of the running thread.
  Finding Broken(Rule rule, Site site) const;
  // Ends the block.
  [[noreturn]] void Fail(const Finding& finding);

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
  struct Warp {  // bits are lanes
    unsigned present;
    unsigned ready;
    unsigned waiting;  // at a warp operation
    unsigned returned;
  };
  // The region that the last access of a place of the kernel fell into.
  struct LastRegion {
    const void* site;
    int region;
  };
  static constexpr int kLastRegions = 64;

  static void ThreadMain();
  void PrepareThreads();
  // The running thread has come to its end.
  [[noreturn]] void Return();

  int thread() const { return static_cast<int>(current_ - threads_); }
  void MakeReady(int warp, unsigned lanes) {
    warps_[warp].ready |= lanes;
    if (lanes != 0) ready_warps_ |= 1u << warp;
  }
  // The thread that runs next, no longer ready; null if none is.
  Thread* Next();
  // Runs others until the running thread is chosen again.
  void Yield();
  void RunOthersByChance();
  void EnterThread(Thread& to);
  [[noreturn]] void ReportDeadlock();

  void CheckStack(Site site) {
    const char* const frame = static_cast<const char*>(__builtin_frame_address(0));
    if (frame < stack_limit_) [[unlikely]]
      ReportOverflow(site);
  }
  [[noreturn]] void ReportOverflow(Site site);

  void CheckWarpOperation(const Warp& warp);
  void CompleteWarpOperation(Warp& warp, const Thread& last);
  [[noreturn]] void ReportDifferentOperations(const Thread& one, const Thread& other);

  [[noreturn]] void ReportGlobal(Rule rule, const void* p, int bytes, Use use, Site site);
  [[noreturn]] void ReportShared(Rule rule, const SharedRange& range, std::int64_t offset,
                                 int bytes, Use use, Site site);

  const LaunchRequest* request_ = nullptr;
  const Options* options_ = nullptr;
  const Regions* regions_ = nullptr;
  int thread_count_ = 0, warp_count_ = 0;
  std::uint64_t preempt_below_ = 0;  // of 2^32
  bool has_regions_ = false;

  Fiber main_;
  Thread* current_ = nullptr;
  const char* stack_limit_ = nullptr;  // of the running thread
  std::uint32_t ready_warps_ = 0;
  int live_ = 0, at_barrier_ = 0;
  int first_at_barrier_ = 0;  // thread
  unsigned barriers_ = 0;
  std::uint64_t random_ = 0;
  bool failed_ = false;
  Finding finding_;

  LastRegion last_region_[kLastRegions];
  SharedState shared_;
  TrafficLog traffic_;
  TsanLaunch tsan_launch_;
  // Blocks use them in turn; without TSan there is one.
  std::vector<std::unique_ptr<BlockMemory>> memories_;
  std::vector<std::unique_ptr<TsanGroup>> groups_;
  int group_count_ = 1;
  std::int64_t blocks_run_ = 0;
  BlockMemory* memory_ = nullptr;
  TsanGroup* group_ = nullptr;
  Warp warps_[kMostThreads / 32];
  Thread threads_[kMostThreads];
};

}  // namespace headwise::emulation

#endif  // HEADWISE_KERNELS_EMULATION_BLOCK_RUNNER_H_
