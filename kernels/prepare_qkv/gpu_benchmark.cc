// prepare_qkv on a GPU, the glue alone: fused against unfused and against the GPU's own copies, all
// in turns, by CUDA events over graph replays (gpu_timing.h), at the sizes of training, prefill and
// decode. Layers with RoPE and without.
//
//   gpu_benchmark [--quick] [--json FILE] [--dump DIRECTORY]
//
// Prints a table:
//
//   us        the median of one pass, microseconds
//   TB/s      the bytes a pass must move / that time: packed, outputs and gradients once each
//   of copy   that rate / the rate of the fastest copy of 1 GiB in this run; the ceiling
//   launches  kernels of one pass
//   copy us   a copy of as many bytes as the packed row has, read and written, by the faster of
//             CUDA's copy and a plain kernel, at this size
//   x         the unfused kernels' time / the fused ones'
//
// --json writes all of it. --dump writes inputs and outputs of one size for
// tools/gpu_check/torch_compare.py: DIRECTORY/LAYER.ROUNDING.safetensors, LAYER rope or nope, ROUNDING
// after_weight or only_at_end. Exits 1 on an error, 3 if there is no GPU.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "core/cuda/device.h"
#include "core/cuda/stream.h"
#include "core/io/safetensors_writer.h"
#include "kernels/common/testing/gpu_benchmark_main.h"
#include "kernels/common/testing/gpu_timing.h"
#include "kernels/prepare_qkv/gpu_copy.h"
#include "kernels/prepare_qkv/gpu_layer.h"
#include "nlohmann/json.hpp"

