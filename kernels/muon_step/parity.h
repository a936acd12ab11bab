// For tests: one weight with its momentum and gradient, stepped by the reference and the fast path.
#ifndef HEADWISE_KERNELS_MUON_STEP_PARITY_H_
#define HEADWISE_KERNELS_MUON_STEP_PARITY_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/heads/head_blocks.h"
#include "gtest/gtest.h"
#include "kernels/common/testing/kernel_testing.h"
#include "kernels/common/thread_pool.h"
#include "kernels/muon_step/muon_step.h"

namespace headwise {

template <typename G>
struct TestWeight {
  TestWeight(HeadBlocks blocks, std::int64_t other_axis, std::uint64_t seed,
             Layout layout = Layout::kContiguous)
      : TestWeight(std::move(blocks), other_axis, layout) {
    Fill(weight, 3 * seed);
    Fill(momentum, 3 * seed + 1, 0.01);
    Fill(gradient, 3 * seed + 2, 0.02);
  }

  MuonWeight<G> view() {
    return {.weight = weight.span(),
            .momentum = momentum.span(),
            .gradient = gradient.view(),
            .blocks = &blocks,
            .transposed_storage = transposed_storage};
  }

  HeadBlocks blocks;
  TestMatrix<float> weight, momentum;
  TestMatrix<G> gradient;
  bool transposed_storage = false;

 private:
  TestWeight(HeadBlocks b, std::int64_t other_axis, Layout layout)
      : blocks(std::move(b)),
        weight(Rows(blocks, other_axis), Cols(blocks, other_axis), layout),
        momentum(Rows(blocks, other_axis), Cols(blocks, other_axis), layout),
        gradient(Rows(blocks, other_axis), Cols(blocks, other_axis), layout) {}

  static std::int64_t Rows(const HeadBlocks& b, std::int64_t other) {
    return b.axis() == BlockAxis::kRows ? b.axis_size() : other;
  }
  static std::int64_t Cols(const HeadBlocks& b, std::int64_t other) {
    return b.axis() == BlockAxis::kColumns ? b.axis_size() : other;
  }
};

template <typename G>
std::vector<MuonWeight<G>> ViewsOf(std::vector<TestWeight<G>>& weights) {
  std::vector<MuonWeight<G>> views;
  for (TestWeight<G>& w : weights) views.push_back(w.view());
  return views;
}

// Both leave the same weights and momentum, and the fast path nothing else.
template <typename G>
void ExpectStepParity(const MuonHyperparameters& hyper, const std::vector<TestWeight<G>>& weights,
                      const std::string& what, int threads = 2) {
  std::vector<TestWeight<G>> expected = weights, actual = weights;
  ThreadPool pool(threads);
  const absl::Status reference = MuonStepReference<G>(hyper, ViewsOf(expected));
  ASSERT_TRUE(reference.ok()) << what << ": " << reference;
  const absl::Status fast = MuonStep<G>(hyper, ViewsOf(actual), pool);
  ASSERT_TRUE(fast.ok()) << what << ": " << fast;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    ExpectSameBits<float>(actual[i].weight.view(), expected[i].weight.view(), what + ", weight");
    ExpectSameBits<float>(actual[i].momentum.view(), expected[i].momentum.view(),
                          what + ", momentum");
    ExpectSameBits<G>(actual[i].gradient.view(), weights[i].gradient.view(), what + ", gradient");
    actual[i].weight.ExpectGapsUntouched();
    actual[i].momentum.ExpectGapsUntouched();
  }
}

}  // namespace headwise

#endif  // HEADWISE_KERNELS_MUON_STEP_PARITY_H_
