// MeasurePeakFlops: the yardstick of the MFU: the rate of one large matrix product on this machine,
// now.
#ifndef HEADWISE_MODEL_REPORT_PEAK_FLOPS_H_
#define HEADWISE_MODEL_REPORT_PEAK_FLOPS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "core/cuda/gpu.h"
#include "core/dtype/dtype.h"
#include "kernels/common/thread_pool.h"

namespace headwise {

// FLOP/s of a 1024 x 1024 x 1024 product y = x W^T through oneDNN in `dtype` (kF32 or kBF16) on the
// pool's threads: the best of several, about a quarter of a second in all.
double MeasurePeakFlops(DType dtype, ThreadPool& pool);

// The same of a size x size x size product on a GPU, whose memory for it is given back: the best of
// several rounds of four. Errors are the gpu's.
absl::StatusOr<double> MeasurePeakFlops(DType dtype, Gpu& gpu, std::int64_t size = 4096);

}  // namespace headwise

#endif  // HEADWISE_MODEL_REPORT_PEAK_FLOPS_H_
