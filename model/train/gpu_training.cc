#include "model/train/gpu_training.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/tensor/tensor.h"
#include "model/gpu/tensors.h"

namespace headwise {
namespace {

std::string DescribeUse(const char* what, const GraphUse& use) {
  if (use.captures == 0) return absl::StrCat(what, ": none");
  return absl::StrCat(what, ": 1 of ", use.kernels, " kernels, ", use.launches, " of ",
                      use.launches + use.enqueued, " runs",
                      use.captures > 1 ? absl::StrCat(", made ", use.captures, " times") : "");
}

std::int64_t Segments(const TokenBatch& batch) {
  return static_cast<std::int64_t>(batch.segments.size());
}

// Makes `memory` fit each of `batches`, of one number of tokens. Whether it was made anew.
bool MakeRoom(Gpu& gpu, const std::vector<TokenBatch>& batches, std::vector<GpuBatch>& memory) {
  bool fits = memory.size() == batches.size();
  for (std::size_t i = 0; fits && i < batches.size(); ++i) fits = memory[i].Fits(batches[i]);
  if (fits) return false;
  GpuBatch::Size size = {.tokens = static_cast<std::int64_t>(batches.front().inputs.size())};
  for (const TokenBatch& batch : batches) {
    HW_CHECK_EQ(static_cast<std::int64_t>(batch.inputs.size()), size.tokens);
    size.segments = std::max(size.segments, Segments(batch));
  }
  // A segment has a token at least.
  if (!memory.empty()) {
    size.segments = std::max(size.segments, std::min(2 * memory[0].size().segments, size.tokens));
  }
  memory.clear();
  for (std::size_t i = 0; i < batches.size(); ++i) memory.emplace_back(gpu, size);
  return true;
}

std::vector<Parameter*> Pointers(std::vector<Parameter>& parameters) {
  std::vector<Parameter*> pointers;
  for (Parameter& parameter : parameters) pointers.push_back(&parameter);
  return pointers;
}

}  // namespace

std::string TrainingGraphs::Describe() const {
  return absl::StrCat(DescribeUse("train step", step), "; ", DescribeUse("validation", loss));
}

absl::Status RepeatedWork::Run(absl::FunctionRef<absl::Status()> enqueue) {
  if (graph_ == nullptr && warm_) {
    HW_ASSIGN_OR_RETURN(graph_, gpu_.Capture(enqueue));
    use_.kernels = graph_->kernels();
    ++use_.captures;
  }
  if (graph_ != nullptr) {
    ++use_.launches;
    return graph_->Launch();
  }
  const std::int64_t before = decoder_.activation_allocations();
  HW_RETURN_IF_ERROR(enqueue());
  warm_ = decoder_.activation_allocations() == before;
  ++use_.enqueued;
  return absl::OkStatus();
}

void RepeatedWork::Forget() {
  graph_ = nullptr;
  warm_ = false;
}

absl::StatusOr<std::unique_ptr<GpuTraining>> GpuTraining::Create(const RunConfig& config,
                                                                 Decoder& decoder, Gpu& gpu,
                                                                 const KernelLaunchers& launchers) {
  HW_ASSIGN_OR_RETURN(
      std::unique_ptr<GpuOptimizer> optimizer,
      GpuOptimizer::Create(config.optimizer(), decoder.parameters(), gpu, launchers));
  return std::unique_ptr<GpuTraining>(
      new GpuTraining(config, decoder, std::move(optimizer), gpu, launchers));
}

GpuTraining::GpuTraining(const RunConfig& config, Decoder& decoder,
                         std::unique_ptr<GpuOptimizer> optimizer, Gpu& gpu,
                         const KernelLaunchers& launchers)
    : decoder_(decoder),
      gpu_(gpu),
      optimizer_(std::move(optimizer)),
      accumulator_(decoder.parameters(), config.training().micro_batches(), gpu, launchers),
      step_(gpu, decoder),
      loss_(gpu, decoder) {}

absl::StatusOr<StepOutcome> GpuTraining::Step(const std::vector<TokenBatch>& batches,
                                              double loss_scale, std::int64_t step,
                                              std::int64_t total_steps, ThreadPool& pool) {
  if (MakeRoom(gpu_, batches, micro_batches_)) step_.Forget();
  for (std::size_t i = 0; i < batches.size(); ++i) {
    HW_RETURN_IF_ERROR(micro_batches_[i].Upload(batches[i], loss_scale));
  }
  HW_RETURN_IF_ERROR(optimizer_->Prepare(step, total_steps));
  HW_RETURN_IF_ERROR(step_.Run([&]() -> absl::Status {
    for (const GpuBatch& batch : micro_batches_) {
      decoder_.EnqueueForwardBackward(batch);
      HW_RETURN_IF_ERROR(accumulator_.Enqueue());
    }
    HW_RETURN_IF_ERROR(optimizer_->Enqueue());
    decoder_.WeightsChanged(pool);
    return absl::OkStatus();
  }));
  StepOutcome result;
  HW_ASSIGN_OR_RETURN(result.report, optimizer_->ReadReport());
  for (const GpuBatch& batch : micro_batches_) {
    HW_ASSIGN_OR_RETURN(const double loss, batch.ReadLoss());
    result.losses.push_back(loss);
  }
  return result;
}

absl::StatusOr<double> GpuTraining::Loss(const TokenBatch& batch, ThreadPool& pool) {
  // Graphs are for the size of the first batch.
  if (!validation_.empty() &&
      static_cast<std::int64_t>(batch.inputs.size()) != validation_[0].size().tokens) {
    return decoder_.Loss(batch, pool);
  }
  if (MakeRoom(gpu_, {batch}, validation_)) loss_.Forget();
  HW_RETURN_IF_ERROR(validation_[0].Upload(batch, /*loss_scale=*/0));
  HW_RETURN_IF_ERROR(loss_.Run([&] {
    decoder_.EnqueueLoss(validation_[0]);
    return absl::OkStatus();
  }));
  return validation_[0].ReadLoss();
}

std::vector<Parameter> GpuTraining::HostParameters() const {
  std::vector<Parameter> parameters;
  for (const Parameter* p : decoder_.parameters()) {
    parameters.push_back({.name = p->name,
                          .role = p->role,
                          .value = Tensor::Zeros(p->value.shape(), p->value.dtype(), Device::kCpu),
                          .head_blocks = p->head_blocks});
  }
  return parameters;
}

absl::StatusOr<std::vector<Parameter>> GpuTraining::Weights() const {
  HW_ASSIGN_OR_RETURN(const std::vector<Tensor> values,
                      DownloadValues(gpu_, decoder_.parameters()));
  std::vector<Parameter> parameters;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Parameter& p = *decoder_.parameters()[i];
    parameters.push_back(
        {.name = p.name, .role = p.role, .value = values[i], .head_blocks = p.head_blocks});
  }
  return parameters;
}

absl::Status GpuTraining::LoadWeights(
    absl::FunctionRef<absl::Status(const std::vector<Parameter*>&)> load, ThreadPool& pool) {
  std::vector<Parameter> parameters = HostParameters();
  HW_RETURN_IF_ERROR(load(Pointers(parameters)));
  std::vector<Tensor> values;
  for (const Parameter& parameter : parameters) values.push_back(parameter.value);
  HW_RETURN_IF_ERROR(UploadValues(gpu_, values, decoder_.parameters()));
  decoder_.WeightsChanged(pool);
  return absl::OkStatus();
}

absl::Status GpuTraining::LoadState(
    absl::FunctionRef<absl::Status(const std::vector<NamedTensor>&)> load) {
  HW_ASSIGN_OR_RETURN(const std::vector<NamedTensor> state, optimizer_->State());
  HW_RETURN_IF_ERROR(load(state));
  return optimizer_->Load(state);
}

}  // namespace headwise
