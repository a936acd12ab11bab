// What `muse bench` says of samples, what it refuses, and that every unit and kernel runs. No time
// decides anything here.
#include "model/bench/bench.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/cuda/gpu.h"
#include "core/proto/config.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/launchers/launchers.h"
#include "kernels/launchers/test_gpu.h"
#include "kernels/muon_step/cuda.h"
#include "model/bench/batches.h"
#include "model/bench/cpu_device.h"
#include "model/bench/gpu_device.h"
#include "model/bench/kernel_cases.h"
#include "model/config.h"
#include "model/counts.h"
#include "model/presets/presets.h"
#include "model/test_config.h"
#include "model/train/run_config.h"
#include "optim/groups.h"

namespace headwise {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;

RunConfig Preset(const std::string& name) { return ResolveRunConfig(*LoadPreset(name)); }

// --- statistics ---

TEST(StatisticsTest, SummaryIsOfAllSamples) {
  const Summary s = Summarize({4.0, 1.0, 3.0, 2.0});
  EXPECT_EQ(s.samples, 4);
  EXPECT_DOUBLE_EQ(s.median, 2.5);
  EXPECT_DOUBLE_EQ(s.mean, 2.5);
  EXPECT_EQ(s.min, 1);
  EXPECT_EQ(s.max, 4);
  EXPECT_NEAR(s.spread, 1.2909944487358056 / 2.5, 1e-15);  // sqrt(5 / 3) / mean
  EXPECT_DOUBLE_EQ(Summarize({5.0, 9.0, 1.0}).median, 5);
  EXPECT_EQ(Summarize({5.0}).spread, 0);
  EXPECT_EQ(Summarize({}).samples, 0);
}

TEST(StatisticsTest, RatiosAreOfTheSameRound) {
  EXPECT_THAT(Ratios({2.0, 9.0}, {1.0, 3.0}), ElementsAre(2, 3));
  EXPECT_THAT(Rates(12, {2.0, 3.0}), ElementsAre(6, 4));
}

// --- clock ---

// Notes what is called; a run takes `seconds` by its own clock.
class NotingRunner : public UnitRunner {
 public:
  NotingRunner(char name, double seconds, std::string* log)
      : name_(name), seconds_(seconds), log_(log) {}
  absl::Status Prepare() override {
    prepared_ = true;
    return absl::OkStatus();
  }
  absl::Status Run() override {
    EXPECT_TRUE(prepared_) << "every run is prepared";
    prepared_ = false;
    log_->push_back(name_);
    return fail_at == static_cast<int>(log_->size()) ? absl::DataLossError("broken")
                                                     : absl::OkStatus();
  }
  absl::StatusOr<double> Seconds() override { return seconds_; }

  int fail_at = 0;

