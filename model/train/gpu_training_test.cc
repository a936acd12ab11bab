// Training on a GPU writes the bytes of training on the CPU, step by step, replayed from one graph:
// weights, optimizer state and metrics. Products are the contract's on both sides.
#include "model/train/gpu_training.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/cuda/gpu.h"
#include "core/io/checksum.h"
#include "gtest/gtest.h"
#include "kernels/launchers/test_gpu.h"
#include "model/gpu/tensors.h"
#include "model/report/metrics_log.h"
#include "model/report/peak_flops.h"
#include "model/test_config.h"
#include "model/test_presets.h"
#include "model/train/trainer.h"
#include "model/train/training_data.h"
#include "optim/defaults.h"

namespace headwise {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kSteps = 5;
constexpr char kSeparator = 7;

class GpuTrainingTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = absl::StrCat(testing::TempDir(), "/gpu_training_",
                         testing::UnitTest::GetInstance()->random_seed(), "_", getpid());
    fs::remove_all(root_);
    fs::create_directories(root_);
    std::ofstream text(root_ + "/text", std::ios::binary);
    std::uint64_t state = 1;
    for (int i = 0; i < 1280; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      text.put(static_cast<char>(i % 3 == 0 ? (state >> 60) : (i % 19)));
    }
  }
  void TearDown() override { fs::remove_all(root_); }

  RunConfig Config(const std::string& preset, ComputeDtype compute) const {
    RunConfig config;
    *config.mutable_model() = SmallPreset(preset);
    *config.mutable_optimizer() = DefaultOptimizerConfig();
    config.mutable_optimizer()->set_clip_norm(0.3);
    TrainingConfig& t = *config.mutable_training();
    t.set_steps(kSteps);
    t.set_batch_size(4);
    t.set_sequence_length(12);  // longer than windows
    t.set_micro_batches(2);
    t.set_gemm(CONTRACT);
    t.set_compute_dtype(compute);
    t.set_seed(7);
    t.set_eval_every(1);
    t.set_eval_batches(100);  // all: the last is smaller
    t.set_checkpoint_every(1);
    config.mutable_data()->set_path(root_ + "/text");
    config.mutable_data()->set_validation_fraction(0.05);
    config.mutable_data()->set_document_separator(-1);
    return config;
  }

  std::string Dir(const std::string& name) const { return absl::StrCat(root_, "/", name); }

  // Starts, or resumes, a run on the CPU or on gpu_, and trains to the end. `change` may change the
  // weights before.
  TrainingSummary Train(const RunConfig& config, const std::string& name, bool on_gpu,
                        const std::function<void(Decoder&)>& change = nullptr) {
    ThreadPool pool(1);
    const auto resume = FindCheckpoint(Dir(name));
    EXPECT_TRUE(resume.ok()) << resume.status();
    TrainingDevice device;
    if (on_gpu) device = {.gpu = gpu_.get(), .launchers = &TestLaunchers()};
    const auto run = TrainingRun::Create(config, Dir(name), *resume, pool, device);
    EXPECT_TRUE(run.ok()) << run.status();
    if (!run.ok()) return {};
    if (change != nullptr) {
      change((*run)->decoder());
      (*run)->decoder().WeightsChanged(pool);
    }
    const auto summary = (*run)->Run(nullptr, nullptr, pool);
    EXPECT_TRUE(summary.ok()) << summary.status();
    if (!summary.ok()) return {};
    allocations_ = (*run)->decoder().activation_allocations();
    return *summary;
  }

  std::pair<std::uint64_t, std::uint64_t> Bits(const std::string& name, std::int64_t step) const {
    const std::string directory = absl::StrCat(Dir(name), "/step-", step);
    return {*ChecksumFile(directory + "/model.safetensors"),
            *ChecksumFile(directory + "/optimizer.safetensors")};
  }

  // From step `first` on, of checkpoints and of metrics.
  void ExpectEqual(const std::string& a, const std::string& b, std::int64_t first = 1) const {
    const auto of_a = *ReadMetrics(Dir(a) + "/metrics.jsonl");
    const auto of_b = *ReadMetrics(Dir(b) + "/metrics.jsonl");
    ASSERT_EQ(of_a.size(), of_b.size());
    const auto last = static_cast<std::int64_t>(of_a.size());
    for (std::size_t i = 0; i < of_a.size(); ++i) {
      EXPECT_EQ(of_a[i].loss, of_b[i].loss) << i;
      EXPECT_EQ(of_a[i].gradient_norm, of_b[i].gradient_norm) << i;
      EXPECT_EQ(of_a[i].clip_factor, of_b[i].clip_factor) << i;
      EXPECT_EQ(of_a[i].muon_learning_rate, of_b[i].muon_learning_rate) << i;
      EXPECT_EQ(of_a[i].skipped, of_b[i].skipped) << i;
      EXPECT_EQ(of_a[i].validation_loss, of_b[i].validation_loss) << i;
    }
    for (std::int64_t step = first; step <= last; ++step) {
      EXPECT_EQ(Bits(a, step), Bits(b, step)) << "step " << step;
    }
  }

  // A run that goes on from a copy of the checkpoint of another.
  void Fork(const std::string& from, std::int64_t step, const std::string& to) const {
    fs::create_directories(Dir(to));
    const std::string checkpoint = absl::StrCat("/step-", step);
    fs::copy(Dir(from) + checkpoint, Dir(to) + checkpoint);
    fs::copy(Dir(from) + "/metrics.jsonl", Dir(to) + "/metrics.jsonl");
  }

  std::string root_;
  const std::unique_ptr<Gpu> gpu_ = CreateTestGpu();
  std::int64_t allocations_ = 0;  // of the last run's decoder
};

