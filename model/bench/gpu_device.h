// MakeGpuBenchDevice: `muse bench --device cuda`.
#ifndef HEADWISE_MODEL_BENCH_GPU_DEVICE_H_
#define HEADWISE_MODEL_BENCH_GPU_DEVICE_H_

#include <cstdint>
#include <memory>

#include "core/cuda/gpu.h"
#include "kernels/launchers/launchers.h"
#include "model/bench/device.h"

namespace headwise {

// The GPU and launchers of its kernels, which must outlive the device. A training step and decoding
// are replayed from one graph each, as `muse train` and `muse generate` replay them: with what goes
// to the GPU before and comes back after. Kernels, copies and products run from graphs of as many
// calls as take about 2 ms. All by the steady clock, from an idle GPU to an idle GPU.
//
// Its copy is the GPU's own from device memory to device memory; its product, through the GPU's
// library, has `product_side` rows, columns and terms. Unfused QKV there is of the models that its
// CUDA kernels take (kernels/prepare_qkv/cuda_unfused.h).
std::unique_ptr<BenchDevice> MakeGpuBenchDevice(Gpu& gpu, const KernelLaunchers& launchers,
                                                std::int64_t product_side = 8192);

}  // namespace headwise

#endif  // HEADWISE_MODEL_BENCH_GPU_DEVICE_H_