 private:
  char name_;
  double seconds_;
  std::string* log_;
  bool prepared_ = false;
};

TEST(ClockTest, ContendersTakeTurnsAndTheBeginnerChanges) {
  std::string log;
  NotingRunner a('a', 1, &log), b('b', 2, &log), c('c', 3, &log);
  const absl::StatusOr<Samples> samples = Measure({&a, &b, &c}, {.rounds = 4});
  ASSERT_TRUE(samples.ok());
  EXPECT_EQ(log, "aabbccabcbcacababc");
  EXPECT_THAT(*samples, ElementsAre(std::vector<double>(4, 1), std::vector<double>(4, 2),
                                    std::vector<double>(4, 3)));
}

TEST(ClockTest, ShortWorkIsRepeatedAndASampleIsItsMean) {
  std::string log;
  NotingRunner a('a', 0.25, &log), b('b', 1, &log);
  const absl::StatusOr<Samples> samples = Measure({&a, &b}, {.rounds = 1, .sample_seconds = 1});
  ASSERT_TRUE(samples.ok());
  EXPECT_EQ(log, "aabbaaaab");
  EXPECT_THAT(*samples, ElementsAre(ElementsAre(0.25), ElementsAre(1)));
}

TEST(ClockTest, AnErrorEndsIt) {
  std::string log;
  NotingRunner a('a', 1, &log);
  a.fail_at = 4;
  EXPECT_EQ(Measure({&a}, {.rounds = 7}).status(), absl::DataLossError("broken"));
  EXPECT_EQ(log, "aaaa");
}

// --- what is refused ---

std::string ErrorOf(const absl::Status& status) { return std::string(status.message()); }

TEST(BenchPlanTest, TokensAreNumbersOnce) {
  EXPECT_THAT(*ParseTokens("2048,1,512"), ElementsAre(1, 512, 2048));
  for (const char* text : {"", "0", "-1", "12x", "1,,2", "1e3", "99999999999999999999"}) {
    EXPECT_EQ(ParseTokens(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
  EXPECT_THAT(ErrorOf(ParseTokens("8,two").status()), HasSubstr("found 'two' in '8,two'"));
  EXPECT_THAT(ErrorOf(ParseTokens("8,8").status()), HasSubstr("found 8 twice"));
}

TEST(BenchPlanTest, UnitsAreNamed) {
  BenchPlan plan;
  ASSERT_TRUE(ParseUnits("decode,train", &plan).ok());
  EXPECT_TRUE(plan.train && plan.decode);
  EXPECT_FALSE(plan.prefill || plan.kernels);
  EXPECT_THAT(ErrorOf(ParseUnits("prefil", &plan)), HasSubstr("did you mean 'prefill'?"));
}

TEST(BenchPlanTest, SequencesFitTheModel) {
  BenchPlan plan = {.config = Preset("muse_demo"), .tokens = {16, 2048}};
  EXPECT_TRUE(CheckPlan(plan).ok());
  plan.tokens.push_back(2049);
  EXPECT_THAT(ErrorOf(CheckPlan(plan)),
              HasSubstr("found 2049, expected at most model.max_sequence_length = 2048"));
  plan.prefill = plan.decode = false;  // a training batch has as many sequences as it takes
  EXPECT_TRUE(CheckPlan(plan).ok());
  plan.rows = 0;
  EXPECT_THAT(ErrorOf(CheckPlan(plan)), HasSubstr("--rows"));
}

TEST(BenchPlanTest, MemoryIsThatOfTheModelsAndNotMoreThanThereIs) {
  BenchPlan plan = {.config = Preset("muse_demo"), .tokens = {256}};
  plan.decode = plan.unfused = plan.kernels = false;
  const double one = *MemoryNeeded(plan);
  const auto parameters = static_cast<double>(CountParameters(plan.config.model()).total);
  EXPECT_GT(one, 12 * parameters);
  EXPECT_LT(one, 100 * parameters);
  plan.unfused = true;
  EXPECT_NEAR(*MemoryNeeded(plan), 2 * one, 0.1 * one);
  // Inference takes the weights, no gradients and no momentum; decoding a cache and the copy beside
  // it, which reads and writes what a step must read.
  BenchPlan inference = plan;
  inference.train = inference.unfused = false;
  EXPECT_GT(*MemoryNeeded(inference), 4 * parameters);
  EXPECT_LT(*MemoryNeeded(inference), 6 * parameters);
  inference.prefill = false;
  inference.decode = true;
  inference.rows = 1;
  EXPECT_GT(*MemoryNeeded(inference), 7.5 * parameters);
  EXPECT_LT(*MemoryNeeded(inference), 10 * parameters);
  // 4 layers of Muse Spark: 55 billion parameters, twice.
  plan.config = Preset("muse_spark");
  plan.config.mutable_model()->set_num_layers(4);
  const absl::StatusOr<double> fits = CheckMemory(plan, *MakeCpuBenchDevice(1));
  EXPECT_EQ(fits.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(ErrorOf(fits.status()), HasSubstr("muse_spark of 4 layers with 256 tokens needs 1."));
  EXPECT_THAT(ErrorOf(fits.status()), HasSubstr("TiB on cpu"));
}

TEST(BenchPlanTest, MemoryHintsFitWhatWasAskedFor) {
  const std::unique_ptr<BenchDevice> cpu = MakeCpuBenchDevice(1);
  BenchPlan plan = {.config = Preset("muse_spark"), .tokens = {256}};
  plan.config.mutable_model()->set_num_layers(4);
  EXPECT_THAT(
      ErrorOf(CheckMemory(plan, *cpu).status()),
      EndsWith("; try --units prefill,decode, fewer --layers, fewer --tokens, --fused-only, a "
               "smaller --preset, or --set, e.g. of model.ffn.moe.num_experts or "
               "model.vocab_size"));
  // Rows that decode together are most of it, of a small model without experts.
  plan = {.config = Preset("muse_demo"), .tokens = {1}, .rows = 1 << 20};
  plan.config.mutable_model()->set_num_layers(1);
  plan.config.mutable_model()->mutable_ffn()->set_hidden_dim(1 << 20);
  plan.unfused = plan.train = plan.kernels = false;
  EXPECT_THAT(ErrorOf(CheckMemory(plan, *cpu).status()),
              EndsWith("; try fewer --rows, a smaller --preset, or --set, e.g. of "
                       "model.vocab_size"));
}

// --- running ---

TEST(BatchesTest, SequencesAreCutWhereTheyEnd) {
  const TokenBatch batch = RandomTrainingBatch(10, 4, 7);
  EXPECT_EQ(batch.segments.size(), 3);
  EXPECT_EQ(batch.segments[2].num_queries, 2);
  EXPECT_THAT(batch.positions, ElementsAre(0, 1, 2, 3, 0, 1, 2, 3, 0, 1));
  EXPECT_TRUE(std::all_of(batch.inputs.begin(), batch.inputs.end(),
                          [](std::int32_t id) { return id >= 0 && id < 7; }));
}

BenchPlan SmallPlan(const std::string& preset) {
  BenchPlan plan = {.config = Preset(preset), .tokens = {3, 20}, .rows = 2};
  plan.config.mutable_model()->set_num_layers(2);
  plan.clock = {.rounds = 1, .sample_seconds = 0};
  return plan;
}

TEST(BenchTest, EveryUnitIsMeasuredAtEverySize) {
  std::vector<std::string> units;
  const absl::Status status =
      MeasureUnits(SmallPlan("muse_spark_tiny"), *MakeCpuBenchDevice(1), [&](const UnitResult& r) {
        units.push_back(r.unit + std::to_string(r.tokens));
        for (const auto* seconds : {&r.fused, &r.unfused, &r.floor}) {
          ASSERT_EQ(seconds->size(), 1) << r.unit;
          EXPECT_GT(seconds->front(), 0) << r.unit;
        }
        EXPECT_EQ(r.done, r.unit == "decode" ? 2 : r.tokens);
        EXPECT_EQ(r.rows, r.unit == "decode" ? 2 : 1);
        EXPECT_EQ(r.flops > 0, r.unit != "decode");
        EXPECT_EQ(r.bytes > 0, r.unit == "decode");
      });
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(units,
              ElementsAre("train3", "train20", "prefill3", "prefill20", "decode3", "decode20"));
}

// A cache that took one token more than it has room for would fail a check.
TEST(BenchTest, DecodingBeginsAgainWhenRowsAreFull) {
  BenchPlan plan = SmallPlan("muse_spark_tiny");
  plan.train = plan.prefill = plan.unfused = false;
  plan.clock.rounds = kDecodeSteps + 4;
  const absl::Status status = MeasureUnits(plan, *MakeCpuBenchDevice(1), [&](const UnitResult& r) {
    EXPECT_EQ(r.fused.size(), plan.clock.rounds);
    EXPECT_TRUE(r.unfused.empty());
  });
  ASSERT_TRUE(status.ok()) << status;
}

TEST(BenchTest, EveryKernelRuns) {
  for (const char* name : {"muse_spark_tiny", "muse_glimmer_tiny", "gpt_oss_tiny", "muse_17m"}) {
    RunConfig config = SmallPlan(name).config;
    if (std::string(name) == "gpt_oss_tiny") config.mutable_training()->set_compute_dtype(BF16);
    const std::unique_ptr<BenchDevice> device = MakeCpuBenchDevice(1);
    for (const KernelCase& c : StepKernels(config, 20, true)) {
      absl::StatusOr<KernelWork> work = c.make(*device);
      ASSERT_TRUE(work.ok()) << name << ": " << c.name << ": " << work.status();
      const std::unique_ptr<UnitRunner> runner = device->Time(*std::move(work));
      ASSERT_TRUE(runner->Prepare().ok() && runner->Run().ok());
      EXPECT_GT(*runner->Seconds(), 0) << name << ": " << c.name;
    }
  }
}

TEST(BenchTest, KernelsAreMeasuredAtTheLargestSizeBesideTheirFloors) {
  BenchPlan plan = SmallPlan("muse_demo");
  plan.config.mutable_model()->set_num_layers(1);
  std::set<std::string> measured;
  const absl::Status status =
      MeasureKernels(plan, *MakeCpuBenchDevice(1), [&](const KernelResult& r) {
        measured.insert(r.name);
        EXPECT_EQ(r.tokens, 20);
        EXPECT_EQ(r.seconds.size(), 1) << r.name;
        EXPECT_EQ(r.copy.size(), 1) << r.name;
        EXPECT_EQ(r.product.size(), r.flops > 0 ? 1 : 0) << r.name;
      });
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(measured.size(), StepKernels(plan.config, 20, true).size());
  EXPECT_EQ(measured.count("prepare_qkv.backward"), 1);
}

// Without training there are neither gradients nor momentum.
TEST(BenchTest, InferenceUnitsTakeTheWeightsOnly) {
  BenchPlan plan = SmallPlan("muse_demo");
  plan.unfused = plan.train = plan.kernels = false;
  const double weights = 4 * static_cast<double>(CountParameters(plan.config.model()).total);
  {
    const std::unique_ptr<Gpu> gpu = CreateTestGpu();
    const auto device = MakeGpuBenchDevice(*gpu, TestLaunchers(), /*product_side=*/32);
    const double before = device->memory_bytes();
    const auto model = device->MakeModel(plan.config, DecoderMode::kInference, false);
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_GE(before - device->memory_bytes(), weights);
    EXPECT_LT(before - device->memory_bytes(), 1.5 * weights);
    EXPECT_DEATH((*model)->Train(3).IgnoreError(), "a model for inference does not train");
  }
  const std::unique_ptr<Gpu> gpu = CreateTestGpu();
  const auto device = MakeGpuBenchDevice(*gpu, TestLaunchers(), /*product_side=*/32);
  const double before = device->memory_bytes();
  double least = before;
  std::vector<std::string> units;
  const absl::Status status = MeasureUnits(plan, *device, [&](const UnitResult& r) {
    units.push_back(r.unit);
    least = std::min(least, device->memory_bytes());
  });
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(units, ElementsAre("prefill", "prefill", "decode", "decode"));
  // But for the RoPE table and the products' operands.
  EXPECT_NEAR(before - least, *MemoryNeeded(plan), 0.2 * weights);
  const std::unique_ptr<BenchDevice> cpu = MakeCpuBenchDevice(1);
  const auto on_cpu = cpu->MakeModel(plan.config, DecoderMode::kInference, false);
  EXPECT_DEATH((*on_cpu)->Train(3).IgnoreError(), "a model for inference does not train");
}

// On the host's GPU: every unit and every kernel, from graphs. Times are an emulation's.
TEST(BenchTest, AGpuMeasuresTheSame) {
  const std::unique_ptr<Gpu> gpu = CreateTestGpu();
  const std::unique_ptr<BenchDevice> device =
      MakeGpuBenchDevice(*gpu, TestLaunchers(), /*product_side=*/32);
  EXPECT_THAT(device->name(), HasSubstr("cuda: a GPU on the host"));
  BenchPlan plan = SmallPlan("muse_spark_tiny");
  EXPECT_FALSE(device->has_unfused_qkv(plan.config.model()));               // heads of 32
  *plan.config.mutable_model() = ResolveModelConfig(UnfusedSparkConfig());  // smaller still
  plan.config.mutable_model()->mutable_attention()->set_unfused_qkv(false);
  plan.config.mutable_model()->set_num_layers(2);
  plan.unfused = device->has_unfused_qkv(plan.config.model());
  EXPECT_TRUE(plan.unfused);
  EXPECT_TRUE(device->has_unfused_qkv(Preset("muse_spark").model()));
  plan.tokens = {kDecodeSteps + 2};
  std::vector<std::string> units;
  absl::Status status = MeasureUnits(plan, *device, [&](const UnitResult& r) {
    units.push_back(r.unit);
    EXPECT_GT(r.fused.front(), 0) << r.unit;
    ASSERT_FALSE(r.unfused.empty()) << r.unit;
    EXPECT_GT(r.unfused.front(), 0) << r.unit;
    EXPECT_GT(r.floor.front(), 0) << r.unit;
  });
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(units, ElementsAre("train", "prefill", "decode"));
  std::set<std::string> kernels;
  status = MeasureKernels(plan, *device, [&](const KernelResult& r) {
    kernels.insert(r.name);
    EXPECT_GT(r.seconds.front(), 0) << r.name;
  });
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(kernels.size(), StepKernels(plan.config, plan.tokens.back(), true).size());
  EXPECT_EQ(kernels.count("unfused_qkv.backward"), 1);
}

MuonMode launched_mode;

TEST(BenchTest, AGpuStepsMuonInTheConfiguredModeAndTheCpuRefusesTensorCores) {
  const std::unique_ptr<Gpu> gpu = CreateTestGpu();
  KernelLaunchers launchers = TestLaunchers();
  launchers.MuonStep = [](const MuonStepPlan& plan, const MuonStepLaunch&) {
    launched_mode = plan.mode();
    return absl::OkStatus();
  };
  const std::unique_ptr<BenchDevice> device = MakeGpuBenchDevice(*gpu, launchers, 32);
  RunConfig config = SmallPlan("muse_spark_tiny").config;
  const auto mode = [&] {
    const absl::StatusOr<KernelWork> work = device->MuonStep(config);
    EXPECT_TRUE(work.ok()) << work.status();
    if (work.ok()) work->run();
    return launched_mode;
  };
  EXPECT_EQ(mode(), MuonMode::kContract);
  config.mutable_optimizer()->mutable_muon()->set_compute_mode(TENSOR_CORE);
  EXPECT_EQ(mode(), MuonMode::kTensorCore);
  EXPECT_THAT(std::string(MakeCpuBenchDevice(1)->MuonStep(config).status().message()),
              HasSubstr("optimizer.muon.compute_mode must be CONTRACT_FP32 on the CPU"));
}

}  // namespace
}  // namespace headwise
