// The per-head Muon experiment: one model, one text, one initialisation, trained twice, with the
// packed QKV weights orthogonalised per head and as whole matrices, in alternating steps of one
// process.
#ifndef HEADWISE_TOOLS_PER_HEAD_EXPERIMENT_H_
#define HEADWISE_TOOLS_PER_HEAD_EXPERIMENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/proto/config.pb.h"
#include "kernels/common/thread_pool.h"
#include "model/decoder.h"
#include "model/train/training_data.h"
#include "optim/optimizer.h"

namespace headwise {

// One of the two trainings.
struct ExperimentArm {
  std::string name;  // "per-head", "whole-matrix"
  std::unique_ptr<Decoder> decoder;
  std::unique_ptr<Optimizer> optimizer;
  std::vector<double> losses;   // one a step, nats per token
  std::vector<double> seconds;  // one a step
};

// What one step does to one wqkv under the two granularities.
struct UpdateComparison {
  std::string parameter;
  std::vector<double>
      per_head_norms;  // Frobenius norm of each head's update, learning rate and scale included
  std::vector<double> whole_matrix_norms = {};  // of the same rows
  double relative_difference = 0;               // |per-head - whole| / |whole| over the weight
};

class PerHeadExperiment {
 public:
  // `config` is resolved and valid; its granularity is replaced by HEAD and WHOLE_MATRIX in the two
  // arms.
  static absl::StatusOr<PerHeadExperiment> Create(const RunConfig& config, ThreadPool& pool);

  ExperimentArm& per_head() { return arms_[0]; }
  ExperimentArm& whole_matrix() { return arms_[1]; }
  const RunConfig& config() const { return config_; }

  // One optimizer step of both arms on the same batch; who goes first alternates. Steps count from
  // 0.
  void Step(std::int64_t step, ThreadPool& pool);

  // After exactly one Step: compares every parameter of the two arms. `differing` gets the names of
  // those whose bits differ.
  std::vector<UpdateComparison> CompareFirstUpdate(std::vector<std::string>* differing);

 private:
  PerHeadExperiment(RunConfig config, TrainingData data)
      : config_(std::move(config)), data_(std::move(data)) {}

  RunConfig config_;
  TrainingData data_;
  std::vector<ExperimentArm> arms_;
  std::vector<Tensor> initial_;  // the wqkv weights before the first step, in parameter order
};

}  // namespace headwise

#endif  // HEADWISE_TOOLS_PER_HEAD_EXPERIMENT_H_
