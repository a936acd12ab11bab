// MuonWork: a Muon step of a whole model on random numbers, for any device.
#ifndef HEADWISE_MODEL_BENCH_MUON_WORK_H_
#define HEADWISE_MODEL_BENCH_MUON_WORK_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/proto/config.pb.h"
#include "core/tensor/tensor.h"
#include "kernels/muon_step/muon_step.h"
#include "model/bench/device.h"
#include "optim/groups.h"
#include "optim/settings.h"

namespace headwise {

struct MuonWork {
  MuonWork(std::vector<GroupedParameter> groups, OptimizerSettings settings)
      : groups(std::move(groups)), settings(std::move(settings)) {}

  std::vector<GroupedParameter> groups;  // holds the blocks
  OptimizerSettings settings;            // holds the coefficients
  std::vector<Tensor> tensors;           // of the device
  std::vector<MuonWeight<float>> weights;
};

// Every parameter of the model that Muon steps, in blocks as configured.
absl::StatusOr<std::shared_ptr<MuonWork>> MakeMuonWork(const RunConfig& config,
                                                       BenchDevice& device);

}  // namespace headwise

#endif  // HEADWISE_MODEL_BENCH_MUON_WORK_H_
