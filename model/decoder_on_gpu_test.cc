// A decoder on a GPU has the bits of one on the CPU with the contract GEMM, also through a captured
// graph. On the Gpu on the host, which shows what a GPU would hide (kernels/launchers/gpu_on_host.h):
// host code that touches device memory dies, and a graph has what its capture was given by value.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/heads/packed_qkv.h"
#include "gtest/gtest.h"
#include "kernels/launchers/gpu_on_host.h"
#include "kernels/prepare_qkv/contract.h"
#include "model/decoder.h"
#include "model/gpu/batch.h"
#include "model/gpu/tensors.h"
#include "model/ops.h"
#include "model/storage_pool.h"
#include "model/test_config.h"
#include "model/test_decoder.h"

namespace headwise {
namespace {

std::string Bytes(const Tensor& tensor) {
  return std::string(static_cast<const char*>(tensor.raw_data()),
                     static_cast<std::size_t>(tensor.bytes()));
}

class DecoderOnGpu : public testing::TestWithParam<DType> {
 protected:
  DecoderOptions OnGpu() const {
    return {.compute = GetParam(),
            .device = Device::kCuda,
            .gpu = gpu_.get(),
            .launchers = &OnHostLaunchers()};
  }
  std::unique_ptr<Decoder> OnCpu(const ModelConfig& config) const {
    return RandomDecoder(config, {.compute = GetParam(), .gemm = GemmBackend::kContract});
  }
  // With the weights of the other.
  std::unique_ptr<Decoder> OnGpu(Decoder& cpu) { return OnGpu(cpu, OnGpu()); }
  std::unique_ptr<Decoder> OnGpu(Decoder& cpu, const DecoderOptions& options) {
    std::unique_ptr<Decoder> decoder = *Decoder::Create(cpu.config(), options);
    std::vector<Tensor> values;
    for (const Parameter* parameter : cpu.parameters()) values.push_back(parameter->value);
    EXPECT_EQ(UploadValues(*gpu_, values, decoder->parameters()), absl::OkStatus());
    decoder->WeightsChanged(pool_);
    return decoder;
  }
  void ExpectEqualGradients(Decoder& actual, Decoder& expected) {
    for (std::size_t i = 0; i < expected.parameters().size(); ++i) {
      const Parameter& a = *actual.parameters()[i];
      const Parameter& b = *expected.parameters()[i];
      EXPECT_TRUE(Bytes(*Download(*gpu_, a.gradient)) == Bytes(b.gradient))
          << expected.config().name() << ": " << b.name << " has other bits";
      ASSERT_EQ(a.per_group_gradient.defined(), b.per_group_gradient.defined());
      if (!a.per_group_gradient.defined()) continue;
      EXPECT_TRUE(Bytes(*Download(*gpu_, a.per_group_gradient)) == Bytes(b.per_group_gradient))
          << expected.config().name() << ": " << b.name << " has other bits by group";
    }
  }

