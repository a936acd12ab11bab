// The optimizer on a GPU has the bits of the one on the CPU, step by step and replayed from one
// graph: values, state and reports, with clipping, a schedule and steps that are skipped. On tensor
// cores Muon has the bits of its launcher, within the bound of kernels/muon_step/cuda.h.
#include "optim/gpu_optimizer.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/status_macros.h"
#include "core/cuda/gpu.h"
#include "core/dtype/dtype.h"
#include "core/heads/head_blocks.h"
#include "core/heads/packed_qkv.h"
#include "core/proto/config.pb.h"
#include "core/tensor/row_span.h"
#include "core/tensor/tensor.h"
#include "gtest/gtest.h"
#include "kernels/common/thread_pool.h"
#include "kernels/launchers/test_gpu.h"
#include "kernels/muon_step/cuda.h"
#include "kernels/muon_step/double_step.h"
#include "kernels/muon_step/muon_step.h"
#include "kernels/newton_schulz/coefficients.h"
#include "kernels/newton_schulz/double_standard_form.h"
#include "optim/defaults.h"
#include "optim/groups.h"
#include "optim/named_tensor.h"
#include "optim/optimizer.h"
#include "optim/parameter.h"
#include "optim/schedule.h"
#include "optim/settings.h"
#include "optim/step_report.h"
#include "optim/testing/test_model.h"

namespace headwise {
namespace {

constexpr std::int64_t kSteps = 4;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

OptimizerConfig TestConfig(MuonGranularity granularity = HEAD, ClipScope scope = CLIP_ALL) {
  OptimizerConfig config = DefaultOptimizerConfig();
  config.mutable_muon()->set_granularity(granularity);
  config.mutable_muon()->set_weight_decay(0.1);
  config.mutable_adamw()->set_weight_decay(0.2);
  config.mutable_schedule()->set_kind(LINEAR);
  config.mutable_schedule()->set_warmup_steps(2);
  config.set_clip_norm(0.5);
  config.set_clip_scope(scope);
  config.set_balancing_rate(0.01);
  return config;
}

std::string Bytes(const Tensor& host) {
  return {static_cast<const char*>(host.raw_data()), static_cast<std::size_t>(host.bytes())};
}

// A Gpu that counts allocations.
class CountingGpu final : public Gpu {
 public:
  int allocations = 0;

  std::string Describe() const override { return gpu_->Describe(); }
  CUstream_st* stream() const override { return gpu_->stream(); }
  absl::StatusOr<std::shared_ptr<void>> Allocate(std::int64_t bytes) override {
    ++allocations;
    return gpu_->Allocate(bytes);
  }
  absl::StatusOr<std::int64_t> FreeMemory() override { return gpu_->FreeMemory(); }
  absl::Status Copy(void* to, const void* from, std::int64_t bytes) override {
    return gpu_->Copy(to, from, bytes);
  }
  absl::Status Fill(void* to, unsigned char byte, std::int64_t bytes) override {
    return gpu_->Fill(to, byte, bytes);
  }
  absl::Status Upload(void* device, const void* host, std::int64_t bytes) override {
    return gpu_->Upload(device, host, bytes);
  }
  absl::Status Download(void* host, const void* device, std::int64_t bytes) override {
    return gpu_->Download(host, device, bytes);
  }
  absl::Status Synchronize() override { return gpu_->Synchronize(); }
  absl::StatusOr<std::unique_ptr<GpuGraph>> Capture(
      absl::FunctionRef<absl::Status()> enqueue) override {
    return gpu_->Capture(enqueue);
  }

 private:
  template <typename T>
  using In = RowSpan<const T>;
  template <typename T>
  using Out = RowSpan<T>;
  static absl::Status NoProducts() { return absl::UnimplementedError("products"); }
  absl::Status Forward(In<float>, In<float>, Out<float>) override { return NoProducts(); }
  absl::Status Forward(In<BFloat16>, In<BFloat16>, Out<BFloat16>) override { return NoProducts(); }
  absl::Status Forward(In<BFloat16>, In<BFloat16>, Out<float>) override { return NoProducts(); }
  absl::Status BackwardInput(In<float>, In<float>, Out<float>) override { return NoProducts(); }
  absl::Status BackwardInput(In<BFloat16>, In<BFloat16>, Out<BFloat16>) override {
    return NoProducts();
  }
  absl::Status BackwardInput(In<BFloat16>, In<BFloat16>, Out<float>) override {
    return NoProducts();
  }
  absl::Status BackwardWeight(In<float>, In<float>, Out<float>) override { return NoProducts(); }
  absl::Status BackwardWeight(In<BFloat16>, In<BFloat16>, Out<float>) override {
    return NoProducts();
  }

