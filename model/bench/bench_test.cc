// What `muse bench` says of samples, what its kernels must move, what it refuses, and that every
// unit and kernel runs. No time decides anything here.
#include "model/bench/bench.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/dtype/dtype.h"
#include "core/tensor/row_span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/adamw/adamw.h"
#include "kernels/adamw/cuda.h"
#include "kernels/elementwise/cuda.h"
#include "kernels/emulation/emulation.h"
#include "kernels/launchers/test_gpu.h"
#include "kernels/swiglu/cuda.h"
#include "model/bench/batches.h"
#include "model/bench/cpu_device.h"
#include "model/bench/gpu_device.h"
#include "model/bench/kernel_cases.h"
#include "model/bench/traffic.h"
#include "model/config.h"
#include "model/counts.h"
#include "model/decoder.h"
#include "model/presets/presets.h"
#include "model/test_config.h"
#include "model/train/run_config.h"
#include "nlohmann/json.hpp"
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

// --- bytes and operations ---

// Of docs/performance.md.
TEST(TrafficTest, QkvBytesAreThoseOfTheKernels) {
  const QkvTraffic muse = {.tokens = 1,
                           .query_heads = 128,
                           .kv_heads = 16,
                           .head_dim = 64,
                           .norm = true,
                           .element = 2,
                           .between = 2};
  EXPECT_EQ(PrepareQkvBytes(muse), 40960);
  EXPECT_EQ(PrepareQkvBackwardBytes(muse), 59392);
  EXPECT_EQ(UnfusedQkvBytes(muse), 114688);
  // The unfused CUDA kernels keep the split q and k, which these split again.
  EXPECT_EQ(UnfusedQkvBackwardBytes(muse), 133120 + 2 * (128 + 16) * 64 * 2);
  QkvTraffic plain = muse;
  plain.norm = false;
  EXPECT_EQ(PrepareQkvBytes(plain), 40960);
  EXPECT_EQ(PrepareQkvBackwardBytes(plain), 40960);  // q and k of packed are not needed
  EXPECT_EQ(UnfusedQkvBytes(plain), 114688 - 36864);
  QkvTraffic late = muse;  // Rounding::kOnlyAtEnd
  late.between = 4;
  EXPECT_EQ(UnfusedQkvBytes(late), 114688 + 36864);
}

// The bytes that an emulated launch moves to and from the named regions, all of them together.
class CountedBytes {
 public:
  template <typename T>
  void Region(const std::string& name, std::vector<T>& values) {
    names_.push_back(name);
    session_.AddRegion(name, values.data(), static_cast<std::int64_t>(values.size() * sizeof(T)),
                       emulation::Access::kReadWrite);
  }
  std::int64_t Sum() const {
    std::int64_t sum = 0;
    for (const std::string& name : names_) {
      sum += session_.traffic(name).loads + session_.traffic(name).stores;
    }
    return sum;
  }

 private:
  emulation::Session session_{{.count_traffic = true}};
  std::vector<std::string> names_;
};

