// The kernels of a decoder on a GPU, one by one, at the sizes of Muse Spark's layers, embedding and
// loss, by CUDA events over graph replays (gpu_timing.h).
//
//   decoder_benchmark [--quick] [--seconds S] [--json FILE]
//
// Prints a table:
//
//   us        the median of one pass, microseconds
//   TB/s      the bytes that must be read or written, once each / that time
//   of copy   that rate / the rate of the fastest copy of 1 GiB in this run; the ceiling
//   TFLOP/s   of attention: two products forward, five backward / that time
//   launches  kernels of one pass
//
// 4,096 and 8,192 tokens (--quick: 4,096), activations in bf16. A size that does not fit into the
// memory is left out, as is what has not begun --seconds (45) after the start, and the row says so.
// --json writes all of it. Exits 1 on an error, 3 if there is no GPU.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "core/cuda/device.h"
#include "core/cuda/stream.h"
#include "kernels/common/testing/gpu_benchmark_main.h"
#include "kernels/common/testing/gpu_timing.h"
#include "kernels/prepare_qkv/gpu_copy.h"
#include "kernels/prepare_qkv/gpu_layer.h"
#include "nlohmann/json.hpp"
#include "tests/gpu/decoder_cases.h"

namespace headwise {
namespace {

using Json = nlohmann::ordered_json;

constexpr DecoderShape kTiny = {.dim = 64,
                                .query_heads = 4,
                                .kv_heads = 2,
                                .head_dim = 16,
                                .window = 20,
                                .expert_dim = 48,
                                .experts_per_token = 2,
                                .vocabulary = 300};

// The kernel between the projection and attention, in its own benchmark's geometry, which is Muse
// Spark's.
std::vector<DecoderCase> PrepareQkvCases(std::int64_t tokens) {
  std::vector<DecoderCase> cases;
  for (const bool backward : {false, true}) {
    cases.push_back(
        {"prepare_qkv", backward ? "backward" : "forward",
         absl::StrCat(tokens, " x ", GpuLayer::kSlots, " x ", GpuLayer::kDim),
         tokens * (backward ? GpuLayer::kBackwardBytesPerToken : GpuLayer::kForwardBytesPerToken),
         0, [=](BenchmarkMemory&) -> Enqueue {
           absl::StatusOr<GpuLayer> layer = GpuLayer::Create({.tokens = tokens, .sets = 1});
           if (!layer.ok()) {
             return [status = layer.status()](CUstream_st*) { return status; };
           }
           return [=, layer = std::make_shared<GpuLayer>(*std::move(layer))](CUstream_st* stream) {
             return backward ? layer->Backward(0, stream) : layer->Forward(0, stream);
           };
         }});
  }
  return cases;
}

// Sets of buffers: four times the cache together.
int Sets(const CudaDevice& device, std::int64_t bytes) {
  return static_cast<int>(std::clamp<std::int64_t>(4 * device.l2_cache / bytes + 1, 1, 32));
}

absl::Status Measure(const CudaDevice& device, const GpuBenchmarkFlags& flags, const DecoderCase& c,
                     double ceiling, const CudaStream& stream, Json& row) {
  const int sets = Sets(device, c.bytes);
  HW_ASSIGN_OR_RETURN(BenchmarkMemory memory, BenchmarkMemory::Create(stream));
  std::vector<Enqueue> work;
  for (int i = 0; i < sets; ++i) work.push_back(c.make(memory));
  HW_RETURN_IF_ERROR(memory.status());
  HW_ASSIGN_OR_RETURN(
      const std::vector<GpuTime> times,
      TimeInTurns({{c.kernel, [&](int set, CUstream_st* s) { return work[set](s); }}},
                  {.sets = sets, .seconds = flags.quick ? 0.1 : 0.3, .least = 3}, stream));
  row.update(ToJson(times[0]));
  row["sets"] = sets;
  row["bytes_per_second"] = static_cast<double>(c.bytes) / times[0].median;
  row["share_of_copy"] = static_cast<double>(c.bytes) / times[0].median / ceiling;
  if (c.flops > 0) row["flops_per_second"] = c.flops / times[0].median;
  return absl::OkStatus();
}

void PrintRow(const Json& row) {
  absl::PrintF("%-14s %-8s %-26s | ", row["kernel"].get<std::string>(),
               row["pass"].get<std::string>(), row["size"].get<std::string>());
  if (row.contains("skipped")) {
    absl::PrintF("skipped: %s\n", row["skipped"].get<std::string>());
  } else {
    absl::PrintF("%10.2f %6.2f %7.2f %8s %8d\n", row["median_us"].get<double>(),
                 row["bytes_per_second"].get<double>() * 1e-12, row["share_of_copy"].get<double>(),
                 row.contains("flops_per_second")
                     ? absl::StrFormat("%.2f", row["flops_per_second"].get<double>() * 1e-12)
                     : "",
                 row["launches"].get<int>());
  }
  std::fflush(stdout);
}

absl::Status Run(const GpuBenchmarkFlags& flags, const CudaDevice& device) {
  const auto start = std::chrono::steady_clock::now();
  HW_ASSIGN_OR_RETURN(const CudaStream stream, CudaStream::Create());
  Json json = {{"benchmark", "decoder_kernels"}, {"device", ToJson(device)}};
  HW_ASSIGN_OR_RETURN(const double ceiling, MeasureCopy(flags, stream, json["copy"]));
  absl::PrintF("%s, %d multiprocessors, %d MiB of L2; copy %.2f TB/s\n", device.name,
               device.multiprocessors, device.l2_cache >> 20, ceiling * 1e-12);
  absl::PrintF("%-14s %-8s %-26s | %10s %6s %7s %8s %8s\n", "kernel", "pass", "size", "us", "TB/s",
               "of copy", "TFLOP/s", "launches");
  json["cases"] = Json::array();
  std::vector<std::int64_t> sizes = {4096, 8192};
  if (flags.quick) sizes = {4096};
  if (flags.tiny) sizes = {33};
  for (const std::int64_t tokens : sizes) {
    std::vector<DecoderCase> cases;
    const auto add = [&](std::vector<DecoderCase> more) {
      for (DecoderCase& c : more) cases.push_back(std::move(c));
    };
    if (tokens == sizes.front()) add(OptimizerCases(flags.tiny));
    add(PrepareQkvCases(tokens));
    add(DecoderCases(flags.tiny ? kTiny : kMuseSpark, tokens));
    for (const DecoderCase& c : cases) {
      Json row = {{"kernel", c.kernel},
                  {"pass", c.pass},
                  {"size", c.size},
                  {"tokens", tokens},
                  {"bytes", c.bytes}};
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
      if (elapsed.count() > flags.seconds) {
        row["skipped"] = "out of time";
      } else if (absl::Status status = Measure(device, flags, c, ceiling, stream, row);
                 absl::IsResourceExhausted(status)) {
        row["skipped"] = "does not fit into the memory";
      } else {
        HW_RETURN_IF_ERROR(status);
      }
      PrintRow(row);
      json["cases"].push_back(std::move(row));
      HW_RETURN_IF_ERROR(SaveJson(flags, json));  // what is measured is kept, whatever follows
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace headwise

int main(int argc, char** argv) {
  return headwise::GpuBenchmarkMain(argc, argv, "A decoder's kernels on a GPU, one by one.",
                                    headwise::Run);
}