  const std::unique_ptr<Gpu> gpu_ = CreateTestGpu();
};

OptimizerConfig OnTensorCores(OptimizerConfig config) {
  config.mutable_muon()->set_compute_mode(TENSOR_CORE);
  return config;
}

void Upload(Gpu& gpu, const Tensor& host, const Tensor& device) {
  ASSERT_EQ(gpu.Upload(device.raw_data(), host.raw_data(), host.bytes()), absl::OkStatus());
}
Tensor ToGpu(Gpu& gpu, const Tensor& host) {
  Tensor copy =
      Tensor::FromStorage(*gpu.Allocate(host.bytes()), host.shape(), host.dtype(), Device::kCuda);
  Upload(gpu, host, copy);
  return copy;
}
Tensor ToHost(Gpu& gpu, const Tensor& device) {
  Tensor copy = Tensor::Empty(device.shape(), device.dtype(), Device::kCpu);
  EXPECT_EQ(gpu.Download(copy.raw_data(), device.raw_data(), copy.bytes()), absl::OkStatus());
  return copy;
}

// A model on the CPU with its optimizer, and the same on the GPU. That on the CPU is in contract
// mode whatever `config` says.
class Twins {
 public:
  explicit Twins(const OptimizerConfig& config, const Shape& large = {}) : config_(config) {
    if (!large.empty()) {
      auto& weight = model_.parameters.emplace_back(std::make_unique<Parameter>());
      weight->name = "large";
      weight->role = ParameterRole::kMlp;
      weight->value = Tensor::Zeros(large, DType::kF32, Device::kCpu);
      weight->gradient = Tensor::Zeros(large, DType::kF32, Device::kCpu);
      model_.FillValues(0);
    }
    auto& bias = model_.parameters.emplace_back(std::make_unique<Parameter>());
    bias->name = "selection_bias";
    bias->role = ParameterRole::kBalancingBias;
    bias->value = Tensor::Zeros({5}, DType::kF32, Device::kCpu);
    bias->gradient = Tensor::Zeros({5}, DType::kF32, Device::kCpu);
    for (const Parameter* p : model_.pointers()) {
      auto& copy = on_gpu_.emplace_back(std::make_unique<Parameter>(*p));
      copy->value = ToGpu(gpu_, p->value);
      copy->gradient = ToGpu(gpu_, p->gradient);
    }
    OptimizerConfig contract = config;
    contract.mutable_muon()->set_compute_mode(CONTRACT_FP32);
    cpu_ = *Optimizer::Create(contract, model_.pointers());
    Restart();
  }

  TestModel& model() { return model_; }
  CountingGpu& gpu() { return gpu_; }
  GpuOptimizer& optimizer() { return *optimizer_; }
  std::vector<Parameter*> parameters() {
    std::vector<Parameter*> parameters;
    for (const auto& p : on_gpu_) parameters.push_back(p.get());
    return parameters;
  }

  void FillGradients(std::int64_t seed) {
    model_.FillGradients(static_cast<std::uint64_t>(seed));
    float* const loads = model_.Get("selection_bias").gradient.data<float>();
    for (int e = 0; e < 5; ++e) loads[e] = static_cast<float>(e * (seed + 1) % 4);
  }

  // An optimizer without state on the GPU, of the same values.
  void Restart() {
    absl::StatusOr<std::unique_ptr<GpuOptimizer>> optimizer =
        GpuOptimizer::Create(config_, parameters(), gpu_, TestLaunchers());
    ASSERT_EQ(optimizer.status(), absl::OkStatus());
    optimizer_ = *std::move(optimizer);
  }

