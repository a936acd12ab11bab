// clock: measures contenders in turns.
//
//   HostRunner fused([&] { cache->ResetRow(0); }, [&] { decoder.Extend(*cache, prompt, pool); });
//   ...
//   HW_ASSIGN_OR_RETURN(const Samples seconds, Measure({&fused, &unfused, &product}, {}));
//   Summarize(Ratios(seconds[1], seconds[0]));
//
// In a round every contender runs once; who begins changes from round to round. So a machine that
// is busy for a while is busy for all of them, and the ratio of one round means something.
#ifndef HEADWISE_MODEL_BENCH_CLOCK_H_
#define HEADWISE_MODEL_BENCH_CLOCK_H_

#include <functional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace headwise {

// Work that can be done again and again, and the time that it takes by the clock of the device that
// it runs on: a GPU's may replay a graph between two events.
class UnitRunner {
 public:
  virtual ~UnitRunner() = default;
  // Before every Run, outside of its time: puts back what the last one used up.
  virtual absl::Status Prepare() = 0;
  // Does the work once; may return before it is done.
  virtual absl::Status Run() = 0;
  // Of the last Run, which it waits for.
  virtual absl::StatusOr<double> Seconds() = 0;
};

// On the CPU, by the steady clock.
class HostRunner : public UnitRunner {
 public:
  using Work = std::function<absl::Status()>;
  HostRunner(Work prepare, Work run) : prepare_(std::move(prepare)), run_(std::move(run)) {}

  absl::Status Prepare() override { return prepare_ ? prepare_() : absl::OkStatus(); }
  absl::Status Run() override;
  absl::StatusOr<double> Seconds() override { return seconds_; }

 private:
  Work prepare_, run_;  // prepare_ may be null
  double seconds_ = 0;
};

struct ClockOptions {
  int rounds = 7;
  // Work that takes less is done several times for one sample, which is then the mean.
  double sample_seconds = 2e-3;
};

// [contender][round], seconds of one Run.
using Samples = std::vector<std::vector<double>>;

// Two rounds that do not count (memory is mapped, code is made, repetitions are chosen), then
// options.rounds that do. The first error of a contender ends it.
absl::StatusOr<Samples> Measure(absl::Span<UnitRunner* const> contenders,
                                const ClockOptions& options);

}  // namespace headwise

#endif  // HEADWISE_MODEL_BENCH_CLOCK_H_
