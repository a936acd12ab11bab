// Barriers and warp operations of BlockRunner.
#include <bit>
#include <cstring>

#include "kernels/emulation/block_runner.h"
#include "kernels/emulation/tensor_core.h"

namespace headwise::emulation {
namespace {

// The same call in the text. A function that was inlined in one place and not in another has more
// than one record of it.
bool SamePlace(const Site& a, const Site& b) {
  if (std::bit_cast<const void*>(a) == std::bit_cast<const void*>(b)) return true;
  return a.line() == b.line() && a.column() == b.column() &&
         std::strcmp(a.file_name(), b.file_name()) == 0;
}

}  // namespace

void BlockRunner::Barrier(Site site) {
  CheckStack(site);
  current_->site = site;
  if (live_ < thread_count_) {
    Finding finding = Broken(Rule::kBarrierMissing, site);
    finding.value = thread_count_ - live_;
    Fail(finding);
  }
  if (at_barrier_ == 0) first_at_barrier_ = thread();
  const Site& first = threads_[first_at_barrier_].site;
  if (!SamePlace(first, site)) {
    Finding finding = Broken(Rule::kDifferentBarriers, site);
    finding.other_thread = first_at_barrier_;
    finding.other_site = first;
    Fail(finding);
  }
  const unsigned number = barriers_;
  group_->ComesToBarrier(number);
  if (++at_barrier_ == thread_count_) {
    at_barrier_ = 0;
    ++barriers_;
    for (int w = 0; w < warp_count_; ++w) MakeReady(w, warps_[w].present);
  }
  Yield();
  group_->LeavesBarrier(number);
}

std::uint64_t BlockRunner::WarpWait(WarpOperation operation, unsigned mask, std::uint64_t value,
                                    int source, Site site) {
  CheckStack(site);
  Thread& self = *current_;
  const int index = thread();
  const unsigned bit = 1u << (index % 32);
  Warp& warp = warps_[index / 32];
  self.site = site;
  self.value = value;
  self.mask = mask;
  self.source = static_cast<std::uint8_t>(source);
  self.operation = operation;
  CheckWarpOperation(warp);

  // CUDA promises that __syncwarp orders memory, and of shuffles and votes that they do not; nor
  // does an mma.
  const bool orders_memory = operation == WarpOperation::kSync;
  if (orders_memory) group_->ComesToSyncWarp(index);
  warp.waiting |= bit;
  if ((warp.waiting & mask) == mask) {
    CompleteWarpOperation(warp, self);
    if (options_->order == ThreadOrder::kRandom) {
      MakeReady(index / 32, mask);
      Yield();
    } else {
      MakeReady(index / 32, mask & ~bit);
    }
  } else {
    Yield();
  }
  if (orders_memory) group_->LeavesSyncWarp(index);
  return self.value;
}

// The running thread's, before it waits.
void BlockRunner::CheckWarpOperation(const Warp& warp) {
  const Thread& self = *current_;
  const unsigned present = warp.present & ~warp.returned;
  const bool shuffle = self.operation == WarpOperation::kShuffle;
  const bool good = (self.mask >> lane() & 1u) != 0 && (self.mask & ~present) == 0 &&
                    (!shuffle || (self.mask >> self.source & 1u) != 0);
  if (good) [[likely]]
    return;
  Finding finding = Broken(Rule::kShuffleOutside, self.site);
  finding.mask = self.mask;
  finding.value = self.source;
  if ((self.mask & warp.returned) != 0) {
    finding.rule = Rule::kMaskExited;
    finding.other_mask = self.mask & warp.returned;
  }
  if ((self.mask & ~warp.present) != 0) {
    finding.rule = Rule::kMaskAbsent;
    finding.other_mask = self.mask & ~warp.present;
  }
  if ((self.mask >> lane() & 1u) == 0) finding.rule = Rule::kMaskWithoutCaller;
  Fail(finding);
}

// All lanes of last.mask wait.
void BlockRunner::CompleteWarpOperation(Warp& warp, const Thread& last) {
  Thread* const lanes = threads_ + thread() / 32 * 32;
  const unsigned mask = last.mask;
  std::uint64_t given[32];
  unsigned votes = 0;
  for (unsigned left = mask; left != 0; left &= left - 1) {
    const int i = std::countr_zero(left);
    const Thread& lane = lanes[i];
    if (lane.mask != mask || lane.operation != last.operation || !SamePlace(lane.site, last.site)) {
      ReportDifferentOperations(last, lane);
    }
    given[i] = lane.value;
    if (lane.value != 0) votes |= 1u << i;
  }
  warp.waiting &= ~mask;
  switch (last.operation) {
    case WarpOperation::kShuffle:
      for (unsigned left = mask; left != 0; left &= left - 1) {
        Thread& lane = lanes[std::countr_zero(left)];
        lane.value = given[lane.source];
      }
      break;
    case WarpOperation::kBallot:
      for (unsigned left = mask; left != 0; left &= left - 1) {
        lanes[std::countr_zero(left)].value = votes;
      }
      break;
    case WarpOperation::kMultiply: {  // of all 32 lanes
      MmaOperands operands[32];
      for (int i = 0; i < 32; ++i) {
        // A lane gives where its operands are. NOLINTNEXTLINE(performance-no-int-to-ptr)
        operands[i] = *reinterpret_cast<const MmaOperands*>(static_cast<std::uintptr_t>(given[i]));
      }
      MultiplyFragments(operands);
      break;
    }
    case WarpOperation::kSync:
      if (!kTsan) break;
      const int first = static_cast<int>(lanes - threads_);
      for (unsigned left = mask; left != 0; left &= left - 1) {
        group_->AcquireFrom(first + std::countr_zero(left));
      }
      for (unsigned left = mask; left != 0; left &= left - 1) {
        group_->ReleaseTo(first + std::countr_zero(left));
      }
      break;
  }
}

void BlockRunner::ReportDifferentOperations(const Thread& one, const Thread& other) {
  Finding finding = Broken(Rule::kDifferentOperations, one.site);
  finding.mask = one.mask;
  finding.other_thread = static_cast<int>(&other - threads_);
  finding.other_site = other.site;
  finding.other_mask = other.mask;
  Fail(finding);
}

}  // namespace headwise::emulation
