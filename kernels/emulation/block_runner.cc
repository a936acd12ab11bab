#include "kernels/emulation/block_runner.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "core/base/split_mix.h"
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

// The n-th bit that is set.
int NthBit(unsigned bits, int n) {
  for (; n > 0; --n) bits &= bits - 1;
  return std::countr_zero(bits);
}

device::uint3 AsUint3(const Dim3& place) { return {place.x, place.y, place.z}; }

}  // namespace

BlockRunner::BlockRunner() = default;
BlockRunner::~BlockRunner() = default;

BlockRunner* BlockRunner::Running() { return running; }

// --- Launches and blocks --------------------------------------------------------------------------

void BlockRunner::StartLaunch(const LaunchRequest& request, const Options& options,
                              const Regions& regions) {
  request_ = &request;
  options_ = &options;
  regions_ = &regions;
  thread_count_ = static_cast<int>(request.block.Count());
  warp_count_ = (thread_count_ + 31) / 32;
  preempt_below_ = static_cast<std::uint64_t>(options.preempt * 0x1p32);
  has_regions_ = !regions.empty();
  failed_ = false;
  blocks_run_ = 0;
  std::fill(std::begin(last_region_), std::end(last_region_), LastRegion{nullptr, -1});
  shared_.StartLaunch(request.dynamic_shared_bytes);
  traffic_.StartLaunch(options.count_traffic ? regions.size() : 0, thread_count_);
  for (int i = 0; i < thread_count_; ++i) {
    threads_[i].index = AsUint3(PlaceAt(i, request.block));
  }
  group_count_ = TsanGroups(request.grid.Count(), thread_count_);
  for (int i = 0; i < group_count_; ++i) {
    if (i == static_cast<int>(groups_.size())) {
      groups_.push_back(std::make_unique<TsanGroup>());
      memories_.push_back(std::make_unique<BlockMemory>());
    }
    groups_[i]->Reserve(thread_count_);
    memories_[i]->Reserve(thread_count_);
  }
  main_.set_tsan_fiber(TsanCurrentFiber());
  tsan_launch_.Start();
}

bool BlockRunner::RunBlock(const Dim3& block, std::uint64_t seed) {
  const int group = static_cast<int>(blocks_run_++ % group_count_);
  group_ = groups_[group].get();
  group_->BlockBegins();
  memory_ = memories_[group].get();
  random_ = seed;
  live_ = thread_count_;
  at_barrier_ = 0;
  shared_.StartBlock();
  PrepareThreads();

  BlockRunner* const outer = std::exchange(running, this);
  device::blockIdx = AsUint3(block);
  device::blockDim = request_->block;
  device::gridDim = request_->grid;
  Thread* const first = Next();
  EnterThread(*first);
  Fiber::Switch(main_, first->fiber);
  running = outer;

  if (failed_) {
    memory_->Clean(thread_count_);
    group_->Abandon(main_.tsan_fiber());
  }
  if (options_->count_traffic) traffic_.Fold();
  return !failed_;
}

void BlockRunner::FinishLaunch() { tsan_launch_.Finish(); }

void BlockRunner::PrepareThreads() {
  ready_warps_ = 0;
  for (int w = 0; w < warp_count_; ++w) {
    const int lanes = thread_count_ - 32 * w;
    warps_[w] = {.present = lanes >= 32 ? ~0u : (1u << lanes) - 1u};
    MakeReady(w, warps_[w].present);
  }
  for (int i = 0; i < thread_count_; ++i) {
    // Stacks a power of two apart would share the sets of the caches.
    const std::int64_t colour = i % 61 * 64;
    threads_[i].fiber.Prepare(memory_->stack(i), kStackBytes - colour, &ThreadMain);
    threads_[i].fiber.set_tsan_fiber(group_->fiber(i));
  }
}

void BlockRunner::ThreadMain() {
  BlockRunner& runner = *running;
  Fiber::Begin(runner.current_->fiber, runner.main_);
  runner.group_->ThreadBegins(runner.tsan_launch_);
  runner.request_->run_thread(runner.request_->call);
  runner.Return();
}

