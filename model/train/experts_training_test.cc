// A small model with experts learns, and uses all of its experts.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "model/decoder.h"
#include "model/presets/presets.h"
#include "optim/optimizer.h"

namespace headwise {
namespace {

constexpr std::int64_t kSteps = 16;
constexpr std::int64_t kTokens = 512;

// Text of a kind: letters in the order of a square's remainders, restarted now and then.
TokenBatch Batch(std::int64_t step) {
  TokenBatch batch;
  for (std::int64_t i = 0; i < kTokens; ++i) {
    const auto letter = [&](std::int64_t at) {
      return static_cast<std::int32_t>((at * at % 251 % 19) * 7 + at % 3);
    };
    const std::int64_t at = step * kTokens + i;
    batch.inputs.push_back(letter(at));
    batch.targets.push_back(letter(at + 1));
    batch.positions.push_back(i % 128);
    if (i % 128 == 0) {
      batch.segments.push_back(
          {.query_begin = i, .num_queries = 128, .key_begin = i, .num_keys = 128});
    }
  }
  return batch;
}

std::vector<Parameter*> OfRole(Decoder& decoder, ParameterRole role) {
  std::vector<Parameter*> found;
  for (Parameter* parameter : decoder.parameters()) {
    if (parameter->role == role) found.push_back(parameter);
  }
  return found;
}

TEST(ExpertsTrainingTest, MuseSparkTinyLearnsAndUsesEveryExpert) {
  RunConfig config = *LoadPreset("muse_spark_tiny");
  config.mutable_optimizer()->set_balancing_rate(0.02);  // 16 steps are few
  config.mutable_optimizer()->mutable_schedule()->set_warmup_steps(2);
  config.mutable_optimizer()->mutable_schedule()->set_decay_steps(8);
  const std::unique_ptr<Decoder> decoder = *Decoder::Create(config.model(), {});
  decoder->Initialize(1);
  auto optimizer = *Optimizer::Create(config.optimizer(), decoder->parameters());

  int per_head = 0;
  for (const ParameterAssignment& a : optimizer->assignments()) {
    if (a.role == ParameterRole::kPackedQkv) {
      EXPECT_EQ(a.group, OptimizerGroup::kMuonPerHead) << a.name;
      EXPECT_EQ(a.blocks, 2 * (8 + 1 + 1)) << a.name;
      ++per_head;
    }
    if (a.role == ParameterRole::kExpert) {
      EXPECT_EQ(a.blocks, 8) << a.name;
    }
    if (a.role == ParameterRole::kBalancingBias) {
      EXPECT_EQ(a.group, OptimizerGroup::kBalancing) << a.name;
    }
  }
  EXPECT_EQ(per_head, 4);

  ThreadPool pool(2);
  const auto router_biases = OfRole(*decoder, ParameterRole::kBalancingBias);
  std::vector<double> losses;
  std::vector<double> least_used;  // over layers and experts, as a share of an even load
  for (std::int64_t step = 0; step < kSteps; ++step) {
    losses.push_back(decoder->ForwardBackward(Batch(step), 1.0 / kTokens, pool) / kTokens);
    double least = kTokens;
    for (const Parameter* bias : router_biases) {
      const float* loads = bias->gradient.data<float>();
      least = std::min<double>(least, *std::min_element(loads, loads + bias->gradient.size()));
    }
    least_used.push_back(least / (kTokens * 2.0 / 8));
    EXPECT_FALSE(optimizer->Step(step, kSteps, pool).skipped);
    decoder->WeightsChanged(pool);
  }
  EXPECT_LT(losses.back(), 0.5 * losses.front());
  EXPECT_GT(least_used.back(), 0.3);
}

}  // namespace
}  // namespace headwise