TEST(TrafficTest, FormulasAreWhatEmulatedKernelsMove) {
  constexpr std::int64_t kRows = 16, kWidth = 64;
  std::vector<BFloat16> a(kRows * kWidth), b(a), c(a), d(a), e(a);
  const auto rows = [](std::vector<BFloat16>& v) {
    return RowSpan<BFloat16>(v.data(), kRows, kWidth);
  };
  {
    CountedBytes bytes;
    bytes.Region("a", a), bytes.Region("b", b), bytes.Region("c", c);
    ASSERT_TRUE(cuda_emulated::Add<BFloat16>(rows(a), rows(b), rows(c), nullptr).ok());
    EXPECT_EQ(bytes.Sum(), MatrixBytes(3, kRows, kWidth, 2));
  }
  {
    CountedBytes bytes;
    bytes.Region("a", a), bytes.Region("b", b), bytes.Region("c", c);
    ASSERT_TRUE(
        cuda_emulated::SwigluForward<BFloat16>({}, rows(a), rows(b), rows(c), nullptr).ok());
    EXPECT_EQ(bytes.Sum(), MatrixBytes(3, kRows, kWidth, 2));
  }
  {
    CountedBytes bytes;
    bytes.Region("a", a), bytes.Region("b", b), bytes.Region("c", c), bytes.Region("d", d);
    bytes.Region("e", e);
    ASSERT_TRUE(cuda_emulated::SigmoidGateBackward<BFloat16>(rows(a), rows(b), rows(c), rows(d),
                                                             rows(e), nullptr)
                    .ok());
    EXPECT_EQ(bytes.Sum(), MatrixBytes(5, kRows, kWidth, 2));
  }
  {
    std::vector<float> w(256, 1), m(256), v(256), g(256, 1);
    std::vector<AdamWFactors<float>> factors = {MakeAdamWFactors<float>({}, 1, 1)};
    emulation::Session session({.count_traffic = true});
    std::int64_t sum = 0;
    std::map<std::string, std::vector<float>*> all = {{"w", &w}, {"m", &m}, {"v", &v}, {"g", &g}};
    for (const auto& [name, values] : all) {
      session.AddRegion(name, values->data(), 256 * 4, emulation::Access::kReadWrite);
    }
    session.AddRegion("factors", factors.data(), sizeof(factors[0]), emulation::Access::kRead);
    ASSERT_TRUE(cuda_emulated::AdamWStep(factors.data(), absl::MakeSpan(w), absl::MakeSpan(m),
                                         absl::MakeSpan(v), g, nullptr)
                    .ok());
    for (const auto& [name, values] : all) {
      sum += session.traffic(name).loads + session.traffic(name).stores;
    }
    EXPECT_EQ(sum, AdamWBytes(256));
  }
}

TEST(TrafficTest, VisiblePairsAreThoseOfTheMask) {
  for (const std::int64_t window : {0, 1, 3, 9, 20}) {
    std::int64_t pairs = 0;
    for (std::int64_t q = 0; q < 9; ++q) {
      for (std::int64_t k = 0; k <= q; ++k) pairs += window == 0 || q - k < window;
    }
    EXPECT_EQ(VisiblePairs(9, window), pairs) << window;
  }
}

// A prompt's forward pass is a third of a training step, but for the head, which sees one token.
TEST(TrafficTest, PrefillIsTheForwardPass) {
  for (const char* name : {"muse_demo", "muse_spark_tiny", "llama3_tiny"}) {
    const ModelConfig model = Preset(name).model();
    constexpr std::int64_t kTokens = 100;
    const double head = 2.0 * static_cast<double>(model.vocab_size() * model.dim());
    EXPECT_NEAR(PrefillFlops(model, kTokens),
                kTokens * TrainingFlopsPerToken(model, kTokens) / 3 - (kTokens - 1) * head, 1)
        << name;
  }
}

TEST(TrafficTest, DecodingReadsWeightsOnceAndEveryRowsKeys) {
  const ModelConfig model = Preset("muse_demo").model();  // windows 64, 64, 64, 0; 2 kv heads of 64
  const auto weights = static_cast<double>(CountParameters(model).matmul);
  // Layers 0 ... 5 of 6: counted from the last, so 4 with a window and 2 without.
  const double keys = 2.0 * 128 * (4 * 64 + 2 * 1001);
  EXPECT_EQ(DecodeBytes(model, 3, 1000, 2), 2 * (weights + 3 * keys));
}

TEST(KernelCasesTest, ProductsAreThoseOfATrainingStep) {
  for (const char* name :
       {"muse_demo", "muse_17m", "muse_spark_tiny", "muse_glimmer_tiny", "gpt_oss_tiny"}) {
    const RunConfig config = Preset(name);
    constexpr std::int64_t kTokens = 64;
    double products = 0, attention = 0;
    for (const KernelCase& c : StepKernels(config, kTokens, true)) {
      (c.name.rfind("attention", 0) == 0 ? attention : products) +=
          c.flops * static_cast<double>(c.calls);
    }
    const ModelConfig& model = config.model();
    double routers = 0;
    for (std::int64_t l = 0; l < model.num_layers(); ++l) {
      if (LayerHasExperts(model, l)) {
        routers += static_cast<double>(model.ffn().moe().num_experts() * model.dim());
      }
    }
    const auto matmul = static_cast<double>(CountParameters(model).matmul);
    EXPECT_EQ(products, 6 * kTokens * (matmul - routers)) << name;
    const std::int64_t length = std::min(kTokens, config.training().sequence_length());
    const double whole = kTokens * TrainingFlopsPerToken(model, length);
    // The backward pass computes the scores again: 14 products in place of 12.
    EXPECT_NEAR(attention, (whole - 6 * kTokens * matmul) * 14 / 12, 1e-6 * whole) << name;
  }
}