  ThreadPool pool_{1};  // death tests fork, which other threads do not survive
  const std::unique_ptr<Gpu> gpu_ = CreateGpuOnHost();
};

TEST_P(DecoderOnGpu, LossAndGradientsHaveTheBitsOfTheCpu) {
  for (const ModelConfig& config : AllTestConfigs()) {
    const auto cpu = OnCpu(config), gpu = OnGpu(*cpu);
    const TokenBatch batch = RandomBatch({23, 1, 11}, config.vocab_size());
    EXPECT_EQ(gpu->ForwardBackward(batch, 0.25, pool_), cpu->ForwardBackward(batch, 0.25, pool_))
        << config.name();
    EXPECT_EQ(gpu->auxiliary_loss(), cpu->auxiliary_loss()) << config.name();
    ExpectEqualGradients(*gpu, *cpu);
  }
}

// Tokens go to other experts in each launch, with another loss scale, which the auxiliary loss has
// too.
TEST_P(DecoderOnGpu, ACapturedPassOfExpertsTakesTheBatchOfEachLaunch) {
  for (const ModelConfig& config : {ExpertsConfig(), SparkConfig()}) {
    const auto cpu = OnCpu(config), gpu = OnGpu(*cpu);
    GpuBatch batch(*gpu_, {.tokens = 35, .segments = 4});
    ASSERT_EQ(batch.Upload(RandomBatch({35}, config.vocab_size()), 0.25), absl::OkStatus());
    gpu->EnqueueForwardBackward(batch);
    const auto graph = gpu_->Capture([&] {
      gpu->EnqueueForwardBackward(batch);
      return absl::OkStatus();
    });
    ASSERT_TRUE(graph.ok()) << graph.status();
    for (const std::uint64_t seed : {2, 3}) {
      const TokenBatch next = RandomBatch({17, 18}, config.vocab_size(), seed);
      const double loss_scale = 1.0 / static_cast<double>(seed);
      ASSERT_EQ(batch.Upload(next, loss_scale), absl::OkStatus());
      ASSERT_EQ((*graph)->Launch(), absl::OkStatus());
      const auto outcome = batch.ReadOutcome();
      ASSERT_TRUE(outcome.ok()) << outcome.status();
      EXPECT_EQ(outcome->loss, cpu->ForwardBackward(next, loss_scale, pool_)) << config.name();
      EXPECT_EQ(outcome->auxiliary_loss, cpu->auxiliary_loss()) << config.name();
      ExpectEqualGradients(*gpu, *cpu);
    }
  }
}

TEST_P(DecoderOnGpu, ACapturedPassTakesTheBatchOfEachLaunchAndAllocatesNothing) {
  const auto cpu = OnCpu(EverythingConfig()), gpu = OnGpu(*cpu);
  const std::int64_t vocab_size = cpu->config().vocab_size();
  GpuBatch batch(*gpu_, {.tokens = 35, .segments = 4});
  ASSERT_EQ(batch.Upload(RandomBatch({23, 1, 11}, vocab_size), 0.25), absl::OkStatus());
  gpu->EnqueueForwardBackward(batch);
  ASSERT_TRUE(batch.ReadLoss().ok());
  const std::int64_t allocations = gpu->activation_allocations();
  EXPECT_GT(allocations, 0);
  const auto graph = gpu_->Capture([&] {
    gpu->EnqueueForwardBackward(batch);
    return absl::OkStatus();
  });
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_GT((*graph)->kernels(), 100);
  // Other numbers of documents and loss scales, and a pass outside of the graph between launches.
  std::uint64_t seed = 2;
  for (const std::vector<std::int64_t>& lengths :
       {std::vector<std::int64_t>{35}, {9, 2, 20, 4}, {17, 18}}) {
    const TokenBatch next = RandomBatch(lengths, vocab_size, seed++);
    const double loss_scale = 1.0 / static_cast<double>(seed);
    ASSERT_EQ(batch.Upload(next, loss_scale), absl::OkStatus());
    ASSERT_EQ((*graph)->Launch(), absl::OkStatus());
    EXPECT_EQ(*batch.ReadLoss(), cpu->ForwardBackward(next, loss_scale, pool_));
    ExpectEqualGradients(*gpu, *cpu);
    EXPECT_EQ(gpu->Loss(next, pool_), cpu->Loss(next, pool_));
  }
  EXPECT_EQ(gpu->activation_allocations(), allocations);
}

// The twin counts launchers: the backward has one more where it splits q and k again.
TEST_P(DecoderOnGpu, UnfusedQkvHasTheBitsOfTheCpuAndOfFused) {
  for (const HeadNormStyle norm : {HEAD_NORM_SCALELESS, HEAD_NORM_GAIN_CENTERED}) {
    ModelConfig config = UnfusedSparkConfig();
    config.mutable_attention()->set_head_norm(norm);
    ModelConfig of_fused = config;
    of_fused.mutable_attention()->set_unfused_qkv(false);
    const auto cpu = OnCpu(config), fused = OnCpu(of_fused);
    const TokenBatch first = RandomBatch({7, 1}, config.vocab_size());
    const TokenBatch second = RandomBatch({3, 5}, config.vocab_size(), 2);
    int kernels[2];
    for (Decoder* const like : {cpu.get(), fused.get()}) {
      const auto gpu = OnGpu(*like);
      GpuBatch batch(*gpu_, {.tokens = 8, .segments = 2});
      ASSERT_EQ(batch.Upload(first, 0.25), absl::OkStatus());
      std::int64_t allocations;
      do {  // until there is the memory that a pass takes
        allocations = gpu->activation_allocations();
        gpu->EnqueueForwardBackward(batch);
      } while (gpu->activation_allocations() != allocations);
      EXPECT_EQ(*batch.ReadLoss(), cpu->ForwardBackward(first, 0.25, pool_));
      ExpectEqualGradients(*gpu, *cpu);
      const auto graph = gpu_->Capture([&] {
        gpu->EnqueueForwardBackward(batch);
        return absl::OkStatus();
      });
      ASSERT_TRUE(graph.ok()) << graph.status();
      ASSERT_EQ(batch.Upload(second, 0.25), absl::OkStatus());
      ASSERT_EQ((*graph)->Launch(), absl::OkStatus());
      EXPECT_EQ(*batch.ReadLoss(), fused->ForwardBackward(second, 0.25, pool_));
      ExpectEqualGradients(*gpu, *fused);
      EXPECT_EQ(gpu->activation_allocations(), allocations);
      kernels[like == fused.get()] = (*graph)->kernels();
    }
    EXPECT_EQ(kernels[0], kernels[1] + config.num_layers());
  }
}

TEST_P(DecoderOnGpu, UnfusedQkvReportsAPositionThatIsOutOfRange) {
  const auto gpu = OnGpu(*OnCpu(UnfusedSparkConfig()));
  TokenBatch bad = RandomBatch({5, 3}, gpu->config().vocab_size());
  bad.positions[2] = gpu->config().max_sequence_length();
  GpuBatch memory(*gpu_, {.tokens = 8, .segments = 2});
  ASSERT_EQ(memory.Upload(bad, 1), absl::OkStatus());
  gpu->EnqueueForwardBackward(memory);
  EXPECT_EQ(memory.ReadLoss().status(),
            absl::InvalidArgumentError("PrepareQkv: position 2 is out of range"));
}

TEST_P(DecoderOnGpu, InitialWeightsAreThoseOfTheCpu) {
  for (const ModelConfig& config : {EverythingConfig(), PlainConfig()}) {
    const auto cpu = *Decoder::Create(config, {.compute = GetParam()});
    const auto gpu = *Decoder::Create(config, OnGpu());
    cpu->Initialize(7);
    gpu->Initialize(7);
    const std::vector<Tensor> values = *DownloadValues(*gpu_, gpu->parameters());
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_TRUE(Bytes(values[i]) == Bytes(cpu->parameters()[i]->value))
          << cpu->parameters()[i]->name;
    }
    EXPECT_EQ(gpu->weight_copy_bytes(), cpu->weight_copy_bytes());
  }
}

TEST_P(DecoderOnGpu, InferenceTakesTheMemoryOfTheParametersAndOfTheirCopies) {
  for (const ModelConfig& config : AllTestConfigs()) {
    const auto cpu = OnCpu(config);
    std::int64_t parameters = 0, gradients = 0;
    for (const Parameter* p : cpu->parameters()) {
      parameters += p->value.bytes();
      gradients += p->gradient.bytes() + p->per_group_gradient.bytes();
    }
    // What allocations are rounded up to, of the weights and as many copies, and the RoPE table.
    const std::int64_t rest = 2 * 256 * static_cast<std::int64_t>(cpu->parameters().size()) +
                              4 * config.max_sequence_length() * config.attention().head_dim();
    DecoderOptions options = OnGpu();
    const auto taken = [&] {
      const std::unique_ptr<Gpu> fresh = CreateGpuOnHost();  // it does not count what was freed
      options.gpu = fresh.get();
      const std::int64_t before = *fresh->FreeMemory();
      const auto decoder = *Decoder::Create(config, options);
      return before - *fresh->FreeMemory();
    };
    const std::int64_t training = taken();
    options.mode = DecoderMode::kInference;
    const std::int64_t inference = taken();
    EXPECT_GE(training - inference, gradients) << config.name();
    EXPECT_GE(inference, parameters + cpu->weight_copy_bytes()) << config.name();
    EXPECT_LE(inference, parameters + cpu->weight_copy_bytes() + rest) << config.name();
    EXPECT_GT(gradients, rest) << config.name() << ": too small to tell";
  }
}

TEST_P(DecoderOnGpu, InferenceHasTheLossOfTrainingAndNoBackwardPass) {
  const auto cpu = OnCpu(EverythingConfig());
  DecoderOptions options = OnGpu();
  options.mode = DecoderMode::kInference;
  const auto gpu = OnGpu(*cpu, options);
  const TokenBatch batch = RandomBatch({5, 3}, cpu->config().vocab_size());
  EXPECT_EQ(gpu->Loss(batch, pool_), cpu->Loss(batch, pool_));
  GpuBatch memory(*gpu_, {.tokens = 8, .segments = 2});
  EXPECT_DEATH(gpu->EnqueueForwardBackward(memory), "a backward pass needs DecoderMode::kTraining");
  EXPECT_DEATH(gpu->ForwardBackward(batch, 1, pool_), "a backward pass needs");
}

TEST_P(DecoderOnGpu, WhatIsOutOfRangeIsReportedWithTheLoss) {
  const auto cpu = OnCpu(EverythingConfig()), gpu = OnGpu(*cpu);
  const TokenBatch good = RandomBatch({5, 3}, cpu->config().vocab_size());
  GpuBatch memory(*gpu_, {.tokens = 8, .segments = 2});
  const auto report = [&](const TokenBatch& batch) {
    EXPECT_EQ(memory.Upload(batch, 1), absl::OkStatus());
    gpu->EnqueueForwardBackward(memory);
    return memory.ReadLoss().status();
  };
  TokenBatch bad = good;
  bad.inputs[3] = static_cast<std::int32_t>(cpu->config().vocab_size());
  EXPECT_EQ(report(bad), absl::InvalidArgumentError("Embedding: token 3 is out of range"));
  EXPECT_DEATH(gpu->Loss(bad, pool_), "Embedding: token 3 is out of range");
  bad = good;
  bad.targets[6] = -2;
  EXPECT_EQ(report(bad), absl::InvalidArgumentError("CrossEntropy: target 6 is out of range"));
  bad = good;
  bad.positions[2] = cpu->config().max_sequence_length();
  EXPECT_EQ(report(bad), absl::InvalidArgumentError("PrepareQkv: position 2 is out of range"));
  // Nothing stays behind.
  EXPECT_EQ(report(good), absl::OkStatus());
  bad = good;
  bad.segments[1].query_begin = 4;
  EXPECT_DEATH(static_cast<void>(memory.Upload(bad, 1)), "must go on at 5");
}

INSTANTIATE_TEST_SUITE_P(Dtypes, DecoderOnGpu, testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& info) { return Name(info.param); });

