#include "model/bench/clock.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>

#include "core/base/status_macros.h"

namespace headwise {
namespace {

constexpr double kMostRepeats = 1000;

absl::StatusOr<double> RunOnce(UnitRunner& runner) {
  HW_RETURN_IF_ERROR(runner.Prepare());
  HW_RETURN_IF_ERROR(runner.Run());
  return runner.Seconds();
}

// The mean of `repeats` runs.
absl::StatusOr<double> Sample(UnitRunner& runner, int repeats) {
  double sum = 0;
  for (int i = 0; i < repeats; ++i) {
    HW_ASSIGN_OR_RETURN(const double seconds, RunOnce(runner));
    sum += seconds;
  }
  return sum / repeats;
}

}  // namespace

absl::Status HostRunner::Run() {
  const auto begin = std::chrono::steady_clock::now();
  absl::Status status = run_();
  seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return status;
}

absl::StatusOr<Samples> Measure(absl::Span<UnitRunner* const> contenders,
                                const ClockOptions& options) {
  std::vector<int> repeats;
  for (UnitRunner* runner : contenders) {
    HW_RETURN_IF_ERROR(RunOnce(*runner).status());
    HW_ASSIGN_OR_RETURN(const double seconds, RunOnce(*runner));
    const double wanted = seconds > 0 ? std::ceil(options.sample_seconds / seconds) : kMostRepeats;
    repeats.push_back(static_cast<int>(std::clamp(wanted, 1.0, kMostRepeats)));
  }
  Samples samples(contenders.size());
  for (int round = 0; round < options.rounds; ++round) {
    for (std::size_t i = 0; i < contenders.size(); ++i) {
      const std::size_t which = (i + static_cast<std::size_t>(round)) % contenders.size();
      HW_ASSIGN_OR_RETURN(const double seconds, Sample(*contenders[which], repeats[which]));
      samples[which].push_back(seconds);
    }
  }
  return samples;
}

}  // namespace headwise
