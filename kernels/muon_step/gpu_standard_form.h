// For gpu_benchmark: Newton-Schulz by the standard form on blocks of one shape, in bf16 through batched
// matrix products, as optimizers with bf16 Newton-Schulz compute it:
//
//   A = X X^T;  B = b A + c A A;  X <- a X + B X         five quintic steps
//
// No momentum, no normalisation, no write: less than a step of Muon.
#ifndef HEADWISE_KERNELS_MUON_STEP_GPU_STANDARD_FORM_H_
#define HEADWISE_KERNELS_MUON_STEP_GPU_STANDARD_FORM_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/cuda/device_memory.h"
#include "core/dtype/dtype.h"
#include "kernels/muon_step/batched_products.h"

namespace headwise {

class GpuStandardForm {
 public:
  // x: `blocks` of [d, n], row-major, copied to the device. kNotFound if there is no cuBLAS.
  static absl::StatusOr<GpuStandardForm> Create(std::int64_t blocks, std::int64_t d, std::int64_t n,
                                                absl::Span<const BFloat16> x);

  // Overwrites x, twice: the next one starts where the fourth step left it. Can be captured.
  absl::Status Enqueue(CUstream_st* stream) const;
  // Of the last Enqueue: device memory, as x.
  const BFloat16* result() const { return next_.data(); }

 private:
  GpuStandardForm() = default;

  std::int64_t blocks_ = 0, d_ = 0, n_ = 0;
  std::unique_ptr<BatchedProducts> products_;
  DeviceArray<BFloat16> x_, next_, a_, b_;
};

}  // namespace headwise

#endif  // HEADWISE_KERNELS_MUON_STEP_GPU_STANDARD_FORM_H_