TEST(KernelCasesTest, OptimizerStepsEveryMatrix) {
  for (const char* name : {"muse_demo", "muse_17m", "muse_spark_tiny", "muse_glimmer_tiny",
                           "llama3_tiny", "gpt_oss_tiny"}) {
    const RunConfig config = Preset(name);
    const auto meta = *Decoder::Create(config.model(), {.device = Device::kMeta});
    std::vector<const Parameter*> parameters(meta->parameters().begin(), meta->parameters().end());
    std::int64_t muon = 0, adamw_matrices = 0;
    const auto groups = *AssignGroups(parameters, Granularity::kWholeMatrix, 0);
    for (const GroupedParameter& group : groups) {
      if (group.blocks.has_value()) muon += group.assignment.elements;
    }
    for (const Parameter* p : parameters) {
      const bool matrix = p->value.rank() == 2 && !IsHiddenMatrix(p->role);
      if (matrix && p->role != ParameterRole::kBias) adamw_matrices += p->value.size();
    }
    std::map<std::string, std::int64_t> bytes;
    for (const KernelCase& c : StepKernels(config, 16, true)) bytes[c.name] = c.bytes;
    EXPECT_EQ(bytes["muon_step"], MuonStepBytes(muon)) << name;
    EXPECT_EQ(bytes["adamw"], AdamWBytes(adamw_matrices)) << name;
  }
}

TEST(KernelCasesTest, LargestComesFirstAndUnfusedOnlyIfAskedFor) {
  const RunConfig config = Preset("muse_spark_tiny");
  const std::vector<KernelCase> cases = StepKernels(config, 64, true);
  std::set<std::string> names;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    EXPECT_TRUE(names.insert(cases[i].name).second) << cases[i].name << " is there twice";
    if (i == 0) continue;
    EXPECT_GE(cases[i - 1].calls * cases[i - 1].bytes, cases[i].calls * cases[i].bytes);
  }
  EXPECT_EQ(names.count("unfused_qkv.forward"), 1);
  for (const KernelCase& c : StepKernels(config, 64, false)) {
    EXPECT_EQ(c.name.find("unfused"), std::string::npos) << c.name;
  }
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
  plan.unfused = plan.kernels = false;
  const double one = *MemoryNeeded(plan);
  const auto parameters = static_cast<double>(CountParameters(plan.config.model()).total);
  EXPECT_GT(one, 12 * parameters);
  EXPECT_LT(one, 100 * parameters);
  plan.unfused = true;
  EXPECT_NEAR(*MemoryNeeded(plan), 2 * one, 0.1 * one);
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
  EXPECT_THAT(ErrorOf(CheckMemory(plan, *cpu).status()),
              EndsWith("; try fewer --layers, fewer --tokens, --fused-only, a smaller --preset, or "
                       "--set, e.g. of model.ffn.moe.num_experts or model.vocab_size"));
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

// --- report ---

UnitResult SomeUnit() {
  return {.unit = "train",
          .tokens = 100,
          .done = 100,
          .flops = 600,
          .floor_flops = 1000,
          .fused = {2, 2, 2},
          .unfused = {3, 4, 5},
          .floor = {1, 1, 1}};
}

TEST(ReportTest, FiguresOfAUnit) {
  std::map<std::string, Figure> figures;
  for (const Figure& figure : Figures(SomeUnit())) figures[figure.name] = figure;
  ASSERT_EQ(figures.size(), 8);
  EXPECT_EQ(figures["train/fused/time"].summary.median, 2000);
  EXPECT_EQ(figures["train/fused/time"].unit, "ms");
  EXPECT_EQ(figures["train/fused/rate"].summary.median, 50);
  // 300 operations a second of 1000.
  EXPECT_DOUBLE_EQ(figures["train/fused/share_of_product"].summary.median, 0.3);
  EXPECT_DOUBLE_EQ(figures["train/unfused/share_of_product"].summary.median, 0.15);
  EXPECT_DOUBLE_EQ(figures["train/unfused_over_fused"].summary.median, 2);
  EXPECT_DOUBLE_EQ(figures["train/unfused_over_fused"].summary.spread, 0.25);
  EXPECT_DOUBLE_EQ(figures["train/product"].summary.median, 1e-6);
  EXPECT_THAT(UnitLines(SomeUnit()), HasSubstr("unfused / fused 2.000, spread 25.0 %"));
}

