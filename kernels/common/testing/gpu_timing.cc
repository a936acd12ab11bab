#include "kernels/common/testing/gpu_timing.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "core/base/check.h"
#include "core/base/status_macros.h"

namespace headwise {
namespace {

absl::StatusOr<CudaGraph> Repeat(const GpuContender& contender, int repetitions, int sets,
                                 const CudaStream& stream) {
  return CudaGraph::Capture(stream, [=](CUstream_st* s) -> absl::Status {
    for (int i = 0; i < repetitions; ++i) HW_RETURN_IF_ERROR(contender.enqueue(i % sets, s));
    return absl::OkStatus();
  });
}

// Two events to time with.
struct Stopwatch {
  CudaEvent begin, end;

  // Seconds of a replay that follows another.
  absl::StatusOr<double> Time(const CudaGraph& graph, const CudaStream& stream) const {
    HW_RETURN_IF_ERROR(graph.Launch(stream));
    HW_RETURN_IF_ERROR(begin.Record(stream));
    HW_RETURN_IF_ERROR(graph.Launch(stream));
    HW_RETURN_IF_ERROR(end.Record(stream));
    HW_RETURN_IF_ERROR(stream.Synchronize());
    return CudaEvent::Seconds(begin, end);
  }
};

}  // namespace

double Median(std::vector<double> values) {
  HW_CHECK(!values.empty());
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

absl::StatusOr<std::vector<GpuTime>> TimeInTurns(const std::vector<GpuContender>& contenders,
                                                 const GpuTimingOptions& options,
                                                 const CudaStream& stream) {
  HW_CHECK(options.sets >= 1 && options.least >= 1);
  HW_ASSIGN_OR_RETURN(CudaEvent begin, CudaEvent::Create());
  HW_ASSIGN_OR_RETURN(CudaEvent end, CudaEvent::Create());
  const Stopwatch stopwatch = {std::move(begin), std::move(end)};
  std::vector<GpuTime> times;
  std::vector<CudaGraph> graphs;
  for (const GpuContender& contender : contenders) {
    HW_ASSIGN_OR_RETURN(const CudaGraph once,
                        Repeat(contender, options.sets, options.sets, stream));
    HW_ASSIGN_OR_RETURN(const double warm_up, stopwatch.Time(once, stream));
    static_cast<void>(warm_up);
    HW_ASSIGN_OR_RETURN(const double seconds, stopwatch.Time(once, stream));
    const double most_rounds = std::max(1, options.most_repetitions / options.sets);
    const int rounds = static_cast<int>(
        std::clamp(std::ceil(options.graph_seconds / std::max(seconds, 1e-9)), 1.0, most_rounds));
    const int repetitions = rounds * options.sets;
    HW_ASSIGN_OR_RETURN(CudaGraph graph, Repeat(contender, repetitions, options.sets, stream));
    times.push_back({.name = contender.name,
                     .kernels = graph.kernels() / repetitions,
                     .repetitions = repetitions});
    graphs.push_back(std::move(graph));
  }

  std::vector<std::vector<double>> samples(graphs.size());
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  for (int i = 0; i < options.least || (i < options.most && elapsed() < options.seconds); ++i) {
    for (std::size_t c = 0; c < graphs.size(); ++c) {
      HW_ASSIGN_OR_RETURN(const double seconds, stopwatch.Time(graphs[c], stream));
      samples[c].push_back(seconds / times[c].repetitions);
    }
  }
  for (std::size_t c = 0; c < graphs.size(); ++c) {
    times[c].median = Median(samples[c]);
    times[c].best = *std::min_element(samples[c].begin(), samples[c].end());
    times[c].replays = static_cast<int>(samples[c].size());
  }
  return times;
}

}  // namespace headwise
