// The Muon step on a GPU, by CUDA events over graph replays (gpu_timing.h), in turns: in contract mode,
// on tensor cores, AdamW of the same parameters, Newton-Schulz of the same blocks by the standard form
// in bf16 (gpu_standard_form.h), and the GPU's own copy.
//
//   gpu_benchmark [--quick] [--json FILE] [--dump DIRECTORY]
//
// Prints a table:
//
//   us        the median of one step in contract mode, microseconds
//   TFLOP/s   4 d^2 n + 34 d^3 a block (five steps in Gram form, both triangles) / that time
//   TB/s      28 bytes an element (24 with bf16 gradients) / that time
//   of copy   that rate / the rate of a copy of the weight in this run
//   launches  kernels of one step
//   then the medians of the others, microseconds; "-" for AdamW of bf16 gradients, which it does not
//   take, and for the standard form where there is no cuBLAS to be opened
//
// --json writes all of it. --dump is taken, as run.sh of tools/gpu_check gives it to every benchmark,
// and writes nothing. Exits 1 on an error, 3 if there is no GPU.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <type_traits>
#include <utility>
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
#include "kernels/adamw/cuda.h"
#include "kernels/common/testing/gpu_timing.h"
#include "kernels/muon_step/cuda.h"
#include "kernels/muon_step/gpu_standard_form.h"
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

// A plan with the memory of its launches.
struct PlannedStep {
  MuonStepPlan plan;
  DeviceArray<std::byte> table;
  DeviceMemory scratch;
  DeviceArray<MuonStepScalars> scalars;

  absl::Status Enqueue(CUstream_st* stream) const {
    return cuda::MuonStep(plan, {.stream = stream,
                                 .table = table.data(),
                                 .scalars = scalars.data(),
                                 .scratch = scratch.data()});
  }
};
template <typename G>
absl::StatusOr<PlannedStep> Plan(const std::vector<MuonWeight<G>>& weights, MuonMode mode) {
  HW_ASSIGN_OR_RETURN(MuonStepPlan plan, MuonStepPlan::Create<G>({}, weights, mode));
  HW_ASSIGN_OR_RETURN(auto table, DeviceArray<std::byte>::Of(plan.table()));
  HW_ASSIGN_OR_RETURN(auto scratch, DeviceMemory::Allocate(plan.scratch_bytes()));
  const MuonStepScalars value;
  HW_ASSIGN_OR_RETURN(auto scalars, DeviceArray<MuonStepScalars>::Of({&value, 1}));
  return PlannedStep{std::move(plan), std::move(table), std::move(scratch), std::move(scalars)};
}

// The standard form on as many blocks, run once, since cuBLAS loads its kernels when they are first asked
// for; why there is none, if not.
absl::StatusOr<GpuStandardForm> MakeStandardForm(const Case& c, const CudaStream& stream) {
  std::vector<BFloat16> x = Values<BFloat16>(c.Elements(), 4);
  const float scale = 1.0f / std::sqrt(static_cast<float>(c.d * c.n));
  for (BFloat16& v : x) v = Narrow<BFloat16>(scale * Widen(v));
  HW_ASSIGN_OR_RETURN(GpuStandardForm form, GpuStandardForm::Create(c.blocks, c.d, c.n, x));
  HW_RETURN_IF_ERROR(form.Enqueue(stream.get()));
  HW_RETURN_IF_ERROR(stream.Synchronize());
  return form;
}