TEST(OpsOnGpuDeathTest, WhatToDoWithoutMemoryIsSaid) {
  const std::unique_ptr<Gpu> gpu = CreateGpuOnHost();
  EXPECT_DEATH(BlocksOf(*gpu)(std::int64_t{1} << 40),
               "no room on the GPU for 1.0 TiB more .*; try fewer tokens at a time");
}

TEST(OpsOnGpu, RowsAreCopiedWhereTheyOverlapToo) {
  const std::unique_ptr<Gpu> gpu = CreateGpuOnHost();
  StoragePool storage(Device::kCuda, BlocksOf(*gpu));
  const OpContext ctx = {.device = Device::kCuda,
                         .launchers = &OnHostLaunchers(),
                         .gpu = gpu.get(),
                         .storage = &storage};
  const Tensor host = Tensor::Empty({4, 2}, DType::kF32, Device::kCpu);
  for (int i = 0; i < 8; ++i) host.data<float>()[i] = static_cast<float>(i);
  const Tensor x = ctx.Empty({4, 2});
  ASSERT_EQ(Upload(*gpu, host, x), absl::OkStatus());
  ops::CopyRows(ctx, x, 0, x, 1, 3);
  const Tensor moved = *Download(*gpu, x);
  EXPECT_EQ(std::vector<float>(moved.data<float>(), moved.data<float>() + 8),
            (std::vector<float>{0, 1, 0, 1, 2, 3, 4, 5}));
  ops::CopyRows(ctx, x, 3, x, 0, 1);
  const Tensor apart = *Download(*gpu, x);
  EXPECT_EQ(apart.data<float>()[0], 4);
}

