// Pins the bits of the Muon step on integer-generated inputs, the same on every machine and in
// every build configuration. A changed hash is a changed contract: bump kMuonStepContractVersion
// with it. Also: what only the step's own roundings decide shows in them.
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "core/dtype/dtype.h"
#include "core/heads/head_blocks.h"
#include "core/heads/packed_qkv.h"
#include "core/io/checksum.h"
#include "gtest/gtest.h"
#include "kernels/muon_step/parity.h"

namespace headwise {
namespace {

static_assert(kMuonStepContractVersion == 2);

const MuonHyperparameters kDefaults;
const MuonHyperparameters kOther = {.learning_rate = 0.01,
                                    .momentum = 0.9,
                                    .nesterov = false,
                                    .weight_decay = 0.1,
                                    .scale = UpdateScale::kMatchRmsAdamW};

template <typename G>
std::vector<TestWeight<G>> Weights() {
  const HeadBlocks heads = HeadBlocks::FromPacked(*PackedQkv::Interleaved({4, 2, 16}));
  std::vector<TestWeight<G>> weights;
  weights.emplace_back(heads, 300, 2026);
  weights.emplace_back(*heads.Coarsen(Granularity::kKvGroup), 40, 2027);
  return weights;
}

template <typename G>
std::string HashOf(const std::vector<TestWeight<G>>& weights) {
  Fnv1a64 sum;
  for (const TestWeight<G>& w : weights) {
    AddToChecksum<float>(sum, w.weight.view());
    AddToChecksum<float>(sum, w.momentum.view());
  }
  return ChecksumToHex(sum.value());
}

template <typename G>
void ExpectPinned(const MuonHyperparameters& hyper, const std::string& hash) {
  std::vector<TestWeight<G>> reference = Weights<G>(), fast = reference;
  ASSERT_TRUE(MuonStepReference<G>(hyper, ViewsOf(reference)).ok());
  EXPECT_EQ(HashOf(reference), hash) << "reference";
  ThreadPool pool(2);
  ASSERT_TRUE(MuonStep<G>(hyper, ViewsOf(fast), pool).ok());
  EXPECT_EQ(HashOf(fast), hash) << "fast path";
}

TEST(Goldens, Fp32Gradients) { ExpectPinned<float>(kDefaults, "f23a7dd989b4d7ae"); }
TEST(Goldens, Bf16Gradients) { ExpectPinned<BFloat16>(kDefaults, "86b459e6bb84db33"); }
TEST(Goldens, Fp32GradientsOtherSettings) { ExpectPinned<float>(kOther, "0b8de8f9d5105b45"); }
TEST(Goldens, Bf16GradientsOtherSettings) { ExpectPinned<BFloat16>(kOther, "224e90c4b4ee90e6"); }

// Steps whose last operations are done otherwise: without fma, or with the decay folded in.
TEST(Goldens, OtherRoundingsOfTheWriteAreSeen) {
  const MuonHyperparameters decaying = {.learning_rate = 0.02, .weight_decay = 0.1};
  std::vector<TestWeight<float>> stepped = Weights<float>();
  const std::vector<TestWeight<float>> before = stepped;
  ASSERT_TRUE(MuonStepReference<float>(decaying, ViewsOf(stepped)).ok());

  // The update alone: a step on zeros, for which w = -p O exactly rounded.
  std::vector<TestWeight<float>> update = before;
  for (TestWeight<float>& w : update) {
    for (std::int64_t i = 0; i < w.weight.rows(); ++i) {
      for (std::int64_t j = 0; j < w.weight.width(); ++j) w.weight.at(i, j) = 0.0f;
    }
  }
  ASSERT_TRUE(MuonStepReference<float>(decaying, ViewsOf(update)).ok());
  const float decay = static_cast<float>(1.0 - 0.02 * 0.1);
  std::int64_t without_fma = 0, folded = 0;
  for (std::int64_t i = 0; i < before[0].weight.rows(); ++i) {
    for (std::int64_t j = 0; j < before[0].weight.width(); ++j) {
      const float w = before[0].weight.at(i, j), u = update[0].weight.at(i, j);
      without_fma += w * decay + u != stepped[0].weight.at(i, j);
      folded += std::fma(w, decay, u) != stepped[0].weight.at(i, j);
    }
  }
  EXPECT_GT(without_fma, before[0].weight.rows());
  EXPECT_GT(folded, before[0].weight.rows());
}

}  // namespace
}  // namespace headwise
