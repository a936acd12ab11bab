// Every kernel of the CUDA step on small blocks, for --config=tsan, where the emulation's threads are
// watched for races, and --config=sanitize.
//
// Break it to believe it: leave out a __syncthreads in cuda/chain.cuh.
#include <cstdint>
#include <vector>

#include "core/dtype/dtype.h"
#include "core/heads/head_blocks.h"
#include "gtest/gtest.h"
#include "kernels/muon_step/emulated_step.h"

namespace headwise {
namespace {

// Two steps between restarts, so that each product of the chain occurs.
const NewtonSchulzCoefficients kShort = {
    .name = "short",
    .steps = {{3.5f, -4.75f, 2.0f}, {3.25f, -4.5f, 2.0f}, {3.0f, -3.0f, 1.0f}, {2.0f, -1.5f, 0.5f}},
    .restarts_after = {2}};

template <typename G>
void Check(const std::vector<TestWeight<G>>& weights, emulation::ThreadOrder order,
           MuonChainMemory chain = MuonChainMemory::kAuto) {
  ExpectEmulatedParity({.weight_decay = 0.1, .coefficients = &kShort}, weights, "",
                       {.emulation = {.order = order, .seed = 3}, .chain = chain});
}

// Two blocks of two chunks each.
template <typename G>
std::vector<TestWeight<G>> TwoHeads(std::int64_t d, std::int64_t n) {
  return {TestWeight<G>(*HeadBlocks::Separate(HeadRole::kQuery, 2, d, 1), n, 1)};
}

TEST(EmulatedRaces, UpTo64Rows) {
  Check(TwoHeads<float>(9, 260), emulation::ThreadOrder::kReverse);
  Check(TwoHeads<BFloat16>(20, 270), emulation::ThreadOrder::kRandom);
}

TEST(EmulatedRaces, UpTo128Rows) {
  Check(TwoHeads<BFloat16>(66, 260), emulation::ThreadOrder::kForward);
  Check(TwoHeads<float>(70, 72), emulation::ThreadOrder::kRandom, MuonChainMemory::kTriangles);
}

// A race shows to TSan; of what comes out, that it is the same twice.
template <typename G>
void CheckTensorCores(const std::vector<TestWeight<G>>& weights, emulation::ThreadOrder order) {
  const MuonHyperparameters hyper = {.weight_decay = 0.1, .coefficients = &kShort};
  std::vector<TestWeight<G>> once = weights, again = weights;
  for (std::vector<TestWeight<G>>* w : {&once, &again}) {
    const absl::Status status = StepEmulated(
        hyper, *w,
        {.emulation = {.order = w == &once ? emulation::ThreadOrder::kForward : order, .seed = 3},
         .mode = MuonMode::kTensorCore});
    ASSERT_TRUE(status.ok()) << status;
  }
  for (std::size_t i = 0; i < weights.size(); ++i) {
    ExpectSameBits<float>(again[i].weight.view(), once[i].weight.view(), "weight");
  }
}

TEST(EmulatedRaces, TensorCores) {
  CheckTensorCores(TwoHeads<float>(9, 260), emulation::ThreadOrder::kReverse);
  CheckTensorCores(TwoHeads<BFloat16>(20, 270), emulation::ThreadOrder::kRandom);
  CheckTensorCores<float>({TestWeight<float>(HeadBlocks::Whole(80), 66, 5)},
                          emulation::ThreadOrder::kRandom);
}

TEST(EmulatedRaces, Tiled) {
  Check(TwoHeads<float>(66, 80), emulation::ThreadOrder::kRandom, MuonChainMemory::kScratch);
  Check(TwoHeads<BFloat16>(9, 700), emulation::ThreadOrder::kReverse, MuonChainMemory::kScratch);
}

TEST(EmulatedRaces, TransposedAndScaled) {
  std::vector<TestWeight<float>> weights = {TestWeight<float>(HeadBlocks::Whole(70), 10, 5)};
  for (std::int64_t i = 0; i < 70; ++i) {
    for (std::int64_t j = 0; j < 10; ++j) {
      weights[0].gradient.at(i, j) *= 0x1p-60f;
      weights[0].momentum.at(i, j) *= 0x1p-60f;
    }
  }
  Check(weights, emulation::ThreadOrder::kReverse);
  Check(weights, emulation::ThreadOrder::kReverse, MuonChainMemory::kScratch);
}

}  // namespace
}  // namespace headwise