// Forward and backward, of tensors that start so many elements off a multiple of 64 bytes.
std::vector<std::string> PrepareQkvOnGpu(std::int64_t tokens, bool unfused, std::int64_t off) {
  const std::unique_ptr<Gpu> gpu = CreateGpuOnHost();
  StoragePool storage(Device::kCuda, BlocksOf(*gpu));
  const OpContext ctx = {.device = Device::kCuda,
                         .launchers = &OnHostLaunchers(),
                         .gpu = gpu.get(),
                         .storage = &storage};
  int seed = 0;
  const auto random = [&](const Shape& shape) {
    const Tensor host = Tensor::Empty(shape, DType::kF32, Device::kCpu);
    ++seed;
    for (std::int64_t i = 0; i < host.size(); ++i) {
      host.data<float>()[i] = static_cast<float>((i * 37 + seed * 11) % 101 - 50) / 64;
    }
    Tensor device = ctx.Empty({host.size() + off}).Slice(off, host.size()).View(shape);
    EXPECT_EQ(Upload(*gpu, host, device), absl::OkStatus());
    return device;
  };
  const QkvPreparation op = {
      .layout = *PackedQkv::Interleaved({.query_heads = 2, .kv_heads = 1, .head_dim = 64}),
      .norm = HeadNorm::kWeighted,
      .query_scale = 1.5f};
  const Tensor packed = random({tokens, 4 * 64});
  const ops::QkvArguments arguments = {
      .op = op, .q_weight = random({64}), .k_weight = random({64}), .unfused = unfused};
  const ops::Qkv gradients = {
      .q = random({tokens, 128}), .k = random({tokens, 64}), .v = random({tokens, 64})};
  Tensor dq_weight = ctx.Empty({1, 64}), dk_weight = ctx.Empty({1, 64});
  const ops::Qkv out = ops::PrepareQkv(ctx, arguments, packed);
  const Tensor dpacked =
      ops::PrepareQkvBackward(ctx, arguments, packed, gradients, &dq_weight, &dk_weight);
  std::vector<std::string> bytes;
  for (const Tensor& tensor : {out.q, out.k, out.v, dpacked, dq_weight, dk_weight}) {
    bytes.push_back(Bytes(*Download(*gpu, tensor)));
  }
  return bytes;
}

