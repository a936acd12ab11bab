#include "kernels/emulation/launch.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/split_mix.h"
#include "kernels/common/float_environment.h"
#include "kernels/emulation/block_order.h"
#include "kernels/emulation/block_runner.h"
#include "kernels/emulation/launch_limits.h"
#include "kernels/emulation/session_state.h"

namespace headwise::emulation {
namespace {

// The first finding of launches without a session, until somebody asks.
thread_local std::string finding_without_session;

// The i-th of the seeds that a seed stands for: of a launch's blocks, of a session's launches.
constexpr std::uint64_t DerivedSeed(std::uint64_t seed, std::uint64_t i) {
  return SplitMixScramble(SplitMixScramble(seed + kSplitMixIncrement) +
                          (i + 1) * kSplitMixIncrement);
}

// The runners that no launch is using: their stacks stay mapped and warm.
class RunnerPool {
 public:
  static RunnerPool& Get() {
    static RunnerPool* pool = new RunnerPool;
    return *pool;
  }
  std::unique_ptr<BlockRunner> Take() {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        std::unique_ptr<BlockRunner> runner = std::move(free_.back());
        free_.pop_back();
        return runner;
      }
    }
    return std::make_unique<BlockRunner>();
  }
  void Give(std::unique_ptr<BlockRunner> runner) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(runner));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<BlockRunner>> free_;
};

// "(Kernel<64>)" -> "Kernel<64>".
std::string KernelName(const char* text) {
  std::string name = text;
  if (name.size() > 2 && name.front() == '(' && name.back() == ')') {
    name = name.substr(1, name.size() - 2);
  }
  return name;
}

// What the OS threads of a launch share.
struct Work {
  const LaunchRequest& request;
  const std::string name;
  const Options& options;
  const Regions& regions;
  const std::uint64_t seed;
  const BlockOrder blocks;

  std::atomic<std::int64_t> next{0};
  // The earliest block with a finding. Earlier blocks were begun before it and run to their end, so
  // that the finding reported does not depend on the OS threads.
  std::atomic<std::int64_t> stop;

  std::mutex mutex;
  std::int64_t found_at;
  std::string finding;
  std::vector<Traffic> traffic;
  std::int64_t static_shared_bytes = 0;
};

void RunBlocks(Work& work) {
  std::unique_ptr<BlockRunner> runner = RunnerPool::Get().Take();
  runner->StartLaunch(work.request, work.options, work.regions);
  for (std::int64_t at; (at = work.next++) < work.stop;) {
    const std::int64_t index = work.blocks.At(at);
    const Dim3 block = PlaceAt(index, work.request.grid);
    if (runner->RunBlock(block, DerivedSeed(work.seed, index))) continue;
    const std::lock_guard lock(work.mutex);
    if (at >= work.found_at) break;
    work.found_at = at;
    work.stop = at;
    work.finding =
        Describe(runner->finding(), work.name.c_str(), block, work.request.block, work.regions);
    break;
  }
  runner->FinishLaunch();
  {
    const std::lock_guard lock(work.mutex);
    work.static_shared_bytes = std::max(work.static_shared_bytes, runner->static_shared_bytes());
    for (std::size_t i = 0; i < work.traffic.size(); ++i) {
      Accumulate(runner->traffic()[i], work.traffic[i]);
    }
  }
  RunnerPool::Get().Give(std::move(runner));
}

std::string Run(const LaunchRequest& request, const Options& options, const Regions& regions,
                std::uint64_t seed, std::vector<Traffic>& traffic,
                std::int64_t& static_shared_bytes) {
  const std::string name = KernelName(request.name);
  if (const absl::Status status = CheckFloatEnvironment(); !status.ok()) {
    return absl::StrCat(std::string(status.message()), ": kernel ", name);
  }
  if (const std::string limits = CheckLimits(request); !limits.empty()) {
    return absl::StrCat(limits, ": kernel ", name);
  }
  Work work{.request = request,
            .name = name,
            .options = options,
            .regions = regions,
            .seed = seed,
            .blocks = BlockOrder(request.grid.Count(), options.order, seed)};
  work.stop = work.found_at = work.blocks.count();
  if (options.count_traffic) work.traffic.resize(regions.size());
  // TSan has few threads, and fibers of one OS thread are as concurrent to it as any.
  const std::int64_t os_threads =
      kTsan ? 1 : std::min<std::int64_t>(options.os_threads, work.blocks.count());
  std::vector<std::thread> others;
  for (std::int64_t i = 1; i < os_threads; ++i) others.emplace_back([&] { RunBlocks(work); });
  RunBlocks(work);
  for (std::thread& other : others) other.join();
  for (std::size_t i = 0; i < work.traffic.size(); ++i) Accumulate(work.traffic[i], traffic[i]);
  static_shared_bytes = work.static_shared_bytes;
  return work.finding;
}

}  // namespace

void RunLaunch(const LaunchRequest& request) {
  SessionState* const session = CurrentSession();
  if (session == nullptr) {
    static const Options* const options = new Options;
    static const Regions* const regions = new Regions;
    std::vector<Traffic> traffic;
    std::int64_t static_shared_bytes;
    std::string finding = Run(request, *options, *regions, 0, traffic, static_shared_bytes);
    if (finding_without_session.empty()) finding_without_session = std::move(finding);
    return;
  }
  if (!session->finding.empty()) return;
  session->launches.push_back({.kernel = KernelName(request.name),
                               .grid = request.grid,
                               .block = request.block,
                               .dynamic_shared_bytes = request.dynamic_shared_bytes});
  session->finding = Run(request, session->options, session->regions,
                         DerivedSeed(session->options.seed, session->launches.size()),
                         session->traffic, session->launches.back().static_shared_bytes);
}

absl::Status TakeLaunchStatus(const char* kernel) {
  const SessionState* const session = CurrentSession();
  const std::string finding =
      session != nullptr ? session->finding : std::exchange(finding_without_session, "");
  if (finding.empty()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(kernel, ": launch failed: ", finding));
}

}  // namespace headwise::emulation
