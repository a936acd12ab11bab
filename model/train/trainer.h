// TrainingRun: a decoder, its optimizer and its data, trained step by step into a run directory.
//
//   RUN/metrics.jsonl      one object a step
//   RUN/run.textproto      the resolved configuration
//   RUN/loss.svg           the curves so far
//   RUN/step-N/            checkpoints (checkpoint.h)
//   RUN/.lock              held by the process that trains
//
// A run is a function of its configuration and its text: the number of threads, interruptions and
// restarts change no bit of the weights. On several ranks (training_rank.h) every rank has a
// TrainingRun of its share; checkpoints are those of one rank, and data parallelism changes no bit
// either. On a GPU (gpu_training.h) products have cuBLAS's bits and everything else the CPU's, but
// for Muon where its compute_mode is TENSOR_CORE; checkpoints are the same, so that a run can go on
// elsewhere.
#ifndef HEADWISE_MODEL_TRAIN_TRAINER_H_
#define HEADWISE_MODEL_TRAIN_TRAINER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/cuda/gpu.h"
#include "core/io/file_system.h"
#include "core/proto/config.pb.h"
#include "kernels/common/thread_pool.h"
#include "kernels/launchers/launchers.h"
#include "model/decoder.h"
#include "model/gradient_accumulator.h"
#include "model/hf/model_source.h"
#include "model/report/metrics_log.h"
#include "model/report/progress.h"
#include "model/train/checkpoint.h"
#include "model/train/gpu_training.h"
#include "model/train/stop_signal.h"
#include "model/train/training_data.h"
#include "model/train/training_rank.h"
#include "optim/optimizer.h"

namespace headwise {

// How a run went.
struct TrainingSummary {
  std::int64_t first_step = 0;            // steps done before this process
  std::int64_t steps = 0;                 // steps done now
  bool interrupted = false;               // stopped by a signal before the last step
  std::int64_t skipped_steps = 0;         // of this process
  double first_loss = 0, last_loss = 0;   // of this process, nats per token
  std::optional<double> validation_loss;  // the last one, nats per token
  double seconds = 0;                     // in training steps
  std::int64_t tokens = 0;                // trained on by this process
  std::string checkpoint;                 // the last one's directory
  std::optional<TrainingGraphs> graphs;   // on a GPU
};

// Where a run computes.
struct TrainingDevice {
  Kernels kernels = Kernels::kCpu;  // on the CPU; shows in no bit
  // Not null: the GPU, and the launchers of its kernels. Not owned, must outlive the run.
  Gpu* gpu = nullptr;
  const KernelLaunchers* launchers = nullptr;
};

class TrainingRun {
 public:
  // Makes or reopens a run. `config` is resolved and valid; with `resume` the weights, optimizer
  // state and position come from it, otherwise weights are drawn from the seed. Creates
  // `directory`. `rank`: this one of several, not owned; null for one. kFailedPrecondition if
  // another process trains there; kUnimplemented for ranks on GPUs.
  static absl::StatusOr<std::unique_ptr<TrainingRun>> Create(
      const RunConfig& config, const std::string& directory,
      const std::optional<FoundCheckpoint>& resume, ThreadPool& pool,
      const TrainingDevice& device = {}, TrainingRank* rank = nullptr);
  ~TrainingRun();

  // Replaces the weights; the optimizer and the step stay at their start.
  absl::Status InitializeFrom(const ModelSource& source, ThreadPool& pool);

  // Trains to config.training.steps, or until `stop` (may be null; on the first rank), saving and validating as
  // configured, and always at the end. `progress` may be null. kAborted if gradients stay
  // non-finite; the last checkpoint is then left as it was.
  absl::StatusOr<TrainingSummary> Run(Progress* progress, const StopSignal* stop, ThreadPool& pool);

  // Mean loss over config.training.eval_batches validation batches, or the whole split if it has
  // fewer, nats per token.
  absl::StatusOr<double> Validate(ThreadPool& pool);

  Decoder& decoder() { return *decoder_; }
  const TrainingData& data() const { return data_; }
  std::int64_t step() const { return step_; }
  // For tests: watches every durable write of a save.
  void set_file_hook(FileHook hook) { hook_ = std::move(hook); }

 private:
  TrainingRun(const RunConfig& config, std::string directory, TrainingData data);

  // What the optimizer needs, on the CPU or on the GPU of `device`.
  absl::Status MakeOptimizer(const TrainingDevice& device);
  // Whether this process reads and writes the run directory.
  bool first() const { return rank_ == nullptr || rank_->first(); }
  absl::Status Agree(const absl::Status& status) const {
    return rank_ == nullptr ? status : rank_->Agree(status);
  }
  absl::Status Open(const std::optional<FoundCheckpoint>& resume);
  absl::Status Resume(const FoundCheckpoint& resume, ThreadPool& pool);
  // Forward and backward of the step's micro-batches, gradients summed: the losses of all.
  absl::StatusOr<std::vector<double>> Accumulate(const std::vector<TokenBatch>& batches,
                                                 double loss_scale, ThreadPool& pool);
  // That, and the optimizer's update.
  absl::StatusOr<StepOutcome> StepOver(const std::vector<TokenBatch>& batches, double loss_scale,
                                       ThreadPool& pool);
  // The losses of validation batches, each over its tokens.
  absl::StatusOr<std::vector<double>> Losses(const std::vector<TokenBatch>& batches,
                                             ThreadPool& pool);
  absl::Status Log(const StepMetrics& metrics);
  // One optimizer step; step_ counts it.
  absl::StatusOr<StepMetrics> Step(ThreadPool& pool);
  // Writes step-<step_>/ and loss.svg.
  absl::Status Save();
  absl::Status WriteLossPlot();

  RunConfig config_;
  std::string directory_;
  TrainingData data_;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<GpuTraining> on_gpu_;  // null: on the CPU, with the next two
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<GradientAccumulator> accumulator_;
  TrainingRank* rank_ = nullptr;  // not owned; null: one rank
  std::optional<MetricsLog> metrics_;
  int lock_ = -1;          // file descriptor of RUN/.lock
  std::int64_t step_ = 0;  // optimizer steps done
  FileHook hook_;
};

}  // namespace headwise

#endif  // HEADWISE_MODEL_TRAIN_TRAINER_H_