namespace headwise {
namespace {

using Json = nlohmann::ordered_json;

using Flags = GpuBenchmarkFlags;

// One row of the table, but for the layer.
struct Pass {
  const char* use;   // "train", "prefill", "decode"
  const char* name;  // "forward", "backward"
  std::int64_t tokens;
  bool backward() const { return name[0] == 'b'; }
};

std::vector<Pass> Passes(const Flags& flags) {
  if (flags.tiny) return {{"train", "forward", 65}, {"train", "backward", 65}};
  if (flags.quick) {
    return {{"train", "forward", 4096},
            {"train", "backward", 4096},
            {"prefill", "forward", 2048},
            {"decode", "forward", 1},
            {"decode", "forward", 64}};
  }
  std::vector<Pass> passes;
  for (const char* name : {"forward", "backward"}) {
    for (const std::int64_t tokens : {2048, 4096, 16384}) passes.push_back({"train", name, tokens});
  }
  for (const std::int64_t tokens : {2048, 16384}) passes.push_back({"prefill", "forward", tokens});
  for (const std::int64_t tokens : {1, 8, 64, 256}) passes.push_back({"decode", "forward", tokens});
  return passes;
}

// Sets of buffers: four times the cache, at most what fits; small sizes stay in the cache, as they
// do behind the projection that makes them.
int Sets(const CudaDevice& device, std::int64_t tokens) {
  const std::int64_t touched = tokens * GpuLayer::kForwardBytesPerToken;
  const std::int64_t fit = device.free_memory * 8 / 10 / GpuLayer::BytesOfSet(tokens);
  return static_cast<int>(std::min(
      {std::max<std::int64_t>(2, 4 * device.l2_cache / touched + 1), fit, std::int64_t{32}}));
}

absl::StatusOr<Json> Measure(const CudaDevice& device, const Flags& flags, bool rope,
                             const Pass& pass, double ceiling, const CudaStream& stream) {
  const int sets = Sets(device, pass.tokens);
  Json json = {{"layer", rope ? "rope" : "nope"},
               {"use", pass.use},
               {"pass", pass.name},
               {"tokens", pass.tokens},
               {"sets", sets}};
  if (sets < 1) {
    json["skipped"] = absl::StrCat("needs ", GpuLayer::BytesOfSet(pass.tokens) >> 20, " MiB free");
    return json;
  }
  const std::int64_t first = std::string(pass.use) == "decode" ? 30000 : 0;
  HW_ASSIGN_OR_RETURN(
      const GpuLayer layer,
      GpuLayer::Create(
          {.rope = rope, .tokens = pass.tokens, .first_position = first, .sets = sets}));
  for (int i = 0; i < sets; ++i) HW_RETURN_IF_ERROR(layer.ForwardUnfused(i, stream.get()));
  const auto contender = [&](const char* name, auto method) {
    return GpuContender{
        name, [&layer, method](int set, CUstream_st* s) { return (layer.*method)(set, s); }};
  };
  HW_ASSIGN_OR_RETURN(
      const std::vector<GpuTime> times,
      TimeInTurns({contender("fused", pass.backward() ? &GpuLayer::Backward : &GpuLayer::Forward),
                   contender("unfused", pass.backward() ? &GpuLayer::BackwardUnfused
                                                        : &GpuLayer::ForwardUnfused),
                   contender("cuda_copy", &GpuLayer::CudaCopy),
                   contender("kernel_copy", &GpuLayer::KernelCopy)},
                  {.sets = sets, .seconds = flags.quick ? 0.2 : 0.8}, stream));
  const std::int64_t per_token =
      pass.backward() ? GpuLayer::kBackwardBytesPerToken : GpuLayer::kForwardBytesPerToken;
  const std::int64_t unfused_per_token = pass.backward()
                                             ? GpuLayer::UnfusedBackwardBytesPerToken(rope)
                                             : GpuLayer::UnfusedForwardBytesPerToken(rope);
  const double rate = static_cast<double>(pass.tokens * per_token) / times[0].median;
  json["bytes"] = pass.tokens * per_token;
  json["bytes_per_second"] = rate;
  json["share_of_copy"] = rate / ceiling;
  json["fused"] = ToJson(times[0]);
  json["unfused"] = ToJson(times[1]);
  json["unfused"]["bytes"] = pass.tokens * unfused_per_token;
  json["speedup"] = times[1].median / times[0].median;
  json["copy_us"] = std::min(times[2].median, times[3].median) * 1e6;
  json["copy_bytes"] = layer.CopiedBytes();
  return json;
}

void PrintHeader() {
  absl::PrintF("%-5s %-8s %-8s %6s | %9s %6s %7s %8s | %8s | %9s %8s %6s\n", "layer", "use", "pass",
               "tokens", "us", "TB/s", "of copy", "launches", "copy us", "unfused", "launches",
               "x");
}

void PrintRow(const Json& row) {
  absl::PrintF("%-5s %-8s %-8s %6d | ", row["layer"].get<std::string>(),
               row["use"].get<std::string>(), row["pass"].get<std::string>(),
               row["tokens"].get<std::int64_t>());
  if (row.contains("skipped")) {
    absl::PrintF("skipped: %s\n", row["skipped"].get<std::string>());
  } else {
    absl::PrintF("%9.2f %6.2f %7.2f %8d | %8.2f | %9.2f %8d %6.2f\n",
                 row["fused"]["median_us"].get<double>(),
                 row["bytes_per_second"].get<double>() * 1e-12, row["share_of_copy"].get<double>(),
                 row["fused"]["launches"].get<int>(), row["copy_us"].get<double>(),
                 row["unfused"]["median_us"].get<double>(), row["unfused"]["launches"].get<int>(),
                 row["speedup"].get<double>());
  }
  std::fflush(stdout);
}

absl::Status Dump(const std::string& directory, std::int64_t tokens, const CudaStream& stream) {
  for (const char* name : {"rope", "nope"}) {
    for (const Rounding rounding : {Rounding::kAfterWeight, Rounding::kOnlyAtEnd}) {
      HW_ASSIGN_OR_RETURN(
          const GpuLayer layer,
          GpuLayer::Create({.rope = name[0] == 'r', .rounding = rounding, .tokens = tokens}));
      HW_RETURN_IF_ERROR(layer.Forward(0, stream.get()));
      HW_RETURN_IF_ERROR(layer.Backward(0, stream.get()));
      HW_RETURN_IF_ERROR(stream.Synchronize());
      HW_ASSIGN_OR_RETURN(const auto tensors, layer.Download());
      HW_RETURN_IF_ERROR(WriteSafetensors(
          absl::StrCat(directory, "/", name,
                       rounding == Rounding::kAfterWeight ? ".after_weight" : ".only_at_end",
                       ".safetensors"),
          tensors));
    }
  }
  return absl::OkStatus();
}

absl::Status Run(const Flags& flags, const CudaDevice& device) {
  HW_ASSIGN_OR_RETURN(const CudaStream stream, CudaStream::Create());
  if (!flags.dump.empty()) {
    HW_RETURN_IF_ERROR(Dump(flags.dump, flags.tiny ? 65 : 1024, stream));
  }
  Json json = {{"benchmark", "prepare_qkv"},
               {"device", ToJson(device)},
               {"geometry",
                {{"kv_heads", GpuLayer::kGroups},
                 {"query_heads", GpuLayer::kHeads},
                 {"head_dim", GpuLayer::kDim},
                 {"dtype", "bf16"}}}};
  HW_ASSIGN_OR_RETURN(const double ceiling, MeasureCopy(flags, stream, json["copy"]));
  absl::PrintF("%s, %d multiprocessors, %d MiB of L2; copy %.2f TB/s\n", device.name,
               device.multiprocessors, device.l2_cache >> 20, ceiling * 1e-12);
  PrintHeader();
  json["cases"] = Json::array();
  for (const bool rope : {true, false}) {
    for (const Pass& pass : Passes(flags)) {
      HW_ASSIGN_OR_RETURN(Json row, Measure(device, flags, rope, pass, ceiling, stream));
      PrintRow(row);
      json["cases"].push_back(std::move(row));
      // What is measured is kept, whatever follows.
      HW_RETURN_IF_ERROR(SaveJson(flags, json));
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace headwise

int main(int argc, char** argv) {
  return headwise::GpuBenchmarkMain(
      argc, argv, "prepare_qkv on a GPU: fused, unfused, and the GPU's copies.", headwise::Run);
}