  // A step of both with the gradients that the model has; `run` runs that of the GPU.
  void StepWithoutLooking(std::int64_t step, absl::FunctionRef<absl::Status()> run) {
    SCOPED_TRACE(testing::Message() << "step " << step);
    ThreadPool pool(1);
    const StepReport expected = cpu_->Step(step, kSteps, pool);
    for (std::size_t i = 0; i < on_gpu_.size(); ++i) {
      Upload(gpu_, model_.parameters[i]->gradient, on_gpu_[i]->gradient);
    }
    ASSERT_EQ(optimizer_->Prepare(step, kSteps), absl::OkStatus());
    ASSERT_EQ(run(), absl::OkStatus());
    const absl::StatusOr<StepReport> report = optimizer_->ReadReport();
    ASSERT_EQ(report.status(), absl::OkStatus());
    if (expected.skipped) {
      EXPECT_NE(report->gradient_norm, report->gradient_norm);
    } else {
      EXPECT_EQ(report->gradient_norm, expected.gradient_norm);
    }
    EXPECT_EQ(report->schedule, expected.schedule);
    EXPECT_EQ(report->clip_factor, expected.clip_factor);
    EXPECT_EQ(report->skipped, expected.skipped);
    EXPECT_EQ(report->non_finite, expected.non_finite);
  }
  void StepBoth(std::int64_t step, absl::FunctionRef<absl::Status()> run) {
    StepWithoutLooking(step, run);
    ExpectSame();
  }
  void StepBoth(std::int64_t step) {
    StepBoth(step, [&] { return optimizer_->Enqueue(); });
  }

  // Whether the GPU has the CPU's value of the parameter at `i`.
  bool SameValue(std::size_t i) {
    return Bytes(ToHost(gpu_, on_gpu_[i]->value)) == Bytes(model_.parameters[i]->value);
  }
  void ExpectSame() {
    for (std::size_t i = 0; i < on_gpu_.size(); ++i) EXPECT_TRUE(SameValue(i)) << on_gpu_[i]->name;
    ExpectSameState();
  }
  void ExpectSameState() {
    const absl::StatusOr<std::vector<NamedTensor>> actual = optimizer_->State();
    ASSERT_EQ(actual.status(), absl::OkStatus());
    const std::vector<NamedTensor> expected = cpu_->State();
    ASSERT_EQ(actual->size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const NamedTensor& state = (*actual)[i];
      EXPECT_EQ(state.name, expected[i].name);
      EXPECT_EQ(state.tensor.dtype(), expected[i].tensor.dtype()) << state.name;
      EXPECT_EQ(state.tensor.shape(), expected[i].tensor.shape()) << state.name;
      EXPECT_TRUE(Bytes(state.tensor) == Bytes(expected[i].tensor)) << state.name;
    }
  }

