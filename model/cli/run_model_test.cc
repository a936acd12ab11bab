// A trained model comes to a GPU, here the one on the host, with its weights, without gradients,
// within the memory that was said, or not at all.
#include "model/cli/run_model.h"

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/status_macros.h"
#include "core/cuda/gpu.h"
#include "core/proto/checkpoint.pb.h"
#include "core/proto/config.pb.h"
#include "core/tensor/tensor.h"
#include "gtest/gtest.h"
#include "kernels/common/thread_pool.h"
#include "kernels/launchers/test_gpu.h"
#include "model/cli/device.h"
#include "model/decoder.h"
#include "model/gpu/tensors.h"
#include "model/hf/model_source.h"
#include "model/kv_cache.h"
#include "model/test_config.h"
#include "model/test_decoder.h"
#include "model/train/checkpoint.h"
#include "model/train/run_config.h"

namespace headwise {
namespace {

class RunModelTest : public testing::Test {
 protected:
  RunModelTest() {
    config_ = RunConfigOf(PlainConfig());
    config_.mutable_training()->set_compute_dtype(BF16);
    trained_ = RandomDecoder(config_.model(), {.compute = DType::kBF16});
    CheckpointState state;
    *state.mutable_config() = config_;
    const std::string run = testing::TempDir() + "/run_model";
    std::filesystem::create_directories(run);
    const absl::Status saved = SaveCheckpoint(run, state, trained_->parameters(), {}, 0);
    EXPECT_TRUE(saved.ok()) << saved;
    source_ = ModelSource::Open(run);
    EXPECT_TRUE(source_.ok()) << source_.status();
    on_gpu_.opened = {.gpu = CreateTestGpu(), .launchers = &TestLaunchers()};
  }
  Gpu& gpu() { return *on_gpu_.opened.gpu; }

  ThreadPool pool_{1};
  RunConfig config_;
  std::unique_ptr<Decoder> trained_;
  absl::StatusOr<ModelSource> source_ = absl::UnknownError("not opened");
  CommandDevice on_gpu_;
};

TEST_F(RunModelTest, AGpuGetsTheWeightsWithinTheMemoryThatIsSaid) {
  constexpr DecoderUse kUse = {.loss_tokens = 60, .cache_tokens = 40, .prompt_tokens = 30};
  DecoderOptions options = DecoderOptionsOf(config_.training());
  const std::int64_t with_gradients = *DecoderMemory(config_.model(), options, kUse);
  options.mode = DecoderMode::kInference;
  const std::int64_t needed = *DecoderMemory(config_.model(), options, kUse);
  std::int64_t weights = 0;
  for (const Parameter* p : trained_->parameters()) weights += p->value.bytes();
  EXPECT_EQ(with_gradients - needed, weights);
  const std::int64_t before = *gpu().FreeMemory();
  const auto decoder = MakeDecoder(*source_, config_, on_gpu_, kUse, pool_);
  ASSERT_TRUE(decoder.ok()) << decoder.status();
  EXPECT_EQ((*decoder)->options().mode, DecoderMode::kInference);
  const std::vector<Tensor> values = *DownloadValues(gpu(), (*decoder)->parameters());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Parameter& expected = *trained_->parameters()[i];
    EXPECT_EQ(std::memcmp(values[i].raw_data(), expected.value.raw_data(),
                          static_cast<std::size_t>(values[i].bytes())),
              0)
        << expected.name;
  }
  // The copies of the weights have been made.
  const TokenBatch batch = RandomBatch({60}, config_.model().vocab_size());
  const double loss = trained_->Loss(batch, pool_);
  EXPECT_NEAR((*decoder)->Loss(batch, pool_), loss, 0.02 * loss);
  const std::int64_t taken = before - *gpu().FreeMemory();
  EXPECT_LT(taken, needed);
  EXPECT_GT(taken, needed / 2);
}

TEST_F(RunModelTest, AModelThatDoesNotFitIsRefusedWithFigures) {
  // 512 GiB of keys and values.
  constexpr std::int64_t kTokens = (std::int64_t{1} << 31) - 1;
  config_.mutable_model()->set_max_sequence_length(kTokens);
  const std::int64_t before = *gpu().FreeMemory();
  const absl::Status refused =
      MakeDecoder(*source_, config_, on_gpu_, {.cache_tokens = kTokens}, pool_).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
  const std::string message(refused.message());
  EXPECT_NE(message.find("memory: plain needs 512"), std::string::npos) << message;
  EXPECT_NE(message.find("GiB free on "), std::string::npos) << message;
  EXPECT_EQ(*gpu().FreeMemory(), before);
}

// The example of model/train/checkpoint.h.
absl::StatusOr<Tensor> LogitsAfter(const std::string& run,
                                   const std::vector<std::vector<std::int32_t>>& prompt,
                                   ThreadPool& pool) {
  HW_ASSIGN_OR_RETURN(const FoundCheckpoint found, OpenRunOrCheckpoint(run));
  const DecoderOptions options = {.compute = DType::kBF16, .mode = DecoderMode::kInference};
  HW_ASSIGN_OR_RETURN(const auto decoder, Decoder::Create(found.state.config().model(), options));
  HW_RETURN_IF_ERROR(LoadWeights(found, decoder->parameters()));
  decoder->WeightsChanged(pool);
  HW_ASSIGN_OR_RETURN(const auto cache, decoder->NewCache(/*rows=*/1, /*max_tokens=*/64));
  return decoder->Extend(*cache, prompt, pool);
}

TEST_F(RunModelTest, AProgramLoadsACheckpointAndGetsTheLogitsOfTheTrainedModel) {
  const std::vector<std::vector<std::int32_t>> prompt = {{1, 2, 3}};
  const absl::StatusOr<Tensor> loaded =
      LogitsAfter(testing::TempDir() + "/run_model", prompt, pool_);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  trained_->WeightsChanged(pool_);
  const auto cache = trained_->NewCache(1, 64);
  const Tensor logits = trained_->Extend(**cache, prompt, pool_);
  ASSERT_EQ(logits.shape(), (Shape{1, config_.model().vocab_size()}));
  ASSERT_EQ(loaded->shape(), logits.shape());
  EXPECT_EQ(
      std::memcmp(loaded->raw_data(), logits.raw_data(), static_cast<std::size_t>(logits.bytes())),
      0);
}

TEST(CommandOnTest, ARunGoesOnWhereItWas) {
  EXPECT_EQ(CommandOn("cpu", "train --run r"), "muse train --run r");
  EXPECT_EQ(CommandOn("cuda", "train --run r"), "muse_cuda train --run r --device cuda");
  EXPECT_EQ(CommandOn("cuda-emulated", "train --run r"),
            "muse train --run r --device cuda-emulated");
}

}  // namespace
}  // namespace headwise