TEST(ReportTest, OneRoundHasNoSpread) {
  UnitResult unit = SomeUnit();
  unit.fused = unit.unfused = unit.floor = {2};
  EXPECT_THAT(UnitLines(unit), HasSubstr("2000.000        - "));
  EXPECT_THAT(UnitLines(unit), HasSubstr("unfused / fused 1.000, spread -\n"));
  const KernelResult kernel = {.name = "k", .bytes = 1, .copied = 1, .seconds = {2}, .copy = {1}};
  EXPECT_THAT(KernelLine(kernel), HasSubstr("2000.000        - "));
  const auto spread = [](const Figure& figure) {
    return nlohmann::json::parse(ToJson(figure, {}))["spread"];
  };
  EXPECT_TRUE(spread(Figures(unit)[0]).is_null());
  EXPECT_TRUE(spread(Figures(SomeUnit())[0]).is_number());
  EXPECT_EQ(spread(Figures(kernel)[0]), 0);  // a count, which was not measured
}

TEST(ReportTest, FiguresOfDecodingAreOfACopy) {
  UnitResult decode = SomeUnit();
  decode.unit = "decode";
  decode.flops = decode.floor_flops = 0;
  decode.bytes = 4e9;
  decode.floor_bytes = 1e9;
  decode.unfused.clear();
  std::map<std::string, Figure> figures;
  for (const Figure& figure : Figures(decode)) figures[figure.name] = figure;
  ASSERT_EQ(figures.size(), 4);
  EXPECT_DOUBLE_EQ(figures["decode/fused/share_of_copy"].summary.median, 2);
  EXPECT_DOUBLE_EQ(figures["decode/copy"].summary.median, 1);
}

TEST(ReportTest, FiguresOfAKernel) {
  const KernelResult kernel = {.name = "wo.forward",
                               .tokens = 100,
                               .calls = 6,
                               .bytes = 2000000000,
                               .copied = 1e9,
                               .flops = 600,
                               .floor_flops = 1000,
                               .seconds = {2, 2},
                               .copy = {1, 1},
                               .product = {1, 1}};
  std::map<std::string, Figure> figures;
  for (const Figure& figure : Figures(kernel)) figures[figure.name] = figure;
  ASSERT_EQ(figures.size(), 6);
  EXPECT_EQ(figures["kernel/wo.forward/calls"].summary.median, 6);
  EXPECT_EQ(figures["kernel/wo.forward/bytes"].summary.median, 2e9);
  EXPECT_EQ(figures["kernel/wo.forward/time"].summary.median, 2000);
  EXPECT_DOUBLE_EQ(figures["kernel/wo.forward/bandwidth"].summary.median, 1);
  EXPECT_DOUBLE_EQ(figures["kernel/wo.forward/share_of_copy"].summary.median, 1);
  EXPECT_DOUBLE_EQ(figures["kernel/wo.forward/share_of_product"].summary.median, 0.3);
}

TEST(ReportTest, JsonHasTheDocumentedKeysInOneLine) {
  const BenchContext context = {.preset = "dir/a\"b\n\xff.textproto",
                                .layers = 6,
                                .dtype = "BF16",
                                .device = "cpu",
                                .threads = 2};
  const std::string line = ToJson(Figures(SomeUnit())[0], context);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const auto json = nlohmann::ordered_json::parse(line);
  std::vector<std::string> keys;
  for (const auto& item : json.items()) keys.push_back(item.key());
  EXPECT_THAT(keys,
              ElementsAre("name", "unit", "value", "spread", "mean", "min", "max", "samples",
                          "tokens", "rows", "preset", "layers", "dtype", "device", "threads"));
  EXPECT_EQ(json["name"], "train/fused/time");
  EXPECT_EQ(json["value"], 2000);
  EXPECT_EQ(json["samples"], 3);
  EXPECT_EQ(json["tokens"], 100);
  EXPECT_EQ(json["layers"], 6);
}

}  // namespace
}  // namespace headwise
