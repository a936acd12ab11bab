// Prefill and decode on a GPU, here the one on the host, have the bits of the CPU, decode replayed
// from one graph: windows that evict between replays, rows of different lengths, sinks, experts.
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/cuda/gpu.h"
#include "core/tensor/tensor.h"
#include "gtest/gtest.h"
#include "kernels/common/thread_pool.h"
#include "kernels/launchers/test_gpu.h"
#include "model/decoder.h"
#include "model/generate/generate.h"
#include "model/gpu/tensors.h"
#include "model/kv_cache.h"
#include "model/test_config.h"
#include "model/test_decoder.h"

namespace headwise {
namespace {

using Tokens = std::vector<std::int32_t>;

constexpr std::int64_t kRoom = 400;  // of a row

std::string Bytes(const Tensor& tensor) {
  return std::string(static_cast<const char*>(tensor.raw_data()),
                     static_cast<std::size_t>(tensor.bytes()));
}

// A model on the CPU, the same on the GPU without gradients, and caches of both that are fed with
// the same.
class Twins {
 public:
  Twins(ModelConfig config, DType compute, std::int64_t rows, std::int64_t room = kRoom) {
    config.set_max_sequence_length(room);
    cpu_ = RandomDecoder(config, {.compute = compute, .gemm = GemmBackend::kContract});
    on_gpu_ = *Decoder::Create(config, {.compute = compute,
                                        .device = Device::kCuda,
                                        .gpu = gpu_.get(),
                                        .launchers = &TestLaunchers(),
                                        .mode = DecoderMode::kInference});
    std::vector<Tensor> values;
    for (const Parameter* parameter : cpu_->parameters()) values.push_back(parameter->value);
    EXPECT_TRUE(UploadValues(*gpu_, values, on_gpu_->parameters()).ok());
    on_gpu_->WeightsChanged(pool_);
    a_ = *cpu_->NewCache(rows, room);
    b_ = *on_gpu_->NewCache(rows, room);
    next_.assign(static_cast<std::size_t>(rows), 1);
  }

  // The next counts[r] tokens of every row r.
  void Extend(const std::vector<std::int64_t>& counts) {
    std::vector<Tokens> tokens(counts.size());
    for (std::size_t r = 0; r < counts.size(); ++r) {
      for (std::int64_t i = 0; i < counts[r]; ++i) {
        next_[r] = next_[r] * 48271 % 2147483647;
        tokens[r].push_back(static_cast<std::int32_t>(next_[r] % cpu_->config().vocab_size()));
      }
    }
    const std::string expected = Bytes(cpu_->Extend(*a_, tokens, pool_));
    EXPECT_TRUE(Bytes(on_gpu_->Extend(*b_, tokens, pool_)) == expected)
        << cpu_->config().name() << ": other logits at " << a_->length(0) << " tokens of row 0";
    EXPECT_EQ(b_->length(0), a_->length(0));
  }
  void ResetRow(std::int64_t r) {
    a_->ResetRow(r);
    b_->ResetRow(r);
  }

  Gpu& gpu() { return *gpu_; }
  Decoder& cpu() { return *cpu_; }
  Decoder& decoder() { return *on_gpu_; }
  KvCache& cache() { return *b_; }

