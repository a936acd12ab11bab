// For tests: the step of TestWeights whose matrices are copies in device memory, as far from
// alignment as the originals. The scratch starts as NaN.
//
//   HW_ASSIGN_OR_RETURN(GpuStep<float> step, GpuStep<float>::Create(hyper, weights));
//   HW_RETURN_IF_ERROR(cuda::MuonStep(step.plan(), step.launch(nullptr)));
//   HW_RETURN_IF_ERROR(step.Download(results));
#ifndef HEADWISE_KERNELS_MUON_STEP_GPU_STEP_H_
#define HEADWISE_KERNELS_MUON_STEP_GPU_STEP_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/status_macros.h"
#include "core/cuda/device_memory.h"
#include "kernels/common/testing/device_mirror.h"
#include "kernels/muon_step/cuda.h"
#include "kernels/muon_step/muon_step.h"
#include "kernels/muon_step/parity.h"

namespace headwise {

template <typename G>
class GpuStep {
 public:
  static absl::StatusOr<GpuStep> Create(const MuonHyperparameters& hyper,
                                        std::vector<TestWeight<G>> weights,
                                        MuonMode mode = MuonMode::kContract,
                                        MuonChainMemory chain = MuonChainMemory::kAuto) {
    GpuStep step;
    std::vector<MuonWeight<G>> on_device = ViewsOf(weights);
    for (MuonWeight<G>& w : on_device) {
      Mirrors m;
      HW_ASSIGN_OR_RETURN(m.weight, DeviceMirror::Of(w.weight));
      HW_ASSIGN_OR_RETURN(m.momentum, DeviceMirror::Of(w.momentum));
      HW_ASSIGN_OR_RETURN(m.gradient, DeviceMirror::Of(w.gradient));
      w.weight = m.weight.Translate(w.weight);
      w.momentum = m.momentum.Translate(w.momentum);
      w.gradient = m.gradient.Translate(w.gradient);
      step.mirrors_.push_back(std::move(m));
    }
    HW_ASSIGN_OR_RETURN(step.plan_, MuonStepPlan::Create<G>(hyper, on_device, mode, chain));
    HW_ASSIGN_OR_RETURN(step.table_, DeviceArray<std::byte>::Of(step.plan_->table()));
    HW_ASSIGN_OR_RETURN(step.scratch_, DeviceMemory::Allocate(step.plan_->scratch_bytes()));
    HW_RETURN_IF_ERROR(FillDevice(step.scratch_.data(), 0xff, step.scratch_.size()));
    HW_ASSIGN_OR_RETURN(step.scalars_, DeviceArray<MuonStepScalars>::Allocate(1));
    HW_RETURN_IF_ERROR(step.SetScalars(
        {.learning_rate = hyper.learning_rate, .gradient_scale = hyper.gradient_scale}));
    return step;
  }

  const MuonStepPlan& plan() const { return *plan_; }
  MuonStepLaunch launch(CUstream_st* stream) const {
    return {.stream = stream,
            .table = table_.data(),
            .scalars = scalars_.data(),
            .scratch = scratch_.data()};
  }

  absl::Status SetScalars(const MuonStepScalars& scalars) const {
    return CopyToDevice(scalars_.data(), &scalars, sizeof(scalars));
  }
  // Weights of the shapes that the step was made with.
  absl::Status Upload(const std::vector<TestWeight<G>>& weights) const {
    for (std::size_t i = 0; i < weights.size(); ++i) {
      HW_RETURN_IF_ERROR(mirrors_[i].weight.Upload(weights[i].weight.view().data));
      HW_RETURN_IF_ERROR(mirrors_[i].momentum.Upload(weights[i].momentum.view().data));
      HW_RETURN_IF_ERROR(mirrors_[i].gradient.Upload(weights[i].gradient.view().data));
    }
    return absl::OkStatus();
  }
  // Gaps between rows as well.
  absl::Status Download(std::vector<TestWeight<G>>& weights) const {
    for (std::size_t i = 0; i < weights.size(); ++i) {
      HW_RETURN_IF_ERROR(mirrors_[i].weight.Download(weights[i].weight.span().data));
      HW_RETURN_IF_ERROR(mirrors_[i].momentum.Download(weights[i].momentum.span().data));
      HW_RETURN_IF_ERROR(mirrors_[i].gradient.Download(weights[i].gradient.span().data));
    }
    return absl::OkStatus();
  }

 private:
  struct Mirrors {
    DeviceMirror weight, momentum, gradient;
  };
  GpuStep() = default;

  std::vector<Mirrors> mirrors_;
  std::optional<MuonStepPlan> plan_;
  DeviceArray<std::byte> table_;
  DeviceMemory scratch_;
  DeviceArray<MuonStepScalars> scalars_;
};

}  // namespace headwise

#endif  // HEADWISE_KERNELS_MUON_STEP_GPU_STEP_H_
