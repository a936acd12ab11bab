// The ceiling of a benchmark's run: how fast the GPU copies.
#ifndef HEADWISE_KERNELS_PREPARE_QKV_GPU_COPY_H_
#define HEADWISE_KERNELS_PREPARE_QKV_GPU_COPY_H_

#include "absl/status/statusor.h"
#include "core/cuda/stream.h"
#include "kernels/common/testing/gpu_benchmark_main.h"
#include "nlohmann/json.hpp"

namespace headwise {

// Bytes per second, read and written, of the faster of CUDA's copy and a plain kernel, on 1 GiB
// (64 tokens' bytes with flags.tiny). `json` gets both: {"cuda_bytes_per_second",
// "kernel_bytes_per_second", "bytes", "bytes_per_second"}.
absl::StatusOr<double> MeasureCopy(const GpuBenchmarkFlags& flags, const CudaStream& stream,
                                   nlohmann::ordered_json& json);

}  // namespace headwise

#endif  // HEADWISE_KERNELS_PREPARE_QKV_GPU_COPY_H_
