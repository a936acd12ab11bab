// The scheduler: which thread runs, barriers and warp operations. memory_checks.cc has the rest of
// the class.
#include "kernels/emulation/block_runner.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <utility>

#include "core/base/check.h"
#include "kernels/emulation/sanitizer_hooks.h"
#include "kernels/emulation/warp.h"

namespace headwise::emulation {

namespace device {
thread_local constinit uint3 threadIdx = {};
thread_local constinit uint3 blockIdx = {};
thread_local constinit dim3 blockDim = {};
thread_local constinit dim3 gridDim = {};
}  // namespace device

namespace {

thread_local constinit BlockRunner* running = nullptr;

bool SamePlace(const Site& a, const Site& b) {
  return std::bit_cast<const void*>(a) == std::bit_cast<const void*>(b) ||
         (a.line() == b.line() && a.column() == b.column() &&
          std::strcmp(a.file_name(), b.file_name()) == 0);
}

// The n-th set bit.
int NthBit(unsigned bits, int n) {
  for (; n > 0; --n) bits &= bits - 1;
  return std::countr_zero(bits);
}

device::uint3 AsUint3(const Dim3& place) { return {place.x, place.y, place.z}; }

BlockRunner& Running() {
  HW_CHECK(running != nullptr) << "device code called outside a launch";
  return *running;
}

}  // namespace

void TouchGlobal(const void* p, int bytes, Use use, Site site) {
  Running().TouchGlobal(p, bytes, use, site);
}
SharedRange StaticShared(const void* key, std::int64_t bytes) {
  return Running().StaticShared(key, bytes);
}
SharedRange DynamicShared(std::int64_t byte_offset, int alignment, Site site) {
  return Running().DynamicShared(byte_offset, alignment, site);
}
void TouchShared(const SharedRange& range, std::int64_t offset, int bytes, Use use, Site site) {
  Running().TouchShared(range, offset, bytes, use, site);
}
void Barrier(Site site) { Running().Barrier(site); }
std::uint64_t WarpWait(WarpOperation operation, unsigned mask, std::uint64_t value, int source,
                       Site site) {
  return Running().WarpWait(operation, mask, value, source, site);
}
int Lane() { return Running().lane(); }
void BadWidth(int width, Site site) {
  Finding finding = Running().Broken(Rule::kBadWidth, site);
  finding.value = width;
  Running().Fail(finding);
}

// --- A launch -------------------------------------------------------------------------------------

void BlockRunner::StartLaunch(const LaunchRequest& request, const Options& options,
                              const Regions& regions) {
  request_ = &request;
  options_ = &options;
  regions_ = &regions;
  thread_count_ = static_cast<int>(request.block.Count());
  warp_count_ = (thread_count_ + 31) / 32;
  preempt_below_ = static_cast<std::uint64_t>(options.preempt * 0x1p32);
  finding_ = {};
  failed_ = false;
  std::fill(std::begin(last_region_), std::end(last_region_), LastRegion{nullptr, -1});
  shared_.StartLaunch(request.dynamic_shared_bytes);
  if (options.count_traffic) traffic_.StartLaunch(regions.size(), thread_count_);
  for (int i = 0; i < thread_count_; ++i) {
    threads_[i].index = AsUint3(PlaceAt(i, request.block));
  }
  main_.set_tsan_fiber(TsanCurrentFiber());
}

bool BlockRunner::RunBlock(const Dim3& block, std::uint64_t seed) {
  random_ = seed;
  live_ = thread_count_;
  at_barrier_ = 0;
  ready_warps_ = 0;
  shared_.StartBlock();
  PrepareThreads();
  // What blocks wait for orders their own threads only.
  const std::unique_ptr<char[]> tags(kTsan ? new char[kTagStep * (2 + 2 * thread_count_)]
                                           : nullptr);
  tags_ = tags.get();

  BlockRunner* const outer = std::exchange(running, this);
  device::blockIdx = AsUint3(block);
  device::blockDim = request_->block;
  device::gridDim = request_->grid;
  Thread* first = Next();
  current_ = nullptr;
  EnterThread(*first);
  Fiber::Switch(main_, first->fiber);
  running = outer;

  if (kTsan) {
    for (int i = 0; i < thread_count_; ++i) TsanDestroyFiber(threads_[i].fiber.tsan_fiber());
  }
  abandoned_ = failed_;
  if (options_->count_traffic) traffic_.Fold();
  return !failed_;
}

void BlockRunner::FinishLaunch() { TsanAcquire(&end_tag_); }

void BlockRunner::PrepareThreads() {
  memory_.Prepare(thread_count_, abandoned_);
  for (int w = 0; w < warp_count_; ++w) {
    const int lanes = thread_count_ - 32 * w;
    warps_[w] = {.present = lanes >= 32 ? ~0u : (1u << lanes) - 1u};
    MakeReady(w, warps_[w].present);
  }
  for (int i = 0; i < thread_count_; ++i) {
    // Stacks a power of two apart would share the sets of the caches.
    const std::int64_t colour = i % 61 * 64;
    threads_[i].fiber.Prepare(memory_.stack(i), kStackBytes - colour, &ThreadMain);
    if (kTsan) threads_[i].fiber.set_tsan_fiber(TsanCreateFiber());
  }
}

void BlockRunner::ThreadMain() {
  BlockRunner& runner = *running;
  Fiber::Begin(runner.current_->fiber, runner.main_);
  runner.request_->run_thread(runner.request_->call);
  runner.Return();
}

void BlockRunner::Return() {
  const int thread = static_cast<int>(current_ - threads_);
  Warp& warp = warps_[thread / 32];
  if (!memory_.RedZoneIntact(thread)) {
    Finding finding = Broken(Rule::kStackOverflow, current_->site);
    finding.value = kStackBytes - kRedZone;
    Fail(finding);
  }
  warp.returned |= 1u << (thread % 32);
  --live_;
  if (at_barrier_ > 0) {
    Finding finding = Broken(Rule::kBarrierMissing, threads_[first_at_barrier_].site);
    finding.thread = first_at_barrier_;
    finding.value = thread_count_ - live_;
    Fail(finding);
  }
  for (unsigned lanes = warp.waiting; lanes != 0; lanes &= lanes - 1) {
    const Thread& waiting = threads_[thread / 32 * 32 + std::countr_zero(lanes)];
    if ((waiting.mask & warp.returned) == 0) continue;
    Finding finding = Broken(Rule::kMaskExited, waiting.site);
    finding.thread = static_cast<int>(&waiting - threads_);
    finding.mask = waiting.mask;
    finding.other_mask = waiting.mask & warp.returned;
    Fail(finding);
  }
  TsanRelease(&end_tag_);
  Thread& self = *current_;
  if (live_ == 0) {
    Fiber::SwitchForGood(self.fiber, main_);
  } else {
    Thread* next = Next();
    if (next == nullptr) ReportDeadlock();
    EnterThread(*next);
    Fiber::SwitchForGood(self.fiber, next->fiber);
  }
  std::abort();  // nobody switches to a thread that has returned
}

void BlockRunner::Fail(const Finding& finding) {
  finding_ = finding;
  failed_ = true;
  Fiber::SwitchForGood(current_->fiber, main_);
  std::abort();
}

Finding BlockRunner::Broken(Rule rule, Site site) const {
  Finding finding;
  finding.rule = rule;
  finding.thread = static_cast<int>(current_ - threads_);
  finding.site = site;
  return finding;
}

// --- Which thread runs ----------------------------------------------------------------------------

std::uint64_t BlockRunner::Random() {  // SplitMix64
  std::uint64_t z = random_ += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

BlockRunner::Thread* BlockRunner::Next() {
  if (ready_warps_ == 0) return nullptr;
  int w, lane;
  switch (options_->order) {
    case ThreadOrder::kForward:
      w = std::countr_zero(ready_warps_);
      lane = std::countr_zero(warps_[w].ready);
      break;
    case ThreadOrder::kReverse:
      w = 31 - std::countl_zero(ready_warps_);
      lane = 31 - std::countl_zero(warps_[w].ready);
      break;
    case ThreadOrder::kRandom: {
      const std::uint64_t random = Random();
      const unsigned low = static_cast<unsigned>(random),
                     high = static_cast<unsigned>(random >> 32);
      w = NthBit(ready_warps_, static_cast<int>(low % std::popcount(ready_warps_)));
      lane = NthBit(warps_[w].ready, static_cast<int>(high % std::popcount(warps_[w].ready)));
      break;
    }
    default:
      std::abort();
  }
  warps_[w].ready &= ~(1u << lane);
  if (warps_[w].ready == 0) ready_warps_ &= ~(1u << w);
  return &threads_[32 * w + lane];
}

inline void BlockRunner::EnterThread(Thread& to) {
  current_ = &to;
  device::threadIdx = to.index;
  stack_limit_ = memory_.stack(static_cast<int>(&to - threads_)) + kRedZone;
}

void BlockRunner::Yield() {
  Thread* next = Next();
  if (next == nullptr) ReportDeadlock();
  if (next == current_) return;
  Thread& self = *current_;
  EnterThread(*next);
  Fiber::Switch(self.fiber, next->fiber);
}

void BlockRunner::RunOthersByChance() {
  if ((Random() & 0xffffffffu) >= preempt_below_) return;
  const int thread = static_cast<int>(current_ - threads_);
  MakeReady(thread / 32, 1u << (thread % 32));
  Yield();
}

void BlockRunner::ReportDeadlock() {
  int at_warp_operations = 0;
  const Thread* waiting = nullptr;
  for (int i = thread_count_ - 1; i >= 0; --i) {
    if ((warps_[i / 32].waiting >> (i % 32) & 1u) == 0) continue;
    ++at_warp_operations;
    waiting = &threads_[i];
  }
  Finding finding = Broken(Rule::kDeadlock, waiting->site);
  finding.thread = static_cast<int>(waiting - threads_);
  finding.value = at_barrier_;
  finding.other_value = at_warp_operations;
  Fail(finding);
}

void BlockRunner::CheckStack(Site site) {
  if (static_cast<const char*>(__builtin_frame_address(0)) >= stack_limit_) return;
  Finding finding = Broken(Rule::kStackOverflow, site);
  finding.value = kStackBytes - kRedZone;
  Fail(finding);
}

// --- Barriers and warp operations -----------------------------------------------------------------

void BlockRunner::Barrier(Site site) {
  CheckStack(site);
  Thread& self = *current_;
  self.site = site;
  const int thread = static_cast<int>(current_ - threads_);
  if (live_ < thread_count_) {
    Finding finding = Broken(Rule::kBarrierMissing, site);
    finding.value = thread_count_ - live_;
    Fail(finding);
  }
  if (at_barrier_ == 0) first_at_barrier_ = thread;
  if (!SamePlace(threads_[first_at_barrier_].site, site)) {
    Finding finding = Broken(Rule::kDifferentBarriers, site);
    finding.other_thread = first_at_barrier_;
    finding.other_site = threads_[first_at_barrier_].site;
    Fail(finding);
  }
  // Two tags in turn: or a fast thread's next barrier would order what a slow one has yet to do
  // after this one.
  char* const tag = BarrierTag(barriers_ & 1u);
  TsanRelease(tag);
  if (++at_barrier_ == thread_count_) {
    at_barrier_ = 0;
    ++barriers_;
    for (int w = 0; w < warp_count_; ++w) MakeReady(w, warps_[w].present);
  }
  Yield();
  TsanAcquire(tag);
}

std::uint64_t BlockRunner::WarpWait(WarpOperation operation, unsigned mask, std::uint64_t value,
                                    int source, Site site) {
  CheckStack(site);
  Thread& self = *current_;
  const int thread = static_cast<int>(current_ - threads_);
  const unsigned bit = 1u << (thread % 32);
  Warp& warp = warps_[thread / 32];
  self.site = site;
  self.mask = mask;
  self.operation = operation;
  self.value = value;
  self.source = static_cast<std::uint8_t>(source);

  Finding finding = {};
  if ((mask & bit) == 0) finding = Broken(Rule::kMaskWithoutCaller, site);
  if ((mask & ~warp.present) != 0) {
    finding = Broken(Rule::kMaskAbsent, site);
    finding.other_mask = mask & ~warp.present;
  } else if ((mask & warp.returned) != 0) {
    finding = Broken(Rule::kMaskExited, site);
    finding.other_mask = mask & warp.returned;
  } else if (operation == WarpOperation::kShuffle && (mask >> source & 1u) == 0) {
    finding = Broken(Rule::kShuffleOutside, site);
    finding.value = source;
  }
  if (finding.rule != Rule::kNone) {
    finding.mask = mask;
    Fail(finding);
  }

  const bool orders_memory = operation == WarpOperation::kSync;
  if (orders_memory) TsanRelease(CameTag(self));
  warp.waiting |= bit;
  if ((warp.waiting & mask) == mask) {
    CompleteWarpOperation(warp, threads_ + thread / 32 * 32, self);
    MakeReady(thread / 32, mask & ~bit);
    if (options_->order == ThreadOrder::kRandom) {
      MakeReady(thread / 32, bit);
      Yield();
    }
  } else {
    Yield();
  }
  if (orders_memory) TsanAcquire(GoesTag(self));
  return self.value;
}

void BlockRunner::CompleteWarpOperation(Warp& warp, Thread* lanes, Thread& last) {
  const unsigned mask = last.mask;
  std::uint64_t given[32];
  unsigned votes = 0;
  for (unsigned left = mask; left != 0; left &= left - 1) {
    const int i = std::countr_zero(left);
    const Thread& lane = lanes[i];
    if (lane.mask != mask || lane.operation != last.operation || !SamePlace(lane.site, last.site)) {
      Finding finding = Broken(Rule::kDifferentOperations, last.site);
      finding.mask = mask;
      finding.other_thread = static_cast<int>(&lane - threads_);
      finding.other_site = lane.site;
      finding.other_mask = lane.mask;
      Fail(finding);
    }
    given[i] = lane.value;
    if (lane.value != 0) votes |= 1u << i;
  }
  warp.waiting &= ~mask;
  if (last.operation == WarpOperation::kSync) {
    if (!kTsan) return;
    for (unsigned left = mask; left != 0; left &= left - 1) {
      TsanAcquire(CameTag(lanes[std::countr_zero(left)]));
    }
    for (unsigned left = mask; left != 0; left &= left - 1) {
      TsanRelease(GoesTag(lanes[std::countr_zero(left)]));
    }
    return;
  }
  for (unsigned left = mask; left != 0; left &= left - 1) {
    Thread& lane = lanes[std::countr_zero(left)];
    lane.value = last.operation == WarpOperation::kBallot ? votes : given[lane.source];
  }
}

}  // namespace headwise::emulation
