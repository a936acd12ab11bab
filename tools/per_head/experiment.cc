#include "tools/per_head/experiment.h"

#include <chrono>
#include <cmath>
#include <cstring>
#include <utility>

#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "model/train/run_config.h"
#include "model/train/token_windows.h"

namespace headwise {
namespace {

double FrobeniusNorm(const Tensor& a, const Tensor& b, std::int64_t first_row, std::int64_t rows) {
  const RowSpan<const float> x = a.Rows<const float>(), y = b.Rows<const float>();
  double sum = 0;
  for (std::int64_t r = first_row; r < first_row + rows; ++r) {
    for (std::int64_t c = 0; c < x.width; ++c) {
      const double d = static_cast<double>(x.row(r)[c]) - static_cast<double>(y.row(r)[c]);
      sum += d * d;
    }
  }
  return std::sqrt(sum);
}

}  // namespace

absl::StatusOr<PerHeadExperiment> PerHeadExperiment::Create(const RunConfig& config,
                                                            ThreadPool& pool) {
  HW_ASSIGN_OR_RETURN(TrainingData data,
                      TrainingData::Load(config.data(), config.model().vocab_size(),
                                         config.training().sequence_length()));
  PerHeadExperiment experiment(config, std::move(data));
  for (const MuonGranularity granularity : {HEAD, WHOLE_MATRIX}) {
    ExperimentArm arm;
    arm.name = granularity == HEAD ? "per-head" : "whole-matrix";
    HW_ASSIGN_OR_RETURN(arm.decoder,
                        Decoder::Create(config.model(), DecoderOptionsOf(config.training())));
    OptimizerConfig optimizer = config.optimizer();
    optimizer.mutable_muon()->set_granularity(granularity);
    HW_ASSIGN_OR_RETURN(arm.optimizer, Optimizer::Create(optimizer, arm.decoder->parameters()));
    arm.decoder->Initialize(config.training().seed());
    arm.decoder->WeightsChanged(pool);
    experiment.arms_.push_back(std::move(arm));
  }
  for (const Parameter* p : experiment.per_head().decoder->parameters()) {
    if (p->role == ParameterRole::kPackedQkv) experiment.initial_.push_back(p->value.Clone());
  }
  return experiment;
}

void PerHeadExperiment::Step(std::int64_t step, ThreadPool& pool) {
  const std::int64_t sequences = config_.training().batch_size();
  const TokenBatch batch =
      data_.TrainingBatch(config_.training().seed(), step * sequences, sequences);
  const double loss_scale = 1.0 / static_cast<double>(NumTargets(batch));
  for (int turn = 0; turn < 2; ++turn) {
    ExperimentArm& arm = arms_[(turn + step) % 2];
    const auto start = std::chrono::steady_clock::now();
    const double loss = arm.decoder->ForwardBackward(batch, loss_scale, pool);
    arm.optimizer->Step(step, config_.training().steps(), pool);
    arm.decoder->WeightsChanged(pool);
    arm.seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    arm.losses.push_back(loss * loss_scale);
  }
}

std::vector<UpdateComparison> PerHeadExperiment::CompareFirstUpdate(
    std::vector<std::string>* differing) {
  std::vector<UpdateComparison> comparisons;
  const std::vector<Parameter*>& a = per_head().decoder->parameters();
  const std::vector<Parameter*>& b = whole_matrix().decoder->parameters();
  HW_CHECK_EQ(per_head().losses.size(), 1u) << "steps before the comparison";
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(a[i]->value.raw_data(), b[i]->value.raw_data(),
                    static_cast<std::size_t>(a[i]->value.bytes())) != 0) {
      differing->push_back(a[i]->name);
    }
    if (a[i]->role != ParameterRole::kPackedQkv) continue;
    const Tensor& initial = initial_[comparisons.size()];
    UpdateComparison comparison{.parameter = a[i]->name};
    for (const HeadBlock& block : a[i]->head_blocks->blocks()) {
      const IndexRange rows = block.ranges[0];
      comparison.per_head_norms.push_back(
          FrobeniusNorm(a[i]->value, initial, rows.begin, rows.size));
      comparison.whole_matrix_norms.push_back(
          FrobeniusNorm(b[i]->value, initial, rows.begin, rows.size));
    }
    const std::int64_t all = initial.dim(0);
    comparison.relative_difference = FrobeniusNorm(a[i]->value, b[i]->value, 0, all) /
                                     FrobeniusNorm(b[i]->value, initial, 0, all);
    comparisons.push_back(std::move(comparison));
  }
  return comparisons;
}

}  // namespace headwise