// Head norms, gates and windows; experts with balancing biases. Steps from both sides of the
// capture, checkpoints that the other device goes on from.
TEST_F(GpuTrainingTest, EveryStepHasTheBytesOfTheCpu) {
  for (const char* preset : {"muse_glimmer_tiny", "muse_spark_tiny"}) {
    for (const ComputeDtype compute : {FP32, BF16}) {
      SCOPED_TRACE(absl::StrCat(preset, ", ", ComputeDtype_Name(compute)));
      const RunConfig config = Config(preset, compute);
      const std::string name = absl::StrCat(preset, "_", ComputeDtype_Name(compute));
      const std::string cpu = name + "_cpu", gpu = name + "_gpu";
      Train(config, cpu, false);
      const TrainingSummary summary = Train(config, gpu, true);
      ExpectEqual(cpu, gpu);
      if (testing::Test::HasFailure()) return;
      const std::vector<StepMetrics> metrics = *ReadMetrics(Dir(gpu) + "/metrics.jsonl");
      EXPECT_LT(metrics.back().clip_factor, 1);
      EXPECT_LT(metrics.back().loss, metrics.front().loss);

      ASSERT_TRUE(summary.graphs.has_value());
      const GraphUse &step = summary.graphs->step, &loss = summary.graphs->loss;
      EXPECT_EQ(step.captures, 1);
      EXPECT_EQ(step.enqueued, 2);
      EXPECT_EQ(step.launches, kSteps - 2);
      EXPECT_EQ(loss.captures, 1);
      EXPECT_GT(loss.launches, kSteps);
      EXPECT_GT(step.kernels, loss.kernels);
      EXPECT_EQ(summary.graphs->Describe(),
                absl::StrCat("train step: 1 of ", step.kernels, " kernels, 3 of 5 runs; ",
                             "validation: 1 of ", loss.kernels, " kernels, ", loss.launches, " of ",
                             loss.launches + loss.enqueued, " runs"));

      Fork(cpu, 2, name + "_to_gpu");
      Train(config, name + "_to_gpu", true);
      ExpectEqual(cpu, name + "_to_gpu", 3);
      Fork(gpu, 4, name + "_to_cpu");
      Train(config, name + "_to_cpu", false);
      ExpectEqual(cpu, name + "_to_cpu", 5);
    }
  }
}

// Captured as contract mode is; the CPU goes on from such a checkpoint in contract mode.
TEST_F(GpuTrainingTest, TensorCoresTrainWhatTheCpuCanGoOnWith) {
  RunConfig config = Config("muse_glimmer_tiny", FP32);
  Train(config, "contract", false);
  config.mutable_optimizer()->mutable_muon()->set_compute_mode(TENSOR_CORE);
  const TrainingSummary summary = Train(config, "tensor", true);
  ASSERT_TRUE(summary.graphs.has_value());
  EXPECT_EQ(summary.graphs->step.captures, 1);
  EXPECT_EQ(summary.graphs->step.launches, kSteps - 2);
  EXPECT_NE(Bits("tensor", 1).first, Bits("contract", 1).first);
  EXPECT_EQ(Bits("tensor", 1).second, Bits("contract", 1).second);  // the gradients were the same
  const std::vector<StepMetrics> contract = *ReadMetrics(Dir("contract") + "/metrics.jsonl"),
                                 tensor = *ReadMetrics(Dir("tensor") + "/metrics.jsonl");
  EXPECT_NEAR(tensor.back().loss, contract.back().loss, 1e-3);

  Fork("tensor", 2, "to_cpu");
  const auto resume = FindCheckpoint(Dir("to_cpu"));
  ASSERT_TRUE(resume.ok()) << resume.status();
  ThreadPool pool(1);
  EXPECT_EQ(TrainingRun::Create(config, Dir("to_cpu"), *resume, pool).status().code(),
            absl::StatusCode::kInvalidArgument);
  config.mutable_optimizer()->mutable_muon()->set_compute_mode(CONTRACT_FP32);
  EXPECT_EQ(Train(config, "to_cpu", false).steps, kSteps - 2);
}