 private:
  ThreadPool pool_{1};
  std::unique_ptr<Gpu> gpu_ = CreateTestGpu();
  std::unique_ptr<Decoder> cpu_, on_gpu_;
  std::unique_ptr<KvCache> a_, b_;
  std::vector<std::int64_t> next_;
};

ModelConfig SinksConfig() {
  ModelConfig config = EverythingConfig();
  config.set_name("sinks");
  config.mutable_attention()->set_sinks(true);
  return config;
}

class DecoderGpuExtend : public testing::TestWithParam<DType> {};

TEST_P(DecoderGpuExtend, PrefillAndDecodeHaveTheBitsOfTheCpu) {
  for (const ModelConfig& config :
       {SinksConfig(), OtherwiseConfig(), PlainConfig(), ExpertsConfig(), SparkConfig()}) {
    Twins twins(config, GetParam(), 2);
    twins.Extend({12, 4});
    EXPECT_EQ(twins.cache().decode_graph(), nullptr);
    twins.Extend({1, 1});
    EXPECT_NE(twins.cache().decode_graph(), nullptr);
    twins.Extend({0, 3});
    twins.Extend({0, 0});
    twins.Extend({1, 1});
    twins.Extend({1, 0});
    twins.Extend({1, 1});
  }
}

// Windows of 3 and 5 hold 258 and 260 tokens: rows evict before a chunk and between two replays,
// and each at another time.
TEST_P(DecoderGpuExtend, WindowsEvictBetweenReplays) {
  ModelConfig config = EverythingConfig();
  config.set_num_layers(3);
  Twins twins(config, GetParam(), 2);
  twins.Extend({5, 9});
  twins.Extend({256, 0});  // keeps 4 of 5 tokens: from and to overlap
  for (int i = 0; i < 7; ++i) twins.Extend({1, 1});
  twins.ResetRow(0);
  twins.Extend({0, 245});
  twins.Extend({261, 0});
  for (int i = 0; i < 3; ++i) twins.Extend({1, 1});
}

INSTANTIATE_TEST_SUITE_P(Dtypes, DecoderGpuExtend, testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& info) { return Name(info.param); });

TEST(DecoderGpuExtendTest, OneGraphIsReplayedAndNothingAllocated) {
  ModelConfig config = EverythingConfig();
  config.set_num_layers(2);
  Twins twins(config, DType::kF32, 1);
  twins.Extend({1});
  const GpuGraph* const graph = twins.cache().decode_graph();
  ASSERT_NE(graph, nullptr);
  EXPECT_GT(graph->kernels(), 2 * 10);
  const std::int64_t allocations = twins.decoder().activation_allocations();
  const std::int64_t free = *twins.gpu().FreeMemory();
  for (int i = 0; i < 300; ++i) twins.Extend({1});
  EXPECT_EQ(twins.cache().decode_graph(), graph);
  EXPECT_EQ(twins.decoder().activation_allocations(), allocations);
  EXPECT_EQ(*twins.gpu().FreeMemory(), free);
}

// What generate writes, and what it says of the graph.
TEST(DecoderGpuExtendTest, GenerateWritesTheSameText) {
  ModelConfig model = SinksConfig();
  Twins twins(model, DType::kBF16, 1);
  DataConfig data;
  data.set_format(UINT16);
  const GenerateOptions options = {.prompt = {1, 2, 3}, .max_tokens = 12};
  std::vector<std::string> texts;
  ThreadPool pool(1);
  for (Decoder* const decoder : {&twins.cpu(), &twins.decoder()}) {
    std::FILE* const file = std::tmpfile();
    const absl::StatusOr<GenerateReport> report = Generate(*decoder, data, options, file, pool);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->new_tokens, 12);
    EXPECT_EQ(report->graph_kernels > 0, decoder == &twins.decoder());
    texts.emplace_back(static_cast<std::size_t>(std::ftell(file)), '\0');
    std::rewind(file);
    EXPECT_EQ(std::fread(texts.back().data(), 1, texts.back().size(), file), texts.back().size());
    std::fclose(file);
  }
  EXPECT_EQ(texts[0].rfind("1 2 3 ", 0), 0) << texts[0];
  EXPECT_EQ(texts[1], texts[0]);
}

TEST(DecoderGpuExtendTest, ACacheThatDoesNotFitIsRefusedWithFigures) {
  Twins twins(PlainConfig(), DType::kF32, 1);
  // Per row 400 tokens of 4 layers, 16 floats of keys and of values each, and 19 logits.
  const absl::Status refused = twins.decoder().NewCache(100000, kRoom).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  const std::string message(refused.message());
  EXPECT_NE(message.find("a cache of 100000 rows of 400 tokens needs 1"), std::string::npos)
      << message;
  EXPECT_NE(message.find("GiB free on "), std::string::npos) << message;
}

TEST(DecoderGpuExtendDeathTest, ProgrammersErrors) {
  Twins twins(PlainConfig(), DType::kF32, 2);
  ThreadPool pool(1);
  const std::vector<Tokens> tokens = {{1}, {2}}, outside = {{1}, {19}};
  EXPECT_DEATH(twins.decoder().Extend(twins.cache(), outside, pool),
               "Embedding: token 1 is out of range");
  Twins others(PlainConfig(), DType::kF32, 2);
  EXPECT_DEATH(others.decoder().Extend(twins.cache(), tokens, pool), "a cache of another decoder");
}

}  // namespace
}  // namespace headwise
