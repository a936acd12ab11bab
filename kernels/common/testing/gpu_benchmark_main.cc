#include "kernels/common/testing/gpu_benchmark_main.h"

#include <cstdio>
#include <exception>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/io/atomic_file.h"

namespace headwise {
namespace {

constexpr int kNoGpu = 3;

int Main(int argc, char** argv, const std::string& description,
         absl::FunctionRef<absl::Status(const GpuBenchmarkFlags&, const CudaDevice&)> run) {
  GpuBenchmarkFlags flags;
  CLI::App app(description);
  app.add_flag("--quick", flags.quick, "fewer sizes, shorter");
  app.add_flag("--tiny", flags.tiny, "sizes for a test of this program; the times mean nothing");
  app.add_option("--seconds", flags.seconds, "leave out what has not begun by then");
  app.add_option("--json", flags.json, "write the results to this file");
  app.add_option("--dump", flags.dump, "write inputs and outputs to this directory, if any")
      ->check(CLI::ExistingDirectory);
  CLI11_PARSE(app, argc, argv);
  const absl::StatusOr<CudaDevice> device = CurrentCudaDevice();
  if (!device.ok()) {
    absl::FPrintF(stderr, "gpu_benchmark: %s\n", device.status().message());
    return kNoGpu;
  }
  const absl::Status status = run(flags, *device);
  if (!status.ok()) absl::FPrintF(stderr, "gpu_benchmark: %s\n", status.message());
  return status.ok() ? 0 : 1;
}

}  // namespace

// The code throws nothing itself; the libraries may.
int GpuBenchmarkMain(
    int argc, char** argv, const std::string& description,
    absl::FunctionRef<absl::Status(const GpuBenchmarkFlags&, const CudaDevice&)> run) {
  try {
    return Main(argc, argv, description, run);
  } catch (const std::exception& exception) {
    std::fprintf(stderr, "gpu_benchmark: %s\n", exception.what());
  } catch (...) {
    std::fprintf(stderr, "gpu_benchmark: an exception without a message\n");
  }
  return 1;
}

nlohmann::ordered_json ToJson(const CudaDevice& device) {
  return {{"name", device.name},
          {"compute_capability", absl::StrCat(device.major, ".", device.minor)},
          {"multiprocessors", device.multiprocessors},
          {"memory_bytes", device.memory},
          {"l2_bytes", device.l2_cache},
          {"driver", device.driver},
          {"runtime", device.runtime}};
}

nlohmann::ordered_json ToJson(const GpuTime& time) {
  return {{"median_us", time.median * 1e6},
          {"best_us", time.best * 1e6},
          {"launches", time.kernels},
          {"replays", time.replays},
          {"repetitions", time.repetitions}};
}

absl::Status SaveJson(const GpuBenchmarkFlags& flags, const nlohmann::ordered_json& json) {
  if (flags.json.empty()) return absl::OkStatus();
  return WriteFileAtomically(flags.json, json.dump(2) + "\n");
}

}  // namespace headwise
