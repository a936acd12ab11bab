// The optimizer as a whole: what each scope clips, what granularity changes, what a skipped step
// leaves alone, and that bits depend neither on threads, nor on packing, nor on having been
// interrupted.
#include "optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "core/io/checksum.h"
#include "gtest/gtest.h"
#include "kernels/adamw/adamw.h"
#include "optim/defaults.h"
#include "optim/muon.h"
#include "optim/testing/test_model.h"

namespace headwise {
namespace {

constexpr std::int64_t kTotalSteps = 10;

OptimizerConfig TestConfig(MuonGranularity granularity = HEAD, ClipScope scope = CLIP_ADAMW) {
  OptimizerConfig config = DefaultOptimizerConfig();
  config.mutable_muon()->set_granularity(granularity);
  config.mutable_muon()->set_head_group_size(2);
  config.mutable_muon()->set_weight_decay(0.1);
  config.mutable_adamw()->set_weight_decay(0.2);
  config.mutable_schedule()->set_kind(LINEAR);
  config.mutable_schedule()->set_warmup_steps(2);
  config.set_clip_scope(scope);
  return config;
}

std::unique_ptr<Optimizer> MakeOptimizer(const OptimizerConfig& config, const TestModel& model) {
  absl::StatusOr<std::unique_ptr<Optimizer>> optimizer =
      Optimizer::Create(config, model.pointers());
  EXPECT_TRUE(optimizer.ok()) << optimizer.status();
  return *std::move(optimizer);
}

// Steps [begin, end), each with its own gradients.
void Train(Optimizer& optimizer, TestModel& model, std::int64_t begin, std::int64_t end,
           ThreadPool& pool) {
  for (std::int64_t step = begin; step < end; ++step) {
    model.FillGradients(static_cast<std::uint64_t>(step) + 1);
    ASSERT_FALSE(optimizer.Step(step, kTotalSteps, pool).skipped);
  }
}

std::vector<float> ToVector(const Tensor& t) {
  return {t.data<float>(), t.data<float>() + t.size()};
}

std::vector<std::uint8_t> Bytes(const Tensor& t) {
  const auto* data = static_cast<const std::uint8_t*>(t.raw_data());
  return {data, data + t.bytes()};
}

std::map<std::string, std::vector<std::uint8_t>> StateBytes(const Optimizer& optimizer) {
  std::map<std::string, std::vector<std::uint8_t>> bytes;
  for (const NamedTensor& state : optimizer.State()) bytes[state.name] = Bytes(state.tensor);
  return bytes;
}

TEST(Optimizer, PerHeadAndWholeMatrixDifferInTheHeadBlockedParameterOnly) {
  ThreadPool pool(2);
  TestModel per_head = MakeTestModel(Packing::kInterleavedPerKvGroup);
  TestModel whole = MakeTestModel(Packing::kInterleavedPerKvGroup);
  const auto a = MakeOptimizer(TestConfig(HEAD), per_head),
             b = MakeOptimizer(TestConfig(WHOLE_MATRIX), whole);
  Train(*a, per_head, 0, 2, pool);
  Train(*b, whole, 0, 2, pool);
  for (const auto& p : per_head.parameters) {
    const bool equal = Bytes(p->value) == Bytes(whole.Get(p->name).value);
    EXPECT_EQ(equal, p->name != "wqkv") << p->name;
  }
}

// The rows of wqkv by (role, head), whatever the packing.
std::vector<float> HeadsInRoleOrder(const TestModel& model, const Tensor& tensor) {
  const PackedQkv& layout = model.layout;
  std::vector<std::int64_t> slots;
  for (std::int64_t h = 0; h < layout.query_heads(); ++h) slots.push_back(layout.QuerySlot(h));
  for (std::int64_t g = 0; g < layout.kv_heads(); ++g) slots.push_back(layout.KeySlot(g));
  for (std::int64_t g = 0; g < layout.kv_heads(); ++g) slots.push_back(layout.ValueSlot(g));
  std::vector<float> result;
  for (const std::int64_t slot : slots) {
    const std::vector<float> head =
        ToVector(tensor.Slice(slot * layout.head_dim(), layout.head_dim()));
    result.insert(result.end(), head.begin(), head.end());
  }
  return result;
}

TEST(Optimizer, SectionedAndInterleavedPackingsGetTheSameUpdatePermuted) {
  ThreadPool pool(2);
  for (const MuonGranularity granularity : {HEAD, KV_GROUP, PROJECTION, HEAD_GROUP}) {
    TestModel interleaved = MakeTestModel(Packing::kInterleavedPerKvGroup);
    TestModel sectioned = MakeTestModel(Packing::kSectioned);
    ASSERT_NE(ToVector(interleaved.Get("wqkv").value), ToVector(sectioned.Get("wqkv").value));
    const OptimizerConfig config = TestConfig(granularity);
    const auto a = MakeOptimizer(config, interleaved), b = MakeOptimizer(config, sectioned);
    Train(*a, interleaved, 0, 3, pool);
    Train(*b, sectioned, 0, 3, pool);
    EXPECT_EQ(HeadsInRoleOrder(interleaved, interleaved.Get("wqkv").value),
              HeadsInRoleOrder(sectioned, sectioned.Get("wqkv").value))
        << MuonGranularity_Name(granularity);
  }
}

TEST(Optimizer, EveryGranularityGivesItsOwnUpdate) {
  ThreadPool pool(1);
  std::vector<std::vector<float>> seen;
  for (const MuonGranularity granularity : {HEAD, KV_GROUP, PROJECTION, HEAD_GROUP, WHOLE_MATRIX}) {
    TestModel model = MakeTestModel(Packing::kInterleavedPerKvGroup);
    Train(*MakeOptimizer(TestConfig(granularity), model), model, 0, 1, pool);
    for (const auto& other : seen) EXPECT_NE(ToVector(model.Get("wqkv").value), other);
    seen.push_back(ToVector(model.Get("wqkv").value));
  }
}

TEST(Optimizer, SameBitsForAnyThreadsAndAnyOrderOfParameters) {
  ThreadPool one(1);
  TestModel model = MakeTestModel(Packing::kInterleavedPerKvGroup);
  const auto optimizer = MakeOptimizer(TestConfig(), model);
  Train(*optimizer, model, 0, 3, one);
  for (const int threads : {2, 3}) {
    ThreadPool pool(threads);
    TestModel other = MakeTestModel(Packing::kInterleavedPerKvGroup);
    std::vector<Parameter*> reversed = other.pointers();
    std::reverse(reversed.begin(), reversed.end());
    const auto other_optimizer = *Optimizer::Create(TestConfig(), reversed);
    Train(*other_optimizer, other, 0, 3, pool);
    EXPECT_EQ(Values(other), Values(model)) << threads << " threads";
    EXPECT_EQ(StateBytes(*other_optimizer), StateBytes(*optimizer));
  }
}

// The bits of three steps, on every machine and in every build configuration. Where a kernel's
// contract version or the order of the clip norm changes, so do these.
TEST(Optimizer, Goldens) {
  ThreadPool pool(2);
  const std::pair<ClipScope, const char*> goldens[] = {{CLIP_ADAMW, "056d22a010e0a7ca"},
                                                       {CLIP_ALL, "d8d5f353e8c8fd29"}};
  for (const auto& [scope, golden] : goldens) {
    TestModel model = MakeTestModel(Packing::kInterleavedPerKvGroup);
    const auto optimizer = MakeOptimizer(TestConfig(HEAD, scope), model);
    Train(*optimizer, model, 0, 3, pool);
    Fnv1a64 sum;
    for (const auto& p : model.parameters) sum.Update(p->value.raw_data(), p->value.bytes());
    for (const NamedTensor& s : optimizer->State()) {
      sum.Update(s.tensor.raw_data(), s.tensor.bytes());
    }
    EXPECT_EQ(ChecksumToHex(sum.value()), golden) << ClipScope_Name(scope);
  }
}

TEST(Optimizer, StateResumesWithTheSameBits) {
  ThreadPool pool(2);
  TestModel whole = MakeTestModel(Packing::kInterleavedPerKvGroup);
  const auto uninterrupted = MakeOptimizer(TestConfig(), whole);
  Train(*uninterrupted, whole, 0, 5, pool);

  TestModel first = MakeTestModel(Packing::kInterleavedPerKvGroup);
  const auto before = MakeOptimizer(TestConfig(), first);
  Train(*before, first, 0, 3, pool);
  TestModel second = MakeTestModel(Packing::kInterleavedPerKvGroup);
  const auto after = MakeOptimizer(TestConfig(), second);
  for (const auto& p : second.parameters) {
    std::copy_n(first.Get(p->name).value.data<float>(), p->value.size(), p->value.data<float>());
  }
  const std::vector<NamedTensor> from = before->State(), to = after->State();
  ASSERT_EQ(from.size(), to.size());
  EXPECT_TRUE(std::is_sorted(from.begin(), from.end(),
                             [](const auto& a, const auto& b) { return a.name < b.name; }));
  for (std::size_t i = 0; i < from.size(); ++i) {
    ASSERT_EQ(from[i].name, to[i].name);
    const std::vector<std::uint8_t> bytes = Bytes(from[i].tensor);
    std::copy(bytes.begin(), bytes.end(), static_cast<std::uint8_t*>(to[i].tensor.raw_data()));
  }
  Train(*after, second, 3, 5, pool);
  EXPECT_EQ(Values(second), Values(whole));
  EXPECT_EQ(StateBytes(*after), StateBytes(*uninterrupted));
}

TEST(Optimizer, AnUnusableGradientChangesNothingAndIsNamed) {
  ThreadPool pool(2);
  for (const float bad : {std::nanf(""), -std::numeric_limits<float>::infinity(), 0x1p96f}) {
    for (const char* name : {"wqkv", "w2", "norm", "embedding"}) {
      TestModel model = MakeTestModel(Packing::kInterleavedPerKvGroup);
      TestModel never_bad = MakeTestModel(Packing::kInterleavedPerKvGroup);
      const auto optimizer = MakeOptimizer(TestConfig(), model),
                 other = MakeOptimizer(TestConfig(), never_bad);
      Train(*optimizer, model, 0, 1, pool);
      Train(*other, never_bad, 0, 1, pool);
      const auto values = Values(model);
      const auto state = StateBytes(*optimizer);

      model.FillGradients(77);
      const Tensor gradient = model.Get(name).gradient;
      gradient.data<float>()[gradient.size() - 1] = bad;
      const StepReport report = optimizer->Step(1, kTotalSteps, pool);
      EXPECT_TRUE(report.skipped);
      EXPECT_EQ(report.non_finite, name);
      EXPECT_EQ(Values(model), values) << name << " " << bad;
      EXPECT_EQ(StateBytes(*optimizer), state) << name << " " << bad;

      // What follows is as if the skipped step had never been tried.
      Train(*optimizer, model, 2, 3, pool);
      Train(*other, never_bad, 2, 3, pool);
      EXPECT_EQ(Values(model), Values(never_bad)) << name;
    }
  }
}

TEST(Optimizer, TheFirstUnusableGradientByNameIsReported) {
  ThreadPool pool(2);
  TestModel model = MakeTestModel(Packing::kInterleavedPerKvGroup);
  for (const char* name : {"wqkv", "head", "norm"})
    model.Get(name).gradient.data<float>()[0] = std::nanf("");
  EXPECT_EQ(MakeOptimizer(TestConfig(), model)->Step(0, kTotalSteps, pool).non_finite, "head");
}

// One step in which the gradients were first multiplied by `muon_scale` (Muon's) and `adamw_scale`
// (AdamW's), with nothing left to clip.
std::vector<std::vector<float>> ValuesAfterScaling(float muon_scale, float adamw_scale,
                                                   ThreadPool& pool) {
  TestModel model = MakeTestModel(Packing::kInterleavedPerKvGroup);
  const auto optimizer = MakeOptimizer(TestConfig(HEAD, CLIP_NONE), model);
  model.FillGradients(1);
  for (const ParameterAssignment& a : optimizer->assignments()) {
    const float scale = a.group == OptimizerGroup::kAdamW ? adamw_scale : muon_scale;
    const Tensor g = model.Get(a.name).gradient;
    std::for_each(g.data<float>(), g.data<float>() + g.size(), [&](float& x) { x *= scale; });
  }
  optimizer->Step(0, kTotalSteps, pool);
  return Values(model);
}

TEST(Optimizer, ClipScopeSaysWhoseGradientsAreClipped) {
  ThreadPool pool(2);
  const auto step = [&](ClipScope scope, double clip_norm, StepReport* report) {
    TestModel model = MakeTestModel(Packing::kInterleavedPerKvGroup);
    OptimizerConfig config = TestConfig(HEAD, scope);
    config.set_clip_norm(clip_norm);
    const auto optimizer = MakeOptimizer(config, model);
    model.FillGradients(1);
    *report = optimizer->Step(0, kTotalSteps, pool);
    return Values(model);
  };
  StepReport report;
  const auto unclipped = ValuesAfterScaling(1, 1, pool);
  EXPECT_EQ(step(CLIP_NONE, 1.0, &report), unclipped);
  EXPECT_EQ(report.clip_factor, 1.0);
  const double norm = report.gradient_norm;
  ASSERT_GT(norm, 1.0);
  const float factor = static_cast<float>(1.0 / norm);

  const auto clipped_adamw = step(CLIP_ADAMW, 1.0, &report);
  EXPECT_EQ(clipped_adamw, ValuesAfterScaling(1, factor, pool));
  EXPECT_NE(clipped_adamw, unclipped);
  EXPECT_EQ(report.clip_factor, 1.0 / norm);
  EXPECT_EQ(report.gradient_norm, norm) << "the norm is of all gradients, before clipping";

  const auto clipped_all = step(CLIP_ALL, 1.0, &report);
  EXPECT_EQ(clipped_all, ValuesAfterScaling(factor, factor, pool));
  EXPECT_EQ(report.clip_factor, 1.0 / norm);

  for (const ClipScope scope : {CLIP_ADAMW, CLIP_ALL}) {
    EXPECT_EQ(step(scope, 0.0, &report), unclipped) << "a clip_norm of 0 clips nothing";
    EXPECT_EQ(step(scope, 2 * norm, &report), unclipped);
    EXPECT_EQ(report.clip_factor, 1.0);
  }
}

TEST(Optimizer, ReportsTheNormOfAllGradients) {
  ThreadPool pool(1);
  TestModel model = MakeTestModel(Packing::kInterleavedPerKvGroup);
  model.FillGradients(5);
  double sum = 0;
  for (const auto& p : model.parameters) {
    for (const float g : ToVector(p->gradient)) sum += static_cast<double>(g) * g;
  }
  EXPECT_NEAR(MakeOptimizer(TestConfig(), model)->Step(0, kTotalSteps, pool).gradient_norm,
              std::sqrt(sum), 1e-10);
}

TEST(Optimizer, TheScheduleMultipliesBothLearningRates) {
  ThreadPool pool(2);
  OptimizerConfig scheduled = TestConfig(), constant = TestConfig();
  constant.mutable_schedule()->Clear();
  constant.mutable_muon()->set_learning_rate(scheduled.muon().learning_rate() * (1.0 / 3));
  constant.mutable_adamw()->set_learning_rate(scheduled.adamw().learning_rate() * (1.0 / 3));
  TestModel a = MakeTestModel(Packing::kInterleavedPerKvGroup),
            b = MakeTestModel(Packing::kInterleavedPerKvGroup);
  const auto optimizer = MakeOptimizer(scheduled, a);
  a.FillGradients(1);
  EXPECT_EQ(optimizer->Step(0, kTotalSteps, pool).schedule,
            1.0 / 3);  // the first of two warm-up steps
  Train(*MakeOptimizer(constant, b), b, 0, 1, pool);
  EXPECT_EQ(Values(a), Values(b));
}

TEST(Optimizer, MuonsSettingsAreThoseOfTheConfiguration) {
  ThreadPool pool(2);
  const std::pair<MuonScale, UpdateScale> scales[] = {
      {ASPECT, UpdateScale::kAspect},
      {MATCH_RMS_ADAMW, UpdateScale::kMatchRmsAdamW},
      {SPECTRAL, UpdateScale::kSpectral},
      {UNIT, UpdateScale::kUnit}};
  std::vector<std::vector<float>> seen;
  for (const auto& [configured, scale] : scales) {
    for (const bool nesterov : {true, false}) {
      OptimizerConfig config = TestConfig();
      config.mutable_schedule()->Clear();
      config.mutable_muon()->set_scale(configured);
      config.mutable_muon()->set_disable_nesterov(!nesterov);
      TestModel model = MakeTestModel(Packing::kInterleavedPerKvGroup);
      std::vector<float> value = ToVector(model.Get("wqkv").value);
      Train(*MakeOptimizer(config, model), model, 0, 1, pool);
      const std::vector<float> gradient = ToVector(model.Get("wqkv").gradient);
      absl::StatusOr<Muon> muon = Muon::Create({.learning_rate = 0.02,
                                                .momentum = 0.95,
                                                .nesterov = nesterov,
                                                .weight_decay = 0.1,
                                                .scale = scale},
                                               {{.name = "wqkv",
                                                 .value = {value.data(), 48, 20},
                                                 .gradient = {gradient.data(), 48, 20},
                                                 .blocks = HeadBlocks::FromPacked(model.layout)}});
      ASSERT_TRUE(muon.ok()) << muon.status();
      muon->Step(pool);
      EXPECT_EQ(ToVector(model.Get("wqkv").value), value) << Name(scale);
      seen.push_back(value);
    }
  }
  // Heads of 6 x 20: ASPECT and UNIT both multiply by 1. All else differs.
  EXPECT_EQ(seen[0], seen[6]);
  EXPECT_NE(seen[0], seen[1]);
  EXPECT_NE(seen[0], seen[2]);
  EXPECT_NE(seen[0], seen[4]);
  EXPECT_NE(seen[2], seen[4]);
}

TEST(Optimizer, AssignmentsFollowTheGranularityInTheOrderGiven) {
  const std::pair<MuonGranularity, std::int64_t> blocks[] = {
      {HEAD, 8}, {KV_GROUP, 2}, {PROJECTION, 3}, {HEAD_GROUP, 4}, {WHOLE_MATRIX, 1}};
  for (const auto& [granularity, expected] : blocks) {
    const TestModel model = MakeTestModel(Packing::kSectioned);
    const auto optimizer = MakeOptimizer(TestConfig(granularity), model);
    ASSERT_EQ(optimizer->assignments().size(), model.parameters.size());
    for (std::size_t i = 0; i < model.parameters.size(); ++i) {
      const ParameterAssignment& a = optimizer->assignments()[i];
      EXPECT_EQ(a.name, model.parameters[i]->name);
      if (a.name == "wqkv") {
        EXPECT_EQ(a.blocks, expected) << MuonGranularity_Name(granularity);
      }
      EXPECT_EQ(a.group == OptimizerGroup::kMuonPerHead,
                a.name == "wqkv" && granularity != WHOLE_MATRIX)
          << a.name;
    }
  }
}

TEST(Optimizer, AdamWsParametersGetTheKernelsStep) {
  ThreadPool pool(2);
  TestModel model = MakeTestModel(Packing::kInterleavedPerKvGroup);
  const std::vector<float> initial = ToVector(model.Get("router").value);
  OptimizerConfig config = TestConfig(HEAD, CLIP_NONE);
  config.mutable_schedule()->Clear();
  const auto optimizer = MakeOptimizer(config, model);
  std::vector<float> w = initial, m(w.size()), v(w.size());
  for (std::int64_t step = 0; step < 3; ++step) {
    Train(*optimizer, model, step, step + 1, pool);
    const std::vector<float> g = ToVector(model.Get("router").gradient);
    AdamWStep<float>(
        {.learning_rate = 3e-3, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.2},
        step + 1, 1.0, absl::MakeSpan(w), absl::MakeSpan(m), absl::MakeSpan(v), g, pool);
    EXPECT_EQ(ToVector(model.Get("router").value), w) << "step " << step;
  }
}

TEST(Optimizer, ABatchOfExpertsIsUpdatedMatrixByMatrix) {
  ThreadPool pool(2);
  TestModel model = MakeTestModel(Packing::kInterleavedPerKvGroup);
  OptimizerConfig config = TestConfig();
  config.mutable_schedule()->Clear();
  std::vector<float> value = ToVector(model.Get("experts").value);
  Train(*MakeOptimizer(config, model), model, 0, 1, pool);
  std::vector<float> gradient = ToVector(model.Get("experts").gradient);
  for (std::int64_t e = 0; e < 3; ++e) {
    absl::StatusOr<Muon> muon =
        Muon::Create({.learning_rate = 0.02, .momentum = 0.95, .weight_decay = 0.1},
                     {{.name = "expert",
                       .value = {value.data() + 200 * e, 10, 20},
                       .gradient = {gradient.data() + 200 * e, 10, 20}}});
    ASSERT_TRUE(muon.ok()) << muon.status();
    muon->Step(pool);
  }
  EXPECT_EQ(ToVector(model.Get("experts").value), value);
}

TEST(Optimizer, GradientsAreOnlyRead) {
  ThreadPool pool(2);
  for (const ClipScope scope : {CLIP_ADAMW, CLIP_ALL}) {
    TestModel model = MakeTestModel(Packing::kInterleavedPerKvGroup);
    TestModel same = MakeTestModel(Packing::kInterleavedPerKvGroup);
    Train(*MakeOptimizer(TestConfig(HEAD, scope), model), model, 0, 1, pool);
    same.FillGradients(1);
    for (const auto& p : model.parameters)
      EXPECT_EQ(Bytes(p->gradient), Bytes(same.Get(p->name).gradient)) << p->name;
  }
}

TEST(Optimizer, AModelOfVectorsHasNoMuonState) {
  ThreadPool pool(1);
  Parameter norm{.name = "norm",
                 .role = ParameterRole::kNorm,
                 .value = Tensor::Zeros({5}, DType::kF32, Device::kCpu),
                 .gradient = Tensor::Zeros({5}, DType::kF32, Device::kCpu)};
  const auto optimizer = *Optimizer::Create(TestConfig(WHOLE_MATRIX), {&norm});
  EXPECT_FALSE(optimizer->Step(0, 1, pool).skipped);
  std::vector<std::string> names;
  for (const NamedTensor& state : optimizer->State()) names.push_back(state.name);
  EXPECT_EQ(names, (std::vector<std::string>{"adamw.m/norm", "adamw.updates", "adamw.v/norm"}));
}

}  // namespace
}  // namespace headwise