template <typename G>
absl::StatusOr<Json> Measure(const Flags& flags, const Case& c, const char* gradients,
                             const CudaStream& stream) {
  Json json = {{"blocks", c.blocks}, {"d", c.d}, {"n", c.n}, {"gradients", gradients}};
  const std::int64_t elements = c.Elements(), rows = c.blocks * c.d;
  HW_ASSIGN_OR_RETURN(const auto weight, DeviceArray<float>::Of(Values<float>(elements, 1)));
  HW_ASSIGN_OR_RETURN(const auto momentum, DeviceArray<float>::Of(Values<float>(elements, 2)));
  HW_ASSIGN_OR_RETURN(const auto other, DeviceArray<float>::Allocate(elements));
  HW_ASSIGN_OR_RETURN(const auto gradient, DeviceArray<G>::Of(Values<G>(elements, 3)));
  HW_ASSIGN_OR_RETURN(const HeadBlocks heads,
                      HeadBlocks::Separate(HeadRole::kQuery, c.blocks, c.d, 1));
  const std::vector<MuonWeight<G>> weights = {
      {.weight = RowSpan<float>(weight.data(), rows, c.n),
       .momentum = RowSpan<float>(momentum.data(), rows, c.n),
       .gradient = RowSpan<const G>(gradient.data(), rows, c.n),
       .blocks = &heads}};
  HW_ASSIGN_OR_RETURN(const PlannedStep contract, Plan(weights, MuonMode::kContract));
  HW_ASSIGN_OR_RETURN(const PlannedStep tensor_core, Plan(weights, MuonMode::kTensorCore));
  const std::int64_t copied = elements * std::int64_t{sizeof(float)};
  std::vector<GpuContender> contenders = {
      {"step", [&](int, CUstream_st* s) { return contract.Enqueue(s); }},
      {"copy",
       [&](int, CUstream_st* s) { return CopyOnDevice(other.data(), weight.data(), copied, s); }},
      {"tensor_core", [&](int, CUstream_st* s) { return tensor_core.Enqueue(s); }}};

  // The same parameters by AdamW, whose kernel takes fp32 gradients.
  const AdamWFactors<float> factors = MakeAdamWFactors<float>({}, /*step=*/10, 1.0);
  HW_ASSIGN_OR_RETURN(const auto adamw, DeviceArray<AdamWFactors<float>>::Of({&factors, 1}));
  HW_ASSIGN_OR_RETURN(const auto v, DeviceArray<float>::Allocate(elements));
  HW_RETURN_IF_ERROR(FillDevice(v.data(), 0, copied));
  const auto span = [&](const DeviceArray<float>& array) {
    return absl::Span<float>(array.data(), static_cast<std::size_t>(elements));
  };
  std::vector<AdamWTensors> parameters;
  if constexpr (std::is_same_v<G, float>) {
    parameters.push_back({span(weight), span(momentum), span(v), gradient.span()});
  }
  HW_ASSIGN_OR_RETURN(const AdamWPlan adamw_plan, AdamWPlan::Create(parameters));
  HW_ASSIGN_OR_RETURN(const auto adamw_table, DeviceArray<std::byte>::Of(adamw_plan.table()));
  if (!parameters.empty()) {
    contenders.push_back(
        {"adamw", [&](int, CUstream_st* s) {
           return cuda::AdamWStep(
               adamw_plan, {.stream = s, .table = adamw_table.data(), .factors = adamw.data()});
         }});
  }
  const absl::StatusOr<GpuStandardForm> standard_form = MakeStandardForm(c, stream);
  if (standard_form.ok()) {
    contenders.push_back(
        {"standard_form", [&](int, CUstream_st* s) { return standard_form->Enqueue(s); }});
  } else {
    json["standard_form"] = {{"skipped", standard_form.status().message()}};
  }

  HW_ASSIGN_OR_RETURN(const std::vector<GpuTime> times,
                      TimeInTurns(contenders, {.seconds = flags.quick ? 1.0 : 4.0}, stream));
  const std::int64_t bytes = elements * (20 + 2 * std::int64_t{sizeof(G)});
  const double rate = static_cast<double>(bytes) / times[0].median;
  const double copy_rate = 2.0 * static_cast<double>(copied) / times[1].median;
  json["median_us"] = times[0].median * 1e6;
  json["best_us"] = times[0].best * 1e6;
  json["launches"] = contract.plan.launches();
  json["bytes"] = bytes;
  json["bytes_per_second"] = rate;
  json["copy_bytes_per_second"] = copy_rate;
  json["share_of_copy"] = rate / copy_rate;
  json["flops"] = c.Flops();
  json["flops_per_second"] = c.Flops() / times[0].median;
  for (std::size_t i = 2; i < times.size(); ++i) {
    json[times[i].name] = {{"median_us", times[i].median * 1e6},
                           {"best_us", times[i].best * 1e6},
                           {"launches", times[i].kernels}};
  }
  return json;
}

// "-" where there is no such contender.
std::string Microseconds(const Json& row, const char* contender) {
  if (!row.contains(contender) || !row[contender].contains("median_us")) return "-";
  return absl::StrFormat("%.2f", row[contender]["median_us"].get<double>());
}

void PrintRow(const Json& row) {
  absl::PrintF("%6d x %3d x %5d  %-9s | %9.2f %8.2f %6.2f %7.2f %8d | %12s %9s %13s\n",
               row["blocks"].get<std::int64_t>(), row["d"].get<std::int64_t>(),
               row["n"].get<std::int64_t>(), row["gradients"].get<std::string>(),
               row["median_us"].get<double>(), row["flops_per_second"].get<double>() * 1e-12,
               row["bytes_per_second"].get<double>() * 1e-12, row["share_of_copy"].get<double>(),
               row["launches"].get<int>(), Microseconds(row, "tensor_core"),
               Microseconds(row, "adamw"), Microseconds(row, "standard_form"));
  std::fflush(stdout);
}

absl::Status Run(const Flags& flags, const CudaDevice& device) {
  HW_ASSIGN_OR_RETURN(const CudaStream stream, CudaStream::Create());
  Json json = {{"benchmark", "muon_step"}, {"device", ToJson(device)}, {"cases", Json::array()}};
  absl::PrintF("%s, %d multiprocessors, quintic5\n", device.name, device.multiprocessors);
  absl::PrintF("%-20s  %-9s | %9s %8s %6s %7s %8s | %12s %9s %13s\n", "  blocks x d x n",
               "gradients", "us", "TFLOP/s", "TB/s", "of copy", "launches", "tensor cores", "AdamW",
               "standard form");
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
  CLI::App app("The Muon step on a GPU, and what it is compared with.");
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
