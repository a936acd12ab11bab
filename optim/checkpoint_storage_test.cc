// However a checkpoint stores the same heads, Muon's step on them is the same, bit for bit, at every
// scale: fused or apart, [out, in] or, as GPT-2's Conv1D, [in, out].
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/common/thread_pool.h"
#include "optim/checkpoint_muon.h"
#include "optim/testing/random_values.h"

namespace headwise {
namespace {

constexpr std::int64_t kHeads = 4, kHeadDim = 4, kWidth = kHeads * kHeadDim;

using Rows = std::vector<std::vector<float>>;  // of q, then k, then v: [3 kWidth, kWidth]

Rows Numbers(std::uint64_t seed) {
  Rows rows;
  for (std::int64_t r = 0; r < 3 * kWidth; ++r) rows.push_back(RandomValues(kWidth, seed + 7 * r));
  return rows;
}

// One way to store them.
struct Storage {
  std::string config;
  std::vector<WeightShape> weights;  // q, k, v from the first on
  bool transposed = false;
};

// GPT-2's c_attn, [in, out]; MPT's Wqkv; OPT's projections: the same attention, 4 heads of 4.
Storage Conv1D() {
  return {R"({"model_type": "gpt2", "n_embd": 16, "n_head": 4})",
          {{"h.0.attn.c_attn.weight", {kWidth, 3 * kWidth}}},
          true};
}
Storage Fused() {
  return {R"({"model_type": "mpt", "d_model": 16, "n_heads": 4})",
          {{"transformer.blocks.0.attn.Wqkv.weight", {3 * kWidth, kWidth}}}};
}
Storage Separate() {
  return {R"({"model_type": "opt", "hidden_size": 16, "num_attention_heads": 4})",
          {{"model.decoder.layers.0.self_attn.q_proj.weight", {kWidth, kWidth}},
           {"model.decoder.layers.0.self_attn.k_proj.weight", {kWidth, kWidth}},
           {"model.decoder.layers.0.self_attn.v_proj.weight", {kWidth, kWidth}}}};
}

// The storage's buffers, one after the other, out of rows, and back.
std::vector<float> Stored(const Storage& storage, const Rows& rows) {
  std::vector<float> elements(3 * kWidth * kWidth);
  for (std::int64_t r = 0; r < 3 * kWidth; ++r) {
    for (std::int64_t c = 0; c < kWidth; ++c) {
      elements[storage.transposed ? c * 3 * kWidth + r : r * kWidth + c] = rows[r][c];
    }
  }
  return elements;
}
Rows Unstored(const Storage& storage, const std::vector<float>& elements) {
  Rows rows(3 * kWidth, std::vector<float>(kWidth));
  for (std::int64_t r = 0; r < 3 * kWidth; ++r) {
    for (std::int64_t c = 0; c < kWidth; ++c) {
      rows[r][c] = elements[storage.transposed ? c * 3 * kWidth + r : r * kWidth + c];
    }
  }
  return rows;
}

// The rows after three steps.
Rows Trained(const Storage& storage, Granularity granularity, UpdateScale scale) {
  const absl::StatusOr<MuonPlan> plan = MuonPlan::Create(
      storage.config, storage.weights, {.granularity = granularity, .head_group_size = 2});
  EXPECT_TRUE(plan.ok()) << plan.status();
  std::vector<float> values = Stored(storage, Numbers(1)), gradients(values.size());
  std::vector<MuonParameter> parameters;
  std::int64_t offset = 0;
  for (const PlannedWeight& weight : plan->weights()) {
    EXPECT_EQ(weight.layout.transposed_storage, storage.transposed);
    parameters.push_back(
        *plan->Parameter(weight.layout.name, values.data() + offset, gradients.data() + offset));
    offset += NumElements(weight.layout.shape);
  }
  absl::StatusOr<Muon> muon = Muon::Create(
      {.learning_rate = 0.125, .momentum = 0.9, .weight_decay = 0.1, .scale = scale}, parameters);
  EXPECT_TRUE(muon.ok()) << muon.status();
  ThreadPool pool(2);
  for (int step = 0; step < 3; ++step) {
    const std::vector<float> next = Stored(storage, Numbers(1000 + step));
    std::copy(next.begin(), next.end(), gradients.begin());
    EXPECT_FALSE(muon->Step(pool).skipped);
  }
  return Unstored(storage, values);
}

class CheckpointStorage : public testing::TestWithParam<UpdateScale> {};

TEST_P(CheckpointStorage, TransposedGetsTheTransposedUpdate) {
  for (const Granularity granularity :
       {Granularity::kWholeMatrix, Granularity::kProjection, Granularity::kKvGroup,
        Granularity::kHead, Granularity::kHeadGroup}) {
    const Rows plain = Trained(Fused(), granularity, GetParam());
    EXPECT_TRUE(Trained(Conv1D(), granularity, GetParam()) == plain) << Name(granularity);
    EXPECT_TRUE(plain != Numbers(1));
  }
}

// A kv group lies in three matrices when they are stored apart: it is no block there.
TEST_P(CheckpointStorage, FusedAndSeparateGetTheSameUpdate) {
  for (const Granularity granularity :
       {Granularity::kProjection, Granularity::kHead, Granularity::kHeadGroup}) {
    EXPECT_TRUE(Trained(Separate(), granularity, GetParam()) ==
                Trained(Fused(), granularity, GetParam()))
        << Name(granularity);
  }
}

INSTANTIATE_TEST_SUITE_P(Scales, CheckpointStorage,
                         testing::Values(UpdateScale::kAspect, UpdateScale::kMatchRmsAdamW,
                                         UpdateScale::kSpectral, UpdateScale::kUnit),
                         [](const auto& info) { return std::string(Name(info.param)); });

}  // namespace
}  // namespace headwise
