#include "kernels/prepare_qkv/gpu_copy.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "kernels/common/testing/gpu_timing.h"
#include "kernels/prepare_qkv/gpu_layer.h"

namespace headwise {

absl::StatusOr<double> MeasureCopy(const GpuBenchmarkFlags& flags, const CudaStream& stream,
                                   nlohmann::ordered_json& json) {
  const std::int64_t tokens = flags.tiny ? 64 : 26214;  // packed: 512 MiB, read and written 1 GiB
  HW_ASSIGN_OR_RETURN(const GpuLayer layer, GpuLayer::Create({.rope = false, .tokens = tokens}));
  HW_ASSIGN_OR_RETURN(
      const std::vector<GpuTime> times,
      TimeInTurns({{"cuda", [&](int, CUstream_st* s) { return layer.CudaCopy(0, s); }},
                   {"kernel", [&](int, CUstream_st* s) { return layer.KernelCopy(0, s); }}},
                  {.seconds = flags.quick ? 0.2 : 1.0}, stream));
  double best = 0;
  for (const GpuTime& time : times) {
    const double rate = static_cast<double>(layer.CopiedBytes()) / time.median;
    json[absl::StrCat(time.name, "_bytes_per_second")] = rate;
    best = std::max(best, rate);
  }
  json["bytes"] = layer.CopiedBytes();
  json["bytes_per_second"] = best;
  return best;
}

}  // namespace headwise