TEST(OpsOnGpu, UnfusedQkvTakesRowsThatStartAnywhere) {
  for (const std::int64_t off : {0, 1}) {
    EXPECT_TRUE(PrepareQkvOnGpu(5, true, off) == PrepareQkvOnGpu(5, false, 0)) << off;
  }
}

TEST(OpsOnGpu, UnfusedQkvTakesNoTokens) {
  const std::vector<std::string> bytes = PrepareQkvOnGpu(0, true, 0);
  EXPECT_EQ(bytes[3], "");
  EXPECT_EQ(bytes[4], std::string(64 * sizeof(float), 0));
  EXPECT_EQ(bytes[5], std::string(64 * sizeof(float), 0));
}

TEST(DecoderOnGpuTest, WhatAGpuCannotRunIsRefused) {
  const std::unique_ptr<Gpu> gpu = CreateGpuOnHost();
  DecoderOptions options = {
      .device = Device::kCuda, .gpu = gpu.get(), .launchers = &OnHostLaunchers()};
  const auto refusal = [&](const ModelConfig& config) {
    return std::string(Decoder::Create(config, options).status().message());
  };
  ModelConfig config = ExpertsConfig();
  config.mutable_ffn()->mutable_moe()->set_num_experts(5000);
  EXPECT_EQ(refusal(config),
            "ffn.moe.num_experts: found 5000, expected at most 4096 with CUDA kernels");
  config = PlainConfig();
  config.mutable_attention()->set_unfused_qkv(true);
  EXPECT_EQ(
      refusal(config),
      "attention.unfused_qkv: found true, expected false: the unfused CUDA kernels take heads of "
      "64 or 128 elements, found 8");
  // Of a layer that rotates, though others do not.
  config = UnfusedSparkConfig();
  config.mutable_attention()->mutable_rope()->set_rotary_dim(32);
  EXPECT_EQ(refusal(config),
            "attention.unfused_qkv: found true, expected false: the unfused CUDA kernels take RoPE "
            "over the whole head of 64, found 32");
  options.compute = DType::kF64;
  options.gemm = GemmBackend::kContract;
  EXPECT_EQ(refusal(PlainConfig()), "double precision has no CUDA kernels: use F32 or BF16");
}

}  // namespace
}  // namespace headwise