 private:
  const OptimizerConfig config_;
  CountingGpu gpu_;
  TestModel model_ = MakeTestModel(Packing::kInterleavedPerKvGroup);
  std::vector<std::unique_ptr<Parameter>> on_gpu_;
  std::unique_ptr<Optimizer> cpu_;
  std::unique_ptr<GpuOptimizer> optimizer_;
};

TEST(GpuOptimizer, HasTheBitsOfTheCpu) {
  for (const MuonGranularity granularity : {HEAD, WHOLE_MATRIX}) {
    for (const ClipScope scope : {CLIP_ADAMW, CLIP_ALL, CLIP_NONE}) {
      SCOPED_TRACE(testing::Message() << granularity << ", " << scope);
      Twins twins(TestConfig(granularity, scope));
      for (std::int64_t step = 0; step < 2; ++step) {
        twins.FillGradients(step + 1);
        twins.StepBoth(step);
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

// Learning rates, clip factors, the count of updates, and whether to update at all.
TEST(GpuOptimizer, OneGraphHasTheBitsOfTheCpuInEveryStep) {
  Twins twins(TestConfig());
  const int allocations = twins.gpu().allocations;
  const absl::StatusOr<std::unique_ptr<GpuGraph>> graph =
      twins.gpu().Capture([&] { return twins.optimizer().Enqueue(); });
  ASSERT_EQ(graph.status(), absl::OkStatus());
  for (std::int64_t step = 0; step < kSteps; ++step) {
    twins.FillGradients(step + 1);
    if (step == 1) {
      twins.model().Get("w2").gradient.data<float>()[619] = kNan;
      twins.model().Get("norm").gradient.data<float>()[3] = -0x1p96f;
    }
    if (step == 2) {  // nothing to clip
      for (const Parameter* p : twins.model().pointers()) {
        std::memset(p->gradient.raw_data(), 0, static_cast<std::size_t>(p->gradient.bytes()));
      }
    }
    twins.StepBoth(step, [&] { return (*graph)->Launch(); });
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_EQ(twins.gpu().allocations, allocations);
}

// Also where the step before left the report of its own, and where capturing a step ran none.
TEST(GpuOptimizer, AStepThatDidNotRunHasNoReport) {
  Twins twins(TestConfig());
  std::unique_ptr<GpuGraph> graph;
  for (std::int64_t step = 0; step < kSteps; ++step) {
    twins.FillGradients(step + 1);
    if (step == 1) twins.model().Get("norm").gradient.data<float>()[3] = kNan;  // is skipped
    twins.StepBoth(step, [&]() -> absl::Status {
      for (int i = 0; i < 2; ++i) {
        const absl::Status unread = twins.optimizer().ReadReport().status();
        EXPECT_EQ(unread.code(), absl::StatusCode::kFailedPrecondition);
        EXPECT_EQ(unread.message(),
                  "no step ran since Prepare(): Enqueue() it, or launch a graph of it, before "
                  "ReadReport()");
        if (graph != nullptr) continue;
        HW_ASSIGN_OR_RETURN(graph,
                            twins.gpu().Capture([&] { return twins.optimizer().Enqueue(); }));
      }
      return step % 2 == 0 ? twins.optimizer().Enqueue() : graph->Launch();
    });
    if (testing::Test::HasFailure()) return;
  }
}

TEST(GpuOptimizer, GoesOnFromStateThatWasLoaded) {
  Twins twins(TestConfig(HEAD, CLIP_ADAMW));
  for (std::int64_t step = 0; step < 2; ++step) {
    twins.FillGradients(step + 1);
    twins.StepBoth(step);
  }
  const absl::StatusOr<std::vector<NamedTensor>> state = twins.optimizer().State();
  ASSERT_EQ(state.status(), absl::OkStatus());
  twins.Restart();
  ASSERT_EQ(twins.optimizer().Load(*state), absl::OkStatus());
  twins.FillGradients(3);
  twins.StepBoth(2);
}

TEST(GpuOptimizer, LoadNamesTheTensorThatDoesNotFit) {
  Twins twins(TestConfig());
  const std::vector<NamedTensor> state = *twins.optimizer().State();
  const auto message = [&](const std::vector<NamedTensor>& with) {
    const absl::Status status = twins.optimizer().Load(with);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_EQ(message({state.begin(), state.end() - 1}), "optimizer state: momentum/wqkv is missing");
  std::vector<NamedTensor> with = state;
  with.push_back({"momentum/w9", state.back().tensor});
  EXPECT_EQ(message(with), "optimizer state: momentum/w9 belongs to no parameter");
  with.back().name = with.front().name;
  EXPECT_EQ(message(with), "optimizer state: two tensors adamw.m/embedding");
  with = state;
  with.back().tensor = Tensor::Zeros({48, 19}, DType::kF32, Device::kCpu);
  EXPECT_EQ(message(with),
            "optimizer state: momentum/wqkv must be F32[48, 20] on cpu, found F32[48, 19] on cpu");
}

TEST(GpuOptimizer, CreateNamesWhatItCannotStep) {
  Twins twins(TestConfig());
  const auto message = [&](std::vector<Parameter*> parameters) {
    return std::string(
        GpuOptimizer::Create(TestConfig(), std::move(parameters), twins.gpu(), TestLaunchers())
            .status()
            .message());
  };
  EXPECT_EQ(message(twins.model().pointers()),
            "parameter embedding: the value must be F32 on cuda, found F32 on cpu");
  const std::vector<Parameter*> parameters = twins.parameters();
  const Parameter& embedding = *parameters.at(0);
  Parameter& head = *parameters.at(10);
  head.value = embedding.value;
  EXPECT_EQ(message(parameters), "weights embedding and head share memory");
  head.value = head.gradient;
  EXPECT_EQ(message(parameters),
            "the value of weight head and the gradient of weight head share memory");
}

TEST(GpuOptimizer, AStepHasTheLaunchesThatItSays) {
  Twins twins(TestConfig());
  // The norm's, Muon's for blocks of up to 64 rows, AdamW's for five parameters, and one a bias.
  EXPECT_EQ(twins.optimizer().launches(), 3 + 3 + 1 + 1);
}

// Muon's weights of a model on the GPU, copies, which the launcher steps by itself with the model's
// gradients.
class LaunchedMuon {
 public:
  LaunchedMuon(const OptimizerConfig& config, Twins& twins)
      : settings_(*ResolveSettings(config)), gpu_(twins.gpu()) {
    const std::vector<Parameter*> parameters = twins.parameters();
    const std::vector<const Parameter*> views(parameters.begin(), parameters.end());
    groups_ = *AssignGroups(views, settings_.granularity, settings_.head_group_size);
    std::vector<MuonWeight<float>> weights;
    for (std::size_t i = 0; i < views.size(); ++i) {
      if (!groups_[i].blocks.has_value()) continue;
      const Tensor value = ToGpu(gpu_, twins.model().parameters[i]->value);
      const Tensor momentum = ToGpu(gpu_, Tensor::Zeros(value.shape(), DType::kF32, Device::kCpu));
      weights_.push_back({i, value, momentum});
      weights.push_back({.weight = value.Rows<float>(),
                         .momentum = momentum.Rows<float>(),
                         .gradient = views[i]->gradient.Rows<const float>(),
                         .blocks = &*groups_[i].blocks});
    }
    plan_ = *MuonStepPlan::Create<float>(settings_.muon, weights, MuonMode::kTensorCore);
    table_ = *gpu_.Allocate(static_cast<std::int64_t>(plan_->table().size()));
    EXPECT_TRUE(gpu_.Upload(table_.get(), plan_->table().data(),
                            static_cast<std::int64_t>(plan_->table().size()))
                    .ok());
    scratch_ = *gpu_.Allocate(plan_->scratch_bytes());
    scalars_ = *gpu_.Allocate(sizeof(MuonStepScalars));
  }

  struct Weight {
    std::size_t index;  // of the parameter
    Tensor value, momentum;
  };
  const std::vector<Weight>& weights() const { return weights_; }
  const HeadBlocks& blocks(const Weight& weight) const { return *groups_[weight.index].blocks; }

  void Step(double schedule) {
    const MuonStepScalars scalars = {.learning_rate = settings_.muon.learning_rate * schedule};
    ASSERT_EQ(gpu_.Upload(scalars_.get(), &scalars, sizeof(scalars)), absl::OkStatus());
    ASSERT_EQ(TestLaunchers().MuonStep(
                  *plan_, {.stream = gpu_.stream(),
                           .table = static_cast<const std::byte*>(table_.get()),
                           .scalars = static_cast<const MuonStepScalars*>(scalars_.get()),
                           .scratch = static_cast<std::byte*>(scratch_.get())}),
              absl::OkStatus());
  }

 private:
  const OptimizerSettings settings_;
  Gpu& gpu_;
  std::vector<GroupedParameter> groups_;
  std::vector<Weight> weights_;
  std::optional<MuonStepPlan> plan_;
  std::shared_ptr<void> table_, scratch_, scalars_;
};

// Enqueued once, then replayed from one graph.
TEST(GpuOptimizer, OnTensorCoresMuonHasTheBitsOfItsLauncher) {
  const OptimizerConfig config = OnTensorCores(TestConfig(HEAD, CLIP_ADAMW));
  Twins twins(config);
  LaunchedMuon launched(config, twins);
  const absl::StatusOr<std::unique_ptr<GpuGraph>> graph =
      twins.gpu().Capture([&] { return twins.optimizer().Enqueue(); });
  ASSERT_EQ(graph.status(), absl::OkStatus());
  for (std::int64_t step = 0; step < kSteps; ++step) {
    SCOPED_TRACE(testing::Message() << "step " << step);
    twins.FillGradients(step + 1);
    twins.StepWithoutLooking(
        step, [&] { return step == 0 ? twins.optimizer().Enqueue() : (*graph)->Launch(); });
    launched.Step(ScheduleFactor(config.schedule(), step, kSteps));
    std::set<std::size_t> muons;
    for (const LaunchedMuon::Weight& w : launched.weights()) {
      muons.insert(w.index);
      EXPECT_TRUE(Bytes(ToHost(twins.gpu(), twins.parameters()[w.index]->value)) ==
                  Bytes(ToHost(twins.gpu(), w.value)))
          << twins.parameters()[w.index]->name;
    }
    for (std::size_t i = 0; i < twins.parameters().size(); ++i) {
      EXPECT_EQ(twins.SameValue(i), muons.count(i) == 0) << twins.parameters()[i]->name;
    }
    twins.ExpectSameState();
    if (testing::Test::HasFailure()) return;
  }
}

TEST(GpuOptimizer, OnTensorCoresUpdatesAreWithinTheirBound) {
  OptimizerConfig config = OnTensorCores(TestConfig(HEAD, CLIP_NONE));
  MuonConfig& muon = *config.mutable_muon();
  muon.set_learning_rate(1);
  muon.set_weight_decay(0);
  muon.set_momentum(0);  // the gradient is what is orthogonalised
  muon.set_scale(UNIT);
  config.mutable_schedule()->set_kind(CONSTANT);
  config.mutable_schedule()->set_warmup_steps(0);
  Twins twins(config);
  const LaunchedMuon launched(config, twins);
  for (const LaunchedMuon::Weight& w : launched.weights()) {
    const Tensor& value = twins.model().parameters[w.index]->value;
    std::memset(value.raw_data(), 0, static_cast<std::size_t>(value.bytes()));
    Upload(twins.gpu(), value, twins.parameters()[w.index]->value);
  }
  twins.FillGradients(1);
  twins.StepWithoutLooking(0, [&] { return twins.optimizer().Enqueue(); });
  for (const LaunchedMuon::Weight& w : launched.weights()) {
    SCOPED_TRACE(twins.parameters()[w.index]->name);
    const Parameter& host = *twins.model().parameters[w.index];
    const Tensor on_gpu = ToHost(twins.gpu(), twins.parameters()[w.index]->value);
    EXPECT_FALSE(twins.SameValue(w.index));
    for (const HeadBlock& block : launched.blocks(w).blocks()) {
      const auto matrix = [&](const Tensor& t, double sign) {
        const RowSpan<const float> rows = t.Rows<const float>();
        return BlockOf(launched.blocks(w), block, rows.rows, rows.width,
                       [&](std::int64_t i, std::int64_t j) {
                         return sign * double{rows.data[i * rows.stride + j]};
                       });
      };
      const DoubleMatrix u = matrix(host.gradient, 1), update = matrix(on_gpu, -1);
      const double bound = kTensorCoreEpsilon * ErrorFactor(Quintic5(), SingularValues(u));
      EXPECT_LE(RelativeDifference(update, StandardForm(Quintic5(), u)), bound);
      EXPECT_LE(RelativeDifference(update, matrix(host.value, -1)), bound);
    }
  }
}

// A block of more than 128 rows and columns beside small ones.
TEST(GpuOptimizer, OnTensorCoresLargeBlocksHaveTheBitsOfTheCpu) {
  Twins twins(OnTensorCores(TestConfig()), {129, 131});
  EXPECT_EQ(twins.optimizer().launches(), 3 + (3 + 18) + 1 + 1);
  twins.FillGradients(1);
  twins.StepWithoutLooking(0, [&] { return twins.optimizer().Enqueue(); });
  for (std::size_t i = 0; i < twins.parameters().size(); ++i) {
    const std::string& name = twins.parameters()[i]->name;
    if (name != "large" && name != "wqkv") continue;
    EXPECT_EQ(twins.SameValue(i), name == "large") << name;
  }
  twins.ExpectSameState();
}

TEST(GpuOptimizerDeathTest, AReportIsReadBeforeTheNextStep) {
  Twins twins(TestConfig());
  EXPECT_DEATH(static_cast<void>(twins.optimizer().ReadReport()), "no step was prepared");
  ASSERT_EQ(twins.optimizer().Prepare(0, kSteps), absl::OkStatus());
  EXPECT_DEATH(static_cast<void>(twins.optimizer().Prepare(1, kSteps)), "ReadReport\\(\\) first");
}

}  // namespace
}  // namespace headwise
