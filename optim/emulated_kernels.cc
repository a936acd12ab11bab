#include "optim/emulated_kernels.h"

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/dtype/dtype.h"
#include "core/tensor/tensor.h"
#include "kernels/adamw/adamw.h"
#include "kernels/adamw/cuda.h"
#include "kernels/common/thread_pool.h"
#include "kernels/emulation/emulation.h"
#include "kernels/muon_step/cuda.h"
#include "kernels/muon_step/muon_step.h"

namespace headwise {
namespace {

// `bytes` bytes at a multiple of 16, which every allocation of a tensor is.
Tensor Bytes(std::int64_t bytes) {
  return Tensor::Empty({(bytes + 7) / 8}, DType::kI64, Device::kCpu);
}

template <MuonMode kMode>
absl::Status MuonStepEmulated(const MuonHyperparameters& hyper,
                              absl::Span<const MuonWeight<float>> weights, ThreadPool& pool) {
  HW_ASSIGN_OR_RETURN(const MuonStepPlan plan, MuonStepPlan::Create<float>(hyper, weights, kMode));
  if (plan.launches() == 0) return absl::OkStatus();
  const MuonStepScalars scalars = {.learning_rate = hyper.learning_rate,
                                   .gradient_scale = hyper.gradient_scale};
  const Tensor scratch = Bytes(plan.scratch_bytes());
  const emulation::Session session({.os_threads = pool.num_threads()});
  HW_RETURN_IF_ERROR(
      cuda_emulated::MuonStep(plan, {.table = plan.table().data(),
                                     .scalars = &scalars,
                                     .scratch = static_cast<std::byte*>(scratch.raw_data())}));
  return session.status();
}

void AdamWStepEmulated(const AdamWHyperparameters& hyper, std::int64_t step, double gradient_scale,
                       absl::Span<float> weight, absl::Span<float> m, absl::Span<float> v,
                       absl::Span<const float> gradient, ThreadPool& pool) {
  const AdamWFactors<float> factors = MakeAdamWFactors<float>(hyper, step, gradient_scale);
  const AdamWTensors tensors = {weight, m, v, gradient};
  const absl::StatusOr<AdamWPlan> plan = AdamWPlan::Create({&tensors, 1});
  HW_CHECK(plan.ok()) << plan.status();
  const emulation::Session session({.os_threads = pool.num_threads()});
  const absl::Status launched =
      cuda_emulated::AdamWStep(*plan, {.table = plan->table().data(), .factors = &factors});
  HW_CHECK(launched.ok()) << launched;
  HW_CHECK(session.status().ok()) << session.status();
}

}  // namespace

OptimizerKernels EmulatedOptimizerKernels() {
  return {.muon_step = &MuonStepEmulated<MuonMode::kContract>,
          .tensor_core_muon_step = &MuonStepEmulated<MuonMode::kTensorCore>,
          .adamw_step = &AdamWStepEmulated};
}

}  // namespace headwise
