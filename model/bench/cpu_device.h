// MakeCpuBenchDevice: `muse bench --device cpu`.
#ifndef HEADWISE_MODEL_BENCH_CPU_DEVICE_H_
#define HEADWISE_MODEL_BENCH_CPU_DEVICE_H_

#include <memory>

#include "model/bench/device.h"

namespace headwise {

// The CPU's kernels on a pool of `threads` threads (>= 1), by the steady clock. Its copy is memcpy;
// its product has 1024 rows, columns and terms, through oneDNN.
std::unique_ptr<BenchDevice> MakeCpuBenchDevice(int threads);

}  // namespace headwise

#endif  // HEADWISE_MODEL_BENCH_CPU_DEVICE_H_