void BlockRunner::Return() {
  const int self = thread();
  Warp& warp = warps_[self / 32];
  if (!memory_->RedZoneIntact(self)) ReportOverflow(current_->site);
  warp.returned |= 1u << (self % 32);
  --live_;
  if (at_barrier_ > 0) {
    Finding finding = Broken(Rule::kBarrierMissing, threads_[first_at_barrier_].site);
    finding.thread = first_at_barrier_;
    finding.value = thread_count_ - live_;
    Fail(finding);
  }
  for (unsigned lanes = warp.waiting; lanes != 0; lanes &= lanes - 1) {
    const int waiting = self / 32 * 32 + std::countr_zero(lanes);
    const unsigned mask = threads_[waiting].mask;
    if ((mask & warp.returned) == 0) continue;
    Finding finding = Broken(Rule::kMaskExited, threads_[waiting].site);
    finding.thread = waiting;
    finding.mask = mask;
    finding.other_mask = mask & warp.returned;
    Fail(finding);
  }
  group_->ThreadReturns(tsan_launch_);
  Fiber& fiber = current_->fiber;
  if (live_ == 0) {
    Fiber::SwitchForGood(fiber, main_);
  } else {
    Thread* const next = Next();
    if (next == nullptr) ReportDeadlock();
    EnterThread(*next);
    Fiber::SwitchForGood(fiber, next->fiber);
  }
  std::abort();  // nobody switches to a thread that has returned
}

Finding BlockRunner::Broken(Rule rule, Site site) const {
  Finding finding;
  finding.rule = rule;
  finding.thread = thread();
  finding.site = site;
  return finding;
}

void BlockRunner::Fail(const Finding& finding) {
  finding_ = finding;
  failed_ = true;
  Fiber::SwitchForGood(current_->fiber, main_);
  std::abort();
}

void BlockRunner::ReportOverflow(Site site) {
  Finding finding = Broken(Rule::kStackOverflow, site);
  finding.value = kUsableStack;
  Fail(finding);
}

// --- Which thread runs ----------------------------------------------------------------------------

BlockRunner::Thread* BlockRunner::Next() {
  if (ready_warps_ == 0) return nullptr;
  int w = 0, lane = 0;
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
      const std::uint64_t random = NextSplitMix(random_);
      const unsigned low = static_cast<unsigned>(random);
      const unsigned high = static_cast<unsigned>(random >> 32);
      w = NthBit(ready_warps_, static_cast<int>(low % std::popcount(ready_warps_)));
      lane = NthBit(warps_[w].ready, static_cast<int>(high % std::popcount(warps_[w].ready)));
      break;
    }
  }
  warps_[w].ready &= ~(1u << lane);
  if (warps_[w].ready == 0) ready_warps_ &= ~(1u << w);
  return &threads_[32 * w + lane];
}

void BlockRunner::EnterThread(Thread& to) {
  current_ = &to;
  device::threadIdx = to.index;
  stack_limit_ = memory_->stack(thread()) + kRedZone;
}

void BlockRunner::Yield() {
  Thread* const next = Next();
  if (next == nullptr) ReportDeadlock();
  if (next == current_) return;
  Fiber& self = current_->fiber;
  EnterThread(*next);
  Fiber::Switch(self, next->fiber);
}

void BlockRunner::RunOthersByChance() {
  if ((NextSplitMix(random_) & 0xffffffffu) >= preempt_below_) return;
  MakeReady(thread() / 32, 1u << lane());
  Yield();
}

void BlockRunner::ReportDeadlock() {
  int at_warp_operations = 0, waiting = 0;
  for (int i = thread_count_ - 1; i >= 0; --i) {
    if ((warps_[i / 32].waiting >> (i % 32) & 1u) == 0) continue;
    ++at_warp_operations;
    waiting = i;
  }
  Finding finding = Broken(Rule::kDeadlock, threads_[waiting].site);
  finding.thread = waiting;
  finding.value = at_barrier_;
  finding.other_value = at_warp_operations;
  Fail(finding);
}

}  // namespace headwise::emulation
