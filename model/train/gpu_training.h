// GpuTraining: the steps of a training run whose decoder is on a GPU. A whole optimizer step runs
// there without a word from the host: of every micro-batch the forward, the backward and the sum of
// gradients, then norm, guard and clipping, Muon, AdamW and balancing biases, and the low-precision
// copies of the weights. It is captured in one CUDA graph, and the loss of a validation batch in
// another.
//
//   HW_ASSIGN_OR_RETURN(auto gpu_training, GpuTraining::Create(config, *decoder, gpu, launchers));
//   HW_RETURN_IF_ERROR(gpu_training->LoadWeights([&](auto& whole) { return LoadWeights(found, whole); }));
//   for (...) {
//     HW_ASSIGN_OR_RETURN(const StepOutcome step, gpu_training->Step(micro_batches, loss_scale, i, steps, pool));
//     HW_ASSIGN_OR_RETURN(const double loss, gpu_training->Loss(validation_batch, pool));
//   }
//
// A step uploads its micro-batches and some 100 bytes of the optimizer's, launches, and reads back
// the losses and the report. The first steps are enqueued kernel by kernel, until one takes no
// memory that those before have not taken: two, in general. Graphs are made then, and have the
// addresses and the bits of what was enqueued; the number of targets, and so the loss scale, may be
// another in each step. A validation batch of another size, as the last one may be, is enqueued
// without a graph.
//
// Memory for segments (documents) grows to twice its size when a batch has more; the graph is made
// anew then. So there is one graph of each kind at a time.
#ifndef HEADWISE_MODEL_TRAIN_GPU_TRAINING_H_
#define HEADWISE_MODEL_TRAIN_GPU_TRAINING_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/cuda/gpu.h"
#include "core/proto/config.pb.h"
#include "kernels/common/thread_pool.h"
#include "kernels/launchers/launchers.h"
#include "model/decoder.h"
#include "model/gpu/batch.h"
#include "model/gradient_accumulator.h"
#include "model/token_batch.h"
#include "optim/gpu_optimizer.h"
#include "optim/named_tensor.h"
#include "optim/parameter.h"
#include "optim/step_report.h"

namespace headwise {

// How work of one kind was run.
struct GraphUse {
  std::int64_t captures = 0;  // graphs made; one is kept
  int kernels = 0;            // in the last one
  std::int64_t launches = 0;
  std::int64_t enqueued = 0;  // runs without a graph
};

struct TrainingGraphs {
  GraphUse step, loss;

  // "train step: 1 of 812 kernels, 498 of 500 runs; validation: none".
  std::string Describe() const;
};

// What a step says.
struct StepOutcome {
  std::vector<double> losses;  // of each micro-batch, summed over its tokens
  StepReport report;
};

// Work that is enqueued until it takes no memory from the device, then captured and launched.
class RepeatedWork {
 public:
  // `decoder` enqueues the work on `gpu`; both must outlive this.
  RepeatedWork(Gpu& gpu, const Decoder& decoder) : gpu_(gpu), decoder_(decoder) {}

  // Runs what `enqueue` enqueues, which must be the same each time.
  absl::Status Run(absl::FunctionRef<absl::Status()> enqueue);
  // The work's memory has moved: no graph of it.
  void Forget();
  const GraphUse& use() const { return use_; }

 private:
  Gpu& gpu_;
  const Decoder& decoder_;
  bool warm_ = false;  // the last run took no memory
  std::unique_ptr<GpuGraph> graph_;
  GraphUse use_;
};

class GpuTraining {
 public:
  // `config` is resolved and valid; `decoder` is on `gpu`, with `launchers`. All must outlive this.
  // kInvalidArgument as GpuOptimizer::Create(); errors of the gpu.
  static absl::StatusOr<std::unique_ptr<GpuTraining>> Create(const RunConfig& config,
                                                             Decoder& decoder, Gpu& gpu,
                                                             const KernelLaunchers& launchers);
  GpuTraining(const GpuTraining&) = delete;
  GpuTraining& operator=(const GpuTraining&) = delete;

  // Optimizer step `step`, from 0, of total_steps, over training.micro_batches batches of one size.
  // Waits for it. kInvalidArgument for a batch that the model cannot take; the weights are then not
  // to be used.
  absl::StatusOr<StepOutcome> Step(const std::vector<TokenBatch>& batches, double loss_scale,
                                   std::int64_t step, std::int64_t total_steps, ThreadPool& pool);
  // The sum of the batch's token losses. Waits.
  absl::StatusOr<double> Loss(const TokenBatch& batch, ThreadPool& pool);

  // The weights in host memory, in the decoder's order: names, roles, blocks and values.
  absl::StatusOr<std::vector<Parameter>> Weights() const;
  // The values that `load` writes into such parameters become the decoder's.
  absl::Status LoadWeights(absl::FunctionRef<absl::Status(const std::vector<Parameter*>&)> load,
                           ThreadPool& pool);
  // The optimizer's state, likewise.
  absl::StatusOr<std::vector<NamedTensor>> State() const { return optimizer_->State(); }
  absl::Status LoadState(absl::FunctionRef<absl::Status(const std::vector<NamedTensor>&)> load);

  TrainingGraphs graphs() const { return {step_.use(), loss_.use()}; }

 private:
  GpuTraining(const RunConfig& config, Decoder& decoder, std::unique_ptr<GpuOptimizer> optimizer,
              Gpu& gpu, const KernelLaunchers& launchers);

  // The parameters of Weights(), zeros.
  std::vector<Parameter> HostParameters() const;

  Decoder& decoder_;
  Gpu& gpu_;
  std::unique_ptr<GpuOptimizer> optimizer_;
  GradientAccumulator accumulator_;
  std::vector<GpuBatch> micro_batches_;
  std::vector<GpuBatch> validation_;  // none, or one
  RepeatedWork step_, loss_;          // graphs go before the memory that they use
};

}  // namespace headwise

#endif  // HEADWISE_MODEL_TRAIN_GPU_TRAINING_H_
