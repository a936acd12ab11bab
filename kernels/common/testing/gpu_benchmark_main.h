// What the benchmarks on a GPU share: their command line, the GPU and times as JSON.
//
//   gpu_benchmark [--quick] [--json FILE] [--dump DIRECTORY]
//
//   int main(int argc, char** argv) {
//     return headwise::GpuBenchmarkMain(argc, argv, "What it measures.", headwise::Run);
//   }
#ifndef HEADWISE_KERNELS_COMMON_TESTING_GPU_BENCHMARK_MAIN_H_
#define HEADWISE_KERNELS_COMMON_TESTING_GPU_BENCHMARK_MAIN_H_

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "core/cuda/device.h"
#include "kernels/common/testing/gpu_timing.h"
#include "nlohmann/json.hpp"

namespace headwise {

struct GpuBenchmarkFlags {
  bool quick = false;      // fewer sizes, shorter
  bool tiny = false;       // sizes for a test of the program; the times mean nothing
  double seconds = 45;     // what has not begun by then is left out, where a benchmark has an order
  std::string json, dump;  // a file, an existing directory; empty: none
};

// Returns main's exit status: 0, 1 if `run` returns an error, which goes to stderr, or if a library
// throws, 3 if there is no GPU. `description` heads --help.
int GpuBenchmarkMain(
    int argc, char** argv, const std::string& description,
    absl::FunctionRef<absl::Status(const GpuBenchmarkFlags&, const CudaDevice&)> run);

nlohmann::ordered_json ToJson(const CudaDevice& device);
// {"median_us", "best_us", "launches", "replays", "repetitions"}
nlohmann::ordered_json ToJson(const GpuTime& time);

// Nothing if no file was asked for. Whole or not at all.
absl::Status SaveJson(const GpuBenchmarkFlags& flags, const nlohmann::ordered_json& json);

}  // namespace headwise

#endif  // HEADWISE_KERNELS_COMMON_TESTING_GPU_BENCHMARK_MAIN_H_
