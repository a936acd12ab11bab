// The Muon step on a GPU, contract mode, by CUDA events over graph replays (gpu_timing.h), in turns
// with the GPU's own copy.
//
//   gpu_benchmark [--quick] [--json FILE] [--dump DIRECTORY]
//
// Prints a table:
//
//   us        the median of one step, microseconds
//   TFLOP/s   4 d^2 n + 34 d^3 a block (five steps in Gram form, both triangles) / that time
//   TB/s      28 bytes an element (24 with bf16 gradients) / that time
//   of copy   that rate / the rate of a copy of the weight in this run
//   launches  kernels of one step
//
// --json writes all of it. --dump is taken, as run.sh of tools/gpu_check gives it to every benchmark,
// and writes nothing. Exits 1 on an error, 3 if there is no GPU.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "core/cuda/device.h"
#include "core/cuda/device_memory.h"
#include "core/cuda/stream.h"
#include "core/dtype/dtype.h"
#include "core/heads/head_blocks.h"
#include "core/io/atomic_file.h"
#include "kernels/common/testing/gpu_timing.h"
#include "kernels/muon_step/cuda.h"
#include "nlohmann/json.hpp"

namespace headwise {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kNoGpu = 3;

struct Flags {
  bool quick = false;
  bool tiny = false;
  std::string json, dump;
};

// So many blocks of d x n.
struct Case {
  std::int64_t blocks, d, n;
  std::int64_t Elements() const { return blocks * d * n; }
  double Flops() const {
    const double rows = static_cast<double>(d), cols = static_cast<double>(n);
    return static_cast<double>(blocks) * (4 * rows * rows * cols + 34 * rows * rows * rows);
  }
};

std::vector<Case> Cases(const Flags& flags) {
  if (flags.tiny) return {{2, 64, 300}, {1, 80, 200}};
  return {{160, 64, 8192}, {48, 128, 4096}};
}

Json ToJson(const CudaDevice& device) {
  return {{"name", device.name},
          {"compute_capability", absl::StrCat(device.major, ".", device.minor)},
          {"multiprocessors", device.multiprocessors},
          {"memory_bytes", device.memory},
          {"l2_bytes", device.l2_cache},
          {"driver", device.driver},
          {"runtime", device.runtime}};
}

// Host values in [-1, 1), cheap and the same everywhere.
template <typename T>
std::vector<T> Values(std::int64_t count, std::uint32_t seed) {
  std::vector<T> values(count);
  std::uint32_t state = seed;
  for (T& v : values) {
    state = state * 1664525u + 1013904223u;
    v = Narrow<T>(static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-31f);
  }
  return values;
}

template <typename G>
absl::StatusOr<Json> Measure(const Flags& flags, const Case& c, const char* gradients,
                             const CudaStream& stream) {
  Json json = {{"blocks", c.blocks}, {"d", c.d}, {"n", c.n}, {"gradients", gradients}};
  const std::int64_t elements = c.Elements(), rows = c.blocks * c.d;
  HW_ASSIGN_OR_RETURN(const auto weight, DeviceArray<float>::Of(Values<float>(elements, 1)));
  HW_ASSIGN_OR_RETURN(const auto momentum, DeviceArray<float>::Of(Values<float>(elements, 2)));
  HW_ASSIGN_OR_RETURN(const auto copy, DeviceArray<float>::Allocate(elements));
  HW_ASSIGN_OR_RETURN(const auto gradient, DeviceArray<G>::Of(Values<G>(elements, 3)));
  HW_ASSIGN_OR_RETURN(const HeadBlocks heads,
                      HeadBlocks::Separate(HeadRole::kQuery, c.blocks, c.d, 1));
  const std::vector<MuonWeight<G>> weights = {
      {.weight = RowSpan<float>(weight.data(), rows, c.n),
       .momentum = RowSpan<float>(momentum.data(), rows, c.n),
       .gradient = RowSpan<const G>(gradient.data(), rows, c.n),
       .blocks = &heads}};
  HW_ASSIGN_OR_RETURN(const MuonStepPlan plan, MuonStepPlan::Create<G>({}, weights));
  HW_ASSIGN_OR_RETURN(const auto table, DeviceArray<std::byte>::Of(plan.table()));
  HW_ASSIGN_OR_RETURN(const auto scratch, DeviceMemory::Allocate(plan.scratch_bytes()));
  const MuonStepScalars value;
  HW_ASSIGN_OR_RETURN(const auto scalars, DeviceArray<MuonStepScalars>::Of({&value, 1}));
  const std::int64_t copied = elements * std::int64_t{sizeof(float)};
  HW_ASSIGN_OR_RETURN(const std::vector<GpuTime> times,
                      TimeInTurns({{"step",
                                    [&](int, CUstream_st* s) {
                                      return cuda::MuonStep(plan, {.stream = s,
                                                                   .table = table.data(),
                                                                   .scalars = scalars.data(),
                                                                   .scratch = scratch.data()});
                                    }},
                                   {"copy",
                                    [&](int, CUstream_st* s) {
                                      return CopyOnDevice(copy.data(), weight.data(), copied, s);
                                    }}},
                                  {.seconds = flags.quick ? 0.4 : 1.5}, stream));
  const std::int64_t bytes = elements * (20 + 2 * std::int64_t{sizeof(G)});
  const double rate = static_cast<double>(bytes) / times[0].median;
  const double copy_rate = 2.0 * static_cast<double>(copied) / times[1].median;
  json["median_us"] = times[0].median * 1e6;
  json["best_us"] = times[0].best * 1e6;
  json["launches"] = plan.launches();
  json["bytes"] = bytes;
  json["bytes_per_second"] = rate;
  json["copy_bytes_per_second"] = copy_rate;
  json["share_of_copy"] = rate / copy_rate;
  json["flops"] = c.Flops();
  json["flops_per_second"] = c.Flops() / times[0].median;
  return json;
}

void PrintRow(const Json& row) {
  absl::PrintF("%6d x %3d x %5d  %-9s | %9.2f %8.2f %6.2f %7.2f %8d\n",
               row["blocks"].get<std::int64_t>(), row["d"].get<std::int64_t>(),
               row["n"].get<std::int64_t>(), row["gradients"].get<std::string>(),
               row["median_us"].get<double>(), row["flops_per_second"].get<double>() * 1e-12,
               row["bytes_per_second"].get<double>() * 1e-12, row["share_of_copy"].get<double>(),
               row["launches"].get<int>());
  std::fflush(stdout);
}

absl::Status Run(const Flags& flags, const CudaDevice& device) {
  HW_ASSIGN_OR_RETURN(const CudaStream stream, CudaStream::Create());
  Json json = {{"benchmark", "muon_step"}, {"device", ToJson(device)}, {"cases", Json::array()}};
  absl::PrintF("%s, %d multiprocessors, contract mode, quintic5\n", device.name,
               device.multiprocessors);
  absl::PrintF("%-20s  %-9s | %9s %8s %6s %7s %8s\n", "  blocks x d x n", "gradients", "us",
               "TFLOP/s", "TB/s", "of copy", "launches");
  for (const Case& c : Cases(flags)) {
    for (const bool bf16 : {false, true}) {
      HW_ASSIGN_OR_RETURN(Json row, bf16 ? Measure<BFloat16>(flags, c, "bf16", stream)
                                         : Measure<float>(flags, c, "fp32", stream));
      PrintRow(row);
      json["cases"].push_back(std::move(row));
      // What is measured is kept, whatever follows.
      if (!flags.json.empty()) {
        HW_RETURN_IF_ERROR(WriteFileAtomically(flags.json, json.dump(2) + "\n"));
      }
    }
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("The Muon step on a GPU, contract mode.");
  app.add_flag("--quick", flags.quick, "shorter");
  app.add_flag("--tiny", flags.tiny, "sizes for a test of this program; the times mean nothing");
  app.add_option("--json", flags.json, "write the results to this file");
  app.add_option("--dump", flags.dump, "taken, and nothing is written");
  CLI11_PARSE(app, argc, argv);
  const absl::StatusOr<CudaDevice> device = CurrentCudaDevice();
  if (!device.ok()) {
    absl::FPrintF(stderr, "gpu_benchmark: %s\n", device.status().message());
    return kNoGpu;
  }
  const absl::Status status = Run(flags, *device);
  if (!status.ok()) absl::FPrintF(stderr, "gpu_benchmark: %s\n", status.message());
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace headwise

// The code throws nothing itself; the libraries may.
int main(int argc, char** argv) {
  try {
    return headwise::Main(argc, argv);
  } catch (const std::exception& exception) {
    std::fprintf(stderr, "gpu_benchmark: %s\n", exception.what());
  } catch (...) {
    std::fprintf(stderr, "gpu_benchmark: an exception without a message\n");
  }
  return 1;
}