TEST_F(GpuTrainingTest, TakesAllItsMemoryInTheFirstSteps) {
  RunConfig config = Config("muse_glimmer_tiny", BF16);
  config.mutable_training()->set_checkpoint_every(100);
  config.mutable_training()->set_steps(3);
  Train(config, "few", true);
  const std::int64_t few = allocations_;
  config.mutable_training()->set_steps(9);
  Train(config, "many", true);
  EXPECT_EQ(allocations_, few);
  EXPECT_GT(few, 0);
}

// Another number of targets in most steps; head norms with weights, whose gradients are summed per
// group.
TEST_F(GpuTrainingTest, DocumentsHaveTheBytesOfTheCpu) {
  RunConfig config = Config("muse_glimmer_tiny", FP32);
  *config.mutable_model() = EverythingConfig();
  config.mutable_data()->set_document_separator(kSeparator);
  config.mutable_training()->set_micro_batches(4);
  Train(config, "cpu", false);
  const TrainingSummary summary = Train(config, "gpu", true);
  ExpectEqual("cpu", "gpu");
  const GraphUse& step = summary.graphs->step;
  EXPECT_EQ(step.captures, 1);
  EXPECT_EQ(step.enqueued, 2);
  EXPECT_EQ(step.launches, kSteps - 2);
}

// One separator in each window: at its end in the first steps, in its middle later, which makes two
// documents of it.
TEST_F(GpuTrainingTest, MoreDocumentsMakeTheGraphAnew) {
  constexpr std::int64_t kWindows = 40, kFirst = 3;
  RunConfig config = Config("muse_glimmer_tiny", FP32);
  TrainingConfig& t = *config.mutable_training();
  t.set_steps(8);
  const std::int64_t length = t.sequence_length();
  std::vector<char> text;
  for (std::int64_t i = 0; i < kWindows * length; ++i) {
    text.push_back(static_cast<char>(i % length == 0 ? i / length % 32 : i / length / 32));
  }
  const auto write = [&] {
    std::ofstream(config.data().path(), std::ios::binary)
        .write(text.data(), static_cast<std::streamsize>(text.size()));
  };
  write();
  // Where the first steps' windows are in the text.
  const TrainingData order =
      *TrainingData::Load(config.data(), config.model().vocab_size(), length);
  std::vector<bool> early(kWindows);
  for (std::int64_t i = 0; i < kFirst * t.batch_size(); ++i) {
    const TokenBatch window = order.TrainingBatch(t.seed(), i, 1);
    early[window.inputs[0] + 32 * window.inputs[1]] = true;
  }
  for (std::int64_t i = 0; i < kWindows * length; ++i) {
    const std::int64_t place = early[i / length] ? length - 1 : length / 2;
    text[i] = i % length == place ? kSeparator : static_cast<char>(8 + i * i % 23);
  }
  write();
  config.mutable_data()->set_document_separator(kSeparator);
  Train(config, "cpu", false);
  const TrainingSummary summary = Train(config, "gpu", true);
  ExpectEqual("cpu", "gpu");
  EXPECT_EQ(summary.graphs->step.captures, 2);
  EXPECT_GE(summary.graphs->step.launches, 3);
}

// Queries and keys overflow: no gradient is a number. The first steps are enqueued, the others
// launched.
TEST_F(GpuTrainingTest, StepsWithoutUsableGradientsAreSkipped) {
  const RunConfig config = Config("muse_glimmer_tiny", FP32);
  const auto overflow = [&](Decoder& decoder) {
    for (const Parameter* p : decoder.parameters()) {
      if (p->role != ParameterRole::kPackedQkv) continue;
      const Tensor huge = Tensor::Empty(p->value.shape(), DType::kF32, Device::kCpu);
      std::fill_n(huge.data<float>(), huge.size(), 3e38f);
      if (decoder.options().device == Device::kCuda) {
        ASSERT_TRUE(Upload(*gpu_, huge, p->value).ok());
      } else {
        std::copy_n(huge.data<float>(), huge.size(), p->value.data<float>());
      }
    }
  };
  EXPECT_EQ(Train(config, "cpu", false, overflow).skipped_steps, kSteps);
  const TrainingSummary summary = Train(config, "gpu", true, overflow);
  EXPECT_EQ(summary.skipped_steps, kSteps);
  EXPECT_EQ(summary.graphs->step.launches, kSteps - 2);
  EXPECT_EQ(Bits("gpu", kSteps), Bits("cpu", kSteps));
  EXPECT_EQ(Bits("gpu", kSteps), Bits("gpu", 1));
}

TEST_F(GpuTrainingTest, ThePeakIsMeasuredOnTheGpu) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const absl::StatusOr<double> peak = MeasurePeakFlops(dtype, *gpu_, 16);
    ASSERT_TRUE(peak.ok()) << peak.status();
    EXPECT_GT(*peak, 0);
  }
}

}  // namespace
}  // namespace headwise
