// Training with the CUDA kernels, emulated, writes the bytes of training on the CPU: weights and
// optimizer state. Matrix products are the contract's on both sides.
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/io/checksum.h"
#include "gtest/gtest.h"
#include "model/presets/presets.h"
#include "model/test_config.h"
#include "model/train/trainer.h"
#include "optim/defaults.h"

namespace headwise {
namespace {

constexpr std::int64_t kSteps = 2;
constexpr int kLayers = 2;  // one with RoPE and a window, one without either

class EmulatedTraining : public testing::TestWithParam<ComputeDtype> {
 protected:
  void SetUp() override {
    root_ = absl::StrCat(testing::TempDir(), "/emulated_training_", GetParam());
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
    std::ofstream text(root_ + "/text", std::ios::binary);
    for (int i = 0; i < 20000; ++i) text.put(static_cast<char>(i * i % 251 % 19));
  }

  // Trains `config` and returns checksums of the weights and of the optimizer's state.
  std::pair<std::uint64_t, std::uint64_t> Train(RunConfig config, const std::string& name,
                                                Kernels kernels) const {
    TrainingConfig& t = *config.mutable_training();
    t.set_steps(kSteps);
    t.set_batch_size(2);
    t.set_sequence_length(150);  // longer than the presets' windows
    t.set_gemm(CONTRACT);
    t.set_micro_batches(1);
    t.set_compute_dtype(GetParam());
    t.set_eval_every(kSteps);
    t.set_eval_batches(1);
    t.set_checkpoint_every(kSteps);
    config.mutable_data()->set_path(root_ + "/text");
    config.mutable_data()->set_validation_fraction(0.1);
    config.mutable_data()->set_document_separator(-1);
    ThreadPool pool(2);
    const std::string directory = root_ + "/" + name;
    const auto run =
        TrainingRun::Create(config, directory, std::nullopt, pool, {.kernels = kernels});
    EXPECT_TRUE(run.ok()) << run.status();
    if (!run.ok()) return {};
    const auto summary = (*run)->Run(nullptr, nullptr, pool);
    EXPECT_TRUE(summary.ok()) << summary.status();
    if (!summary.ok()) return {};
    EXPECT_EQ(summary->steps, kSteps);
    return {*ChecksumFile(summary->checkpoint + "/model.safetensors"),
            *ChecksumFile(summary->checkpoint + "/optimizer.safetensors")};
  }

  std::string root_;
};

INSTANTIATE_TEST_SUITE_P(Storage, EmulatedTraining, testing::Values(FP32, BF16));

// RoPE and NoPE layers, scaleless head norms, a query scale.
TEST_P(EmulatedTraining, GlimmerTinyHasTheSameBytes) {
  RunConfig config = *LoadPreset("muse_glimmer_tiny");
  config.mutable_model()->set_num_layers(kLayers);
  EXPECT_EQ(Train(config, "glimmer_cuda", Kernels::kCudaEmulated),
            Train(config, "glimmer_cpu", Kernels::kCpu));
}

// Experts, residual gates, balancing biases.
TEST_P(EmulatedTraining, SparkTinyHasTheSameBytes) {
  RunConfig config = *LoadPreset("muse_spark_tiny");
  config.mutable_model()->set_num_layers(kLayers);
  EXPECT_EQ(Train(config, "spark_cuda", Kernels::kCudaEmulated),
            Train(config, "spark_cpu", Kernels::kCpu));
}

// Head norms with weights, whose gradients take the second launch; heads of the other mapping.
TEST_P(EmulatedTraining, EveryPartHasTheSameBytes) {
  RunConfig config;
  *config.mutable_model() = EverythingConfig();
  config.mutable_model()->set_max_sequence_length(150);
  *config.mutable_optimizer() = DefaultOptimizerConfig();
  config.mutable_training()->set_seed(7);
  EXPECT_EQ(Train(config, "everything_cuda", Kernels::kCudaEmulated),
            Train(config, "everything_cpu", Kernels::kCpu));
}

}  // namespace
}  // namespace headwise
