// Every setting out of range is an error that names the field, its value and its range; what is
// legal stays legal.
#include <cmath>
#include <functional>
#include <limits>

#include "gtest/gtest.h"
#include "optim/defaults.h"
#include "optim/optimizer.h"
#include "optim/testing/test_model.h"

namespace headwise {
namespace {

// The error of creating an optimizer of the default configuration after `change`; empty if there is
// none.
std::string Error(
    const std::function<void(OptimizerConfig&)>& change,
    const std::function<void(TestModel&)>& change_model = [](TestModel&) {}) {
  TestModel model = MakeTestModel(Packing::kInterleavedPerKvGroup);
  change_model(model);
  OptimizerConfig config = DefaultOptimizerConfig();
  change(config);
  const absl::Status status = Optimizer::Create(config, model.pointers()).status();
  EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

void NoChange(OptimizerConfig&) {}

TEST(OptimizerConfig, Muon) {
  EXPECT_EQ(Error([](OptimizerConfig& c) { c.mutable_muon()->set_learning_rate(-0.02); }),
            "optimizer.muon.learning_rate must be finite and 0 or more, found -0.02");
  EXPECT_EQ(Error([](OptimizerConfig& c) { c.mutable_muon()->set_momentum(1); }),
            "optimizer.muon.momentum must be in [0, 1), found 1");
  EXPECT_EQ(Error([](OptimizerConfig& c) { c.mutable_muon()->set_momentum(-0.1); }),
            "optimizer.muon.momentum must be in [0, 1), found -0.1");
  EXPECT_EQ(Error([](OptimizerConfig& c) { c.mutable_muon()->set_weight_decay(-0.1); }),
            "optimizer.muon.weight_decay must be finite and 0 or more, found -0.1");
  EXPECT_EQ(Error([](OptimizerConfig& c) { c.mutable_muon()->set_weight_decay(51); }),
            "optimizer.muon.weight_decay must be at most 1 / learning_rate, found 51");
  EXPECT_EQ(
      Error([](OptimizerConfig& c) { c.mutable_muon()->set_scale(static_cast<MuonScale>(4)); }),
      "optimizer.muon.scale must be one of ASPECT, MATCH_RMS_ADAMW, SPECTRAL, UNIT, found 4");
}

// The optimizer of this test is on the CPU.
TEST(OptimizerConfig, ComputeMode) {
  EXPECT_EQ(Error([](OptimizerConfig& c) {
              c.mutable_muon()->set_compute_mode(static_cast<MuonComputeMode>(2));
            }),
            "optimizer.muon.compute_mode must be one of CONTRACT_FP32, TENSOR_CORE, found 2");
  EXPECT_EQ(Error([](OptimizerConfig& c) { c.mutable_muon()->set_compute_mode(TENSOR_CORE); }),
            "optimizer.muon.compute_mode must be CONTRACT_FP32 on the CPU, found TENSOR_CORE; try "
            "a GPU or its emulation (--device cuda or cuda-emulated), or CONTRACT_FP32 (--set "
            "optimizer.muon.compute_mode=CONTRACT_FP32), with which a run's checkpoints go on");
}

TEST(OptimizerConfig, Coefficients) {
  const auto custom = [](const std::vector<double>& values, const std::vector<int>& restarts) {
    return [=](OptimizerConfig& c) {
      MuonConfig& muon = *c.mutable_muon();
      muon.set_coefficients(CUSTOM);
      for (const double v : values) muon.add_custom_coefficients(v);
      for (const int r : restarts) muon.add_custom_restarts_after(r);
    };
  };
  EXPECT_EQ(Error(custom({3, -3.2, 1.2}, {})), "");
  EXPECT_EQ(Error(custom({3, -3.2, 1.2, 3, -3.2, 1.2}, {1})), "");
  EXPECT_EQ(Error([](OptimizerConfig& c) { c.mutable_muon()->set_coefficients(POLAR_EXPRESS8); }),
            "");
  const std::string length =
      "optimizer.muon.custom_coefficients must hold a, b, c of every step, a positive multiple of "
      "3 values, found ";
  EXPECT_EQ(Error(custom({}, {})), length + "0");
  EXPECT_EQ(Error(custom({3, -3.2}, {})), length + "2");
  EXPECT_EQ(Error(custom({3, -3.2, std::nan("")}, {})),
            "optimizer.muon.Newton-Schulz coefficients 'custom': step 1 is not finite");
  const std::string restart =
      "optimizer.muon.Newton-Schulz coefficients 'custom': found a restart after step ";
  EXPECT_EQ(Error(custom({3, -3.2, 1.2, 3, -3.2, 1.2}, {2})),
            restart + "2, expected ascending step numbers from 1 to 1");
  EXPECT_EQ(Error(custom({3, -3.2, 1.2, 3, -3.2, 1.2}, {-7})),
            restart + "0, expected ascending step numbers from 1 to 1");
  EXPECT_EQ(Error([](OptimizerConfig& c) { c.mutable_muon()->add_custom_coefficients(1); }),
            "optimizer.muon.custom_coefficients must be empty unless optimizer.muon.coefficients "
            "is CUSTOM, found 1 values");
  EXPECT_EQ(Error([](OptimizerConfig& c) { c.mutable_muon()->add_custom_restarts_after(1); }),
            "optimizer.muon.custom_restarts_after must be empty unless "
            "optimizer.muon.coefficients is CUSTOM, found 1 values");
  EXPECT_EQ(Error([](OptimizerConfig& c) {
              c.mutable_muon()->set_coefficients(static_cast<MuonCoefficients>(3));
            }),
            "optimizer.muon.coefficients must be one of QUINTIC5, POLAR_EXPRESS8, CUSTOM, found 3");
}

TEST(OptimizerConfig, Granularity) {
  EXPECT_EQ(Error([](OptimizerConfig& c) {
              c.mutable_muon()->set_granularity(static_cast<MuonGranularity>(5));
            }),
            "optimizer.muon.granularity must be one of HEAD, KV_GROUP, PROJECTION, HEAD_GROUP, "
            "WHOLE_MATRIX, found 5");
  EXPECT_EQ(Error([](OptimizerConfig& c) { c.mutable_muon()->set_granularity(HEAD_GROUP); }),
            "optimizer.muon.head_group_size must be 1 or more for HEAD_GROUP, found 0");
  EXPECT_EQ(Error([](OptimizerConfig& c) { c.mutable_muon()->set_head_group_size(-1); }),
            "optimizer.muon.head_group_size must be 1 or more for HEAD_GROUP, found -1");
  const auto groups_of_three = [](OptimizerConfig& c) {
    c.mutable_muon()->set_granularity(HEAD_GROUP);
    c.mutable_muon()->set_head_group_size(3);
  };
  EXPECT_EQ(Error(groups_of_three),
            "parameter wqkv: head_group_size 3 does not divide the 4 query heads");
  const auto coarse = [](TestModel& model) {
    Parameter& wqkv = model.Get("wqkv");
    wqkv.head_blocks = *wqkv.head_blocks->Coarsen(Granularity::kProjection);
  };
  EXPECT_EQ(Error([](OptimizerConfig& c) { c.mutable_muon()->set_granularity(KV_GROUP); }, coarse),
            "parameter wqkv: blocks of granularity projection cannot be regrouped as kv_group; "
            "coarsen the per-head "
            "blocks instead");
}

TEST(OptimizerConfig, PerHeadNeedsHeadBlocks) {
  const auto without_heads = [](TestModel& model) { model.Get("wqkv").head_blocks.reset(); };
  EXPECT_EQ(Error(NoChange, without_heads),
            "granularity head was asked for, but none of the 11 parameters declares head blocks; "
            "whole_matrix is what such a model can have");
  EXPECT_EQ(Error([](OptimizerConfig& c) { c.mutable_muon()->set_granularity(WHOLE_MATRIX); },
                  without_heads),
            "");
}

TEST(OptimizerConfig, AdamW) {
  EXPECT_EQ(Error([](OptimizerConfig& c) { c.mutable_adamw()->set_learning_rate(std::nan("")); }),
            "optimizer.adamw.learning_rate must be finite and 0 or more, found nan");
  EXPECT_EQ(Error([](OptimizerConfig& c) { c.mutable_adamw()->set_beta1(1); }),
            "optimizer.adamw.beta1 must be in [0, 1), found 1");
  EXPECT_EQ(Error([](OptimizerConfig& c) { c.mutable_adamw()->set_beta2(-0.5); }),
            "optimizer.adamw.beta2 must be in [0, 1), found -0.5");
  EXPECT_EQ(Error([](OptimizerConfig& c) { c.mutable_adamw()->clear_epsilon(); }),
            "optimizer.adamw.epsilon must be finite and more than 0, found 0");
  EXPECT_EQ(Error([](OptimizerConfig& c) { c.mutable_adamw()->set_epsilon(1e-60); }),
            "optimizer.adamw.epsilon must be finite and more than 0, found 1e-60");
  EXPECT_EQ(Error([](OptimizerConfig& c) { c.mutable_adamw()->set_weight_decay(-1); }),
            "optimizer.adamw.weight_decay must be finite and 0 or more, found -1");
  EXPECT_EQ(Error([](OptimizerConfig& c) { c.mutable_adamw()->set_weight_decay(400); }),
            "optimizer.adamw.weight_decay must be at most 1 / learning_rate, found 400");
}

TEST(OptimizerConfig, ClippingAndSchedule) {
  EXPECT_EQ(Error([](OptimizerConfig& c) { c.set_clip_norm(-1); }),
            "optimizer.clip_norm must be finite and 0 or more (0: no clipping), found -1");
  EXPECT_EQ(
      Error([](OptimizerConfig& c) { c.set_clip_norm(std::numeric_limits<double>::infinity()); }),
      "optimizer.clip_norm must be finite and 0 or more (0: no clipping), found inf");
  EXPECT_EQ(Error([](OptimizerConfig& c) { c.set_clip_scope(static_cast<ClipScope>(3)); }),
            "optimizer.clip_scope must be one of CLIP_ADAMW, CLIP_ALL, CLIP_NONE, found 3");
  EXPECT_EQ(Error([](OptimizerConfig& c) { c.mutable_schedule()->set_warmup_steps(-1); }),
            "optimizer.schedule.warmup_steps must be 0 or more, found -1");
  EXPECT_EQ(Error([](OptimizerConfig& c) { c.mutable_schedule()->set_final_fraction(2); }),
            "optimizer.schedule.final_fraction must be in [0, 1], found 2");
}

TEST(OptimizerConfig, ZeroIsLegalWhereItMeansSomething) {
  EXPECT_EQ(Error(NoChange), "");
  EXPECT_EQ(Error([](OptimizerConfig& c) {
              c.mutable_muon()->set_learning_rate(0);
              c.mutable_muon()->set_momentum(0);
              c.mutable_adamw()->set_learning_rate(0);
              c.mutable_adamw()->set_beta1(0);
              c.mutable_adamw()->set_beta2(0);
              c.set_clip_norm(0);
            }),
            "");
  // A configuration without any field set lacks AdamW's epsilon only.
  EXPECT_EQ(Error([](OptimizerConfig& c) { c = OptimizerConfig(); }),
            "optimizer.adamw.epsilon must be finite and more than 0, found 0");
}

TEST(OptimizerConfig, TensorsThatAStepCannotUse) {
  EXPECT_EQ(Error(NoChange,
                  [](TestModel& m) {
                    m.Get("wo").gradient = Tensor::Zeros({24, 20}, DType::kF32, Device::kCpu);
                  }),
            "parameter wo: value has shape [20, 24], gradient [24, 20]");
  EXPECT_EQ(Error(NoChange,
                  [](TestModel& m) {
                    m.Get("norm").value = Tensor::Zeros({20}, DType::kBF16, Device::kCpu);
                  }),
            "parameter norm: the value must be F32 on cpu, found BF16 on cpu");
  EXPECT_EQ(Error(NoChange,
                  [](TestModel& m) {
                    m.Get("w1").gradient = Tensor::Zeros({31, 20}, DType::kF32, Device::kMeta);
                  }),
            "parameter w1: the gradient must be F32 on cpu, found F32 on meta");
  EXPECT_EQ(Error(NoChange, [](TestModel& m) { m.Get("w1").gradient = Tensor(); }),
            "parameter w1 has no gradient, as in a model for inference");
  EXPECT_EQ(Error(NoChange, [](TestModel& m) { m.Get("w1").name = "w2"; }),
            "two parameters are named w2");
}

// Whichever of Muon's and AdamW's the two are.
TEST(OptimizerConfig, ValuesThatShareMemory) {
  EXPECT_EQ(Error(NoChange, [](TestModel& m) { m.Get("head").value = m.Get("embedding").value; }),
            "weights embedding and head share memory");
  EXPECT_EQ(Error(NoChange,
                  [](TestModel& m) {  // a part of the other, and of another group
                    Tensor& w1 = m.Get("w1").value;
                    m.Get("norm").value = w1.Slice(w1.shape()[0] - 1, 1).View({20});
                  }),
            "weights norm and w1 share memory");
  EXPECT_EQ(Error(NoChange, [](TestModel& m) { m.Get("norm").value = m.Get("norm").gradient; }),
            "the value of weight norm and the gradient of weight norm share memory");
  EXPECT_EQ(
      Error(NoChange, [](TestModel& m) { m.Get("embedding").gradient = m.Get("head").value; }),
      "the value of weight head and the gradient of weight embedding share memory");
  // Gradients are only read.
  EXPECT_EQ(
      Error(NoChange, [](TestModel& m) { m.Get("embedding").gradient = m.Get("head").gradient; }),
      "");
}

TEST(DefaultOptimizerConfig, HasTheDocumentedValues) {
  const OptimizerConfig c = DefaultOptimizerConfig();
  EXPECT_EQ(c.muon().learning_rate(), 0.02);
  EXPECT_EQ(c.muon().momentum(), 0.95);
  EXPECT_FALSE(c.muon().disable_nesterov());
  EXPECT_EQ(c.muon().weight_decay(), 0);
  EXPECT_EQ(c.muon().granularity(), HEAD);
  EXPECT_EQ(c.muon().scale(), ASPECT);
  EXPECT_EQ(c.muon().compute_mode(), CONTRACT_FP32);
  EXPECT_EQ(c.adamw().learning_rate(), 3e-3);
  EXPECT_EQ(c.adamw().beta1(), 0.9);
  EXPECT_EQ(c.adamw().beta2(), 0.95);
  EXPECT_EQ(c.adamw().epsilon(), 1e-8);
  EXPECT_EQ(c.adamw().weight_decay(), 0);
  EXPECT_EQ(c.schedule().kind(), CONSTANT);
  EXPECT_EQ(c.clip_norm(), 1.0);
  EXPECT_EQ(c.clip_scope(), CLIP_ADAMW);
}

}  // namespace
}  // namespace headwise
