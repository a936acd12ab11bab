// Steps replayed from one graph have the bytes of the same steps enqueued kernel by kernel, though
// each has other tokens and another number of targets, and so another loss scale; and the losses of
// the CPU but for the order of sums in products. On this machine's GPU (training_gpu_test) and on
// the one on the host (gpu_training_test).
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/cuda/gpu.h"
#include "core/proto/config.pb.h"
#include "core/tensor/tensor.h"
#include "gtest/gtest.h"
#include "kernels/common/thread_pool.h"
#include "kernels/launchers/test_gpu.h"
#include "model/decoder.h"
#include "model/gpu/batch.h"
#include "model/gpu/tensors.h"
#include "model/gradient_accumulator.h"
#include "model/test_config.h"
#include "model/test_decoder.h"
#include "model/token_batch.h"
#include "model/train/gpu_training.h"
#include "optim/defaults.h"
#include "optim/gpu_optimizer.h"
#include "optim/named_tensor.h"
#include "optim/optimizer.h"
#include "optim/step_report.h"

namespace headwise {
namespace {

constexpr std::int64_t kSteps = 5, kMicroBatches = 2;

struct StepData {
  std::vector<TokenBatch> batches;
  double loss_scale = 0;
};

// Of step i more targets are ignored than of those before.
std::vector<StepData> MakeSteps(const ModelConfig& config) {
  std::vector<StepData> steps;
  for (std::int64_t i = 0; i < kSteps; ++i) {
    StepData step;
    std::int64_t targets = 0;
    for (std::int64_t b = 0; b < kMicroBatches; ++b) {
      TokenBatch batch = RandomBatch({9 + i, 15 - i}, config.vocab_size(), 2 * i + b);
      for (std::int64_t t = 0; t < 2 * i; ++t) batch.targets[t] = kIgnoredTarget;
      for (const std::int32_t target : batch.targets) targets += target != kIgnoredTarget;
      step.batches.push_back(std::move(batch));
    }
    step.loss_scale = 1.0 / static_cast<double>(targets);
    steps.push_back(std::move(step));
  }
  return steps;
}

std::string Bytes(const Tensor& tensor) {
  return std::string(static_cast<const char*>(tensor.raw_data()),
                     static_cast<std::size_t>(tensor.bytes()));
}

class TrainingGpuTest : public testing::TestWithParam<DType> {
 protected:
  std::unique_ptr<Decoder> OnGpu(const ModelConfig& config) const {
    std::unique_ptr<Decoder> decoder = *Decoder::Create(config, {.compute = GetParam(),
                                                                 .device = Device::kCuda,
                                                                 .gpu = gpu_.get(),
                                                                 .launchers = &TestLaunchers()});
    decoder->Initialize(7);
    return decoder;
  }

  ThreadPool pool_{1};
  const std::unique_ptr<Gpu> gpu_ = CreateTestGpu();
};

TEST_P(TrainingGpuTest, ReplayedStepsHaveTheBytesOfEnqueuedSteps) {
  const ModelConfig model = GetParam() == DType::kF32 ? ExpertsConfig() : EverythingConfig();
  RunConfig config;
  *config.mutable_model() = model;
  *config.mutable_optimizer() = DefaultOptimizerConfig();
  config.mutable_optimizer()->set_clip_norm(0.3);
  config.mutable_training()->set_micro_batches(kMicroBatches);
  const std::vector<StepData> steps = MakeSteps(model);

  const auto replayed = OnGpu(model), enqueued = OnGpu(model);
  const auto training = *GpuTraining::Create(config, *replayed, *gpu_, TestLaunchers());
  const auto optimizer =
      *GpuOptimizer::Create(config.optimizer(), enqueued->parameters(), *gpu_, TestLaunchers());
  GradientAccumulator accumulator(enqueued->parameters(), kMicroBatches, *gpu_, TestLaunchers());
  GpuBatch memory(*gpu_, {.tokens = 24, .segments = 2});

  const auto cpu = *Decoder::Create(model, {.compute = GetParam()});
  cpu->Initialize(7);
  const auto cpu_optimizer = *Optimizer::Create(config.optimizer(), cpu->parameters());
  GradientAccumulator cpu_accumulator(cpu->parameters(), kMicroBatches);

  for (std::int64_t i = 0; i < kSteps; ++i) {
    const auto& [batches, loss_scale] = steps[i];
    const auto outcome = training->Step(batches, loss_scale, i, kSteps, pool_);
    ASSERT_TRUE(outcome.ok()) << outcome.status();

    std::vector<double> losses, cpu_losses;
    for (const TokenBatch& batch : batches) {
      ASSERT_EQ(memory.Upload(batch, loss_scale), absl::OkStatus());
      enqueued->EnqueueForwardBackward(memory);
      ASSERT_EQ(accumulator.Enqueue(), absl::OkStatus());
      losses.push_back(*memory.ReadLoss());
      cpu_losses.push_back(cpu->ForwardBackward(batch, loss_scale, pool_));
      cpu_accumulator.Add(pool_);
    }
    ASSERT_EQ(optimizer->Prepare(i, kSteps), absl::OkStatus());
    ASSERT_EQ(optimizer->Enqueue(), absl::OkStatus());
    enqueued->WeightsChanged(pool_);
    const StepReport report = *optimizer->ReadReport();
    cpu_optimizer->Step(i, kSteps, pool_);
    cpu->WeightsChanged(pool_);

    EXPECT_EQ(outcome->losses, losses) << "step " << i;
    EXPECT_EQ(outcome->report.gradient_norm, report.gradient_norm) << "step " << i;
    EXPECT_EQ(outcome->report.clip_factor, report.clip_factor) << "step " << i;
    EXPECT_FALSE(report.skipped) << "step " << i;
    // In bf16 what differs in a step's roundings is in the weights of the next.
    const double tolerance = GetParam() == DType::kF32 || i == 0 ? 1e-3 : 2e-2;
    const double loss = std::accumulate(losses.begin(), losses.end(), 0.0) * loss_scale,
                 cpu_loss = std::accumulate(cpu_losses.begin(), cpu_losses.end(), 0.0) * loss_scale;
    EXPECT_NEAR(loss, cpu_loss, tolerance * cpu_loss) << "step " << i;
  }

  const GraphUse use = training->graphs().step;
  EXPECT_EQ(use.captures, 1);
  EXPECT_EQ(use.launches, kSteps - 2);
  const std::vector<Tensor> values = *DownloadValues(*gpu_, replayed->parameters()),
                            expected = *DownloadValues(*gpu_, enqueued->parameters());
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_TRUE(Bytes(values[i]) == Bytes(expected[i])) << replayed->parameters()[i]->name;
  }
  const std::vector<NamedTensor> state = *training->State(), expected_state = *optimizer->State();
  ASSERT_EQ(state.size(), expected_state.size());
  for (std::size_t i = 0; i < state.size(); ++i) {
    EXPECT_TRUE(Bytes(state[i].tensor) == Bytes(expected_state[i].tensor)) << state[i].name;
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, TrainingGpuTest, testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& info) { return Name(info.param); });

}  // namespace
}  // namespace headwise
