// Times work on a GPU: graphs of many repetitions, replayed in turns, by CUDA events.
//
//   HW_ASSIGN_OR_RETURN(const std::vector<GpuTime> times,
//                       TimeInTurns({{"fused", fused}, {"copy", copy}}, {.sets = 4}, stream));
//
// Contenders take turns, so that what slows the GPU down slows all of them down. Before each timed
// graph the same graph runs untimed: the host is then ahead of the GPU, and a replay's own launch
// costs nothing.
#ifndef HEADWISE_KERNELS_COMMON_TESTING_GPU_TIMING_H_
#define HEADWISE_KERNELS_COMMON_TESTING_GPU_TIMING_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/cuda/stream.h"

namespace headwise {

struct GpuContender {
  std::string name;
  // Enqueues the work once, on buffers `set`.
  std::function<absl::Status(int set, CUstream_st* stream)> enqueue;
};

struct GpuTimingOptions {
  // Sets of buffers, used in rotation: together larger than the cache, or it is the cache that is
  // measured.
  int sets = 1;
  double seconds = 0.5;         // for all contenders together, about
  int least = 5, most = 301;    // timed replays of each
  double graph_seconds = 5e-4;  // a graph repeats the work until it takes about as long
  int most_repetitions = 512;   // of the work in a graph, and at least one for each set
};

struct GpuTime {
  std::string name;
  double median = 0, best = 0;  // seconds of the work once
  int kernels = 0;              // launches of the work once; copies do not count
  int replays = 0, repetitions = 0;
};

// The median; of an even number the upper of the middle two. `values` is not empty.
double Median(std::vector<double> values);

// In the order of the contenders. The first error of any is returned.
absl::StatusOr<std::vector<GpuTime>> TimeInTurns(const std::vector<GpuContender>& contenders,
                                                 const GpuTimingOptions& options,
                                                 const CudaStream& stream);

}  // namespace headwise

#endif  // HEADWISE_KERNELS_COMMON_TESTING_GPU_TIMING_H_
