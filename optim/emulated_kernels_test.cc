// An optimizer on emulated CUDA kernels writes the bits of one on the CPU, on tensor cores what is
// close to them, and an optimizer steps with the kernels that it was given.
#include "optim/emulated_kernels.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "core/heads/packed_qkv.h"
#include "core/proto/config.pb.h"
#include "core/tensor/tensor.h"
#include "gtest/gtest.h"
#include "kernels/adamw/adamw.h"
#include "kernels/common/thread_pool.h"
#include "kernels/muon_step/muon_step.h"
#include "optim/defaults.h"
#include "optim/named_tensor.h"
#include "optim/optimizer.h"
#include "optim/optimizer_kernels.h"
#include "optim/testing/test_model.h"

namespace headwise {
namespace {

constexpr std::int64_t kSteps = 3;

OptimizerConfig TestConfig(MuonGranularity granularity, ClipScope scope) {
  OptimizerConfig config = DefaultOptimizerConfig();
  config.mutable_muon()->set_granularity(granularity);
  config.mutable_muon()->set_weight_decay(0.1);
  config.mutable_adamw()->set_weight_decay(0.2);
  config.mutable_schedule()->set_kind(LINEAR);
  config.mutable_schedule()->set_warmup_steps(2);
  config.set_clip_norm(0.5);
  config.set_clip_scope(scope);
  return config;
}

struct Result {
  std::string name, bytes;
  bool operator==(const Result&) const = default;
};

// Values and state after some steps.
std::vector<Result> Train(const OptimizerConfig& config, const OptimizerKernels& kernels) {
  TestModel model = MakeTestModel(Packing::kInterleavedPerKvGroup);
  const std::unique_ptr<Optimizer> optimizer =
      *Optimizer::Create(config, model.pointers(), nullptr, kernels);
  ThreadPool pool(2);
  for (std::int64_t step = 0; step < kSteps; ++step) {
    model.FillGradients(static_cast<std::uint64_t>(step) + 1);
    const StepReport report = optimizer->Step(step, kSteps, pool);
    EXPECT_FALSE(report.skipped);
    EXPECT_LT(report.clip_factor, 1);
  }
  std::vector<Result> results;
  const auto add = [&](const std::string& name, const Tensor& t) {
    results.push_back({name, std::string(static_cast<const char*>(t.raw_data()),
                                         static_cast<std::size_t>(t.bytes()))});
  };
  for (const auto& parameter : model.parameters) add(parameter->name, parameter->value);
  for (const NamedTensor& state : optimizer->State()) add(state.name, state.tensor);
  return results;
}

TEST(EmulatedKernels, ValuesAndStateHaveTheBitsOfTheCpu) {
  for (const MuonGranularity granularity : {HEAD, WHOLE_MATRIX}) {
    for (const ClipScope scope : {CLIP_ADAMW, CLIP_ALL}) {
      const OptimizerConfig config = TestConfig(granularity, scope);
      const std::vector<Result> expected = Train(config, {}),
                                actual = Train(config, EmulatedOptimizerKernels());
      ASSERT_EQ(actual.size(), expected.size());
      for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_TRUE(actual[i] == expected[i])
            << granularity << ", " << scope << ", " << expected[i].name;
      }
    }
  }
}

TEST(EmulatedKernels, TensorCoresRoundMuonsValuesOtherwiseAndNothingElse) {
  OptimizerConfig config = TestConfig(HEAD, CLIP_ALL);
  const std::vector<Result> expected = Train(config, {});
  config.mutable_muon()->set_compute_mode(TENSOR_CORE);
  const std::vector<Result> actual = Train(config, EmulatedOptimizerKernels());
  const std::set<std::string> muons = {"wqkv", "gate", "wo", "w1", "w2", "experts"};
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const std::string& name = expected[i].name;
    EXPECT_EQ(actual[i] == expected[i], muons.count(name) == 0) << name;
    if (muons.count(name) == 0) continue;
    for (std::size_t at = 0; at < expected[i].bytes.size(); at += sizeof(float)) {
      float a = 0, b = 0;
      std::memcpy(&a, actual[i].bytes.data() + at, sizeof(float));
      std::memcpy(&b, expected[i].bytes.data() + at, sizeof(float));
      ASSERT_NEAR(a, b, 1e-5) << name;
    }
  }
}

int muon_steps = 0, adamw_steps = 0, tensor_core_steps = 0;

TEST(OptimizerKernelsTest, AStepCallsTheKernelsThatItWasGiven) {
  OptimizerKernels kernels;
  kernels.muon_step = [](const MuonHyperparameters& hyper,
                         absl::Span<const MuonWeight<float>> weights, ThreadPool& pool) {
    ++muon_steps;
    return MuonStep<float>(hyper, weights, pool);
  };
  kernels.adamw_step = [](const AdamWHyperparameters& hyper, std::int64_t step, double scale,
                          absl::Span<float> weight, absl::Span<float> m, absl::Span<float> v,
                          absl::Span<const float> gradient, ThreadPool& pool) {
    ++adamw_steps;
    AdamWStep<float>(hyper, step, scale, weight, m, v, gradient, pool);
  };
  EXPECT_EQ(Train(TestConfig(HEAD, CLIP_ALL), kernels), Train(TestConfig(HEAD, CLIP_ALL), {}));
  EXPECT_EQ(muon_steps, kSteps);       // one for all weights
  EXPECT_EQ(adamw_steps, 5 * kSteps);  // one for each parameter
}

TEST(OptimizerKernelsTest, TensorCoresHaveAKernelOfTheirOwn) {
  OptimizerKernels kernels;
  kernels.muon_step = nullptr;
  kernels.tensor_core_muon_step = [](const MuonHyperparameters& hyper,
                                     absl::Span<const MuonWeight<float>> weights,
                                     ThreadPool& pool) {
    ++tensor_core_steps;
    return MuonStep<float>(hyper, weights, pool);
  };
  OptimizerConfig config = TestConfig(HEAD, CLIP_ALL);
  const std::vector<Result> expected = Train(config, {});
  config.mutable_muon()->set_compute_mode(TENSOR_CORE);
  EXPECT_EQ(Train(config, kernels), expected);
  EXPECT_EQ(tensor_core_steps, kSteps);
}

}  // namespace
}  // namespace headwise
