// An optimizer on emulated CUDA kernels writes the bits of one on the CPU, and an optimizer steps
// with the kernels that it was given.
#include "optim/emulated_kernels.h"

#include <cstdint>
#include <memory>
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

// Values and state, as bytes, after some steps.
std::vector<std::string> Train(const OptimizerConfig& config, const OptimizerKernels& kernels) {
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
  std::vector<std::string> bytes;
  const auto add = [&](const Tensor& t) {
    bytes.emplace_back(static_cast<const char*>(t.raw_data()), static_cast<std::size_t>(t.bytes()));
  };
  for (const auto& parameter : model.parameters) add(parameter->value);
  for (const NamedTensor& state : optimizer->State()) add(state.tensor);
  return bytes;
}

TEST(EmulatedKernels, ValuesAndStateHaveTheBitsOfTheCpu) {
  for (const MuonGranularity granularity : {HEAD, WHOLE_MATRIX}) {
    for (const ClipScope scope : {CLIP_ADAMW, CLIP_ALL}) {
      const OptimizerConfig config = TestConfig(granularity, scope);
      const std::vector<std::string> expected = Train(config, {}),
                                     actual = Train(config, EmulatedOptimizerKernels());
      ASSERT_EQ(actual.size(), expected.size());
      for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_TRUE(actual[i] == expected[i]) << granularity << ", " << scope << ", tensor " << i;
      }
    }
  }
}

int muon_steps = 0, adamw_steps = 0;

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

}  // namespace
}  // namespace headwise
