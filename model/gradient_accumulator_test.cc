#include "model/gradient_accumulator.h"

#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/prepare_qkv/prepare_qkv.h"
#include "model/random.h"

namespace headwise {
namespace {

constexpr std::int64_t kSize = 37;
constexpr std::int64_t kGroups = 2, kHeadDim = 6;

float LeafValue(std::uint64_t leaf, std::int64_t i) {
  // Magnitudes far apart, so that every order of additions has its own rounding.
  return static_cast<float>(Normal(leaf + 100, i) * (i % 3 == 0 ? 1 : 1e4 * Normal(leaf, 2 * i)));
}

// Leaves [begin, end) of element i by the tree: halves, left plus right.
float Tree(std::uint64_t begin, std::uint64_t end, std::int64_t i) {
  if (end - begin == 1) return LeafValue(begin, i);
  const std::uint64_t middle = begin + (end - begin) / 2;
  return Tree(begin, middle, i) + Tree(middle, end, i);
}

struct Fixture {
  Fixture() {
    matrix.name = "w";
    matrix.value = Tensor::Zeros({kSize}, DType::kF32, Device::kCpu);
    matrix.gradient = matrix.value.Clone();
    norm.name = "q_norm";
    norm.value = Tensor::Zeros({kHeadDim}, DType::kF32, Device::kCpu);
    norm.gradient = norm.value.Clone();
    norm.per_group_gradient = Tensor::Zeros({kGroups, kHeadDim}, DType::kF32, Device::kCpu);
  }
  // What a backward pass does.
  void Write(std::uint64_t leaf) {
    for (std::int64_t i = 0; i < kSize; ++i) matrix.gradient.data<float>()[i] = LeafValue(leaf, i);
    float* groups = norm.per_group_gradient.data<float>();
    for (std::int64_t i = 0; i < kGroups * kHeadDim; ++i) groups[i] = LeafValue(leaf, i);
    Reduce();
  }
  void Reduce() {
    ReduceHeadNormGradient<float>(norm.per_group_gradient.Rows<float>(),
                                  absl::Span<float>(norm.gradient.data<float>(), kHeadDim));
  }
  Parameter matrix, norm;
};

void ExpectTree(const Fixture& f, std::uint64_t first, std::uint64_t leaves) {
  for (std::int64_t i = 0; i < kSize; ++i) {
    EXPECT_EQ(f.matrix.gradient.data<float>()[i], Tree(first, first + leaves, i)) << i;
  }
  for (std::int64_t d = 0; d < kHeadDim; ++d) {
    // Over leaves first, then over groups.
    EXPECT_EQ(f.norm.gradient.data<float>()[d],
              Tree(first, first + leaves, d) + Tree(first, first + leaves, kHeadDim + d));
  }
}

TEST(GradientAccumulatorTest, EqualsTheTreeOverLeavesInEveryStep) {
  ThreadPool pool(2);
  for (const std::int64_t leaves : {1, 2, 4, 8}) {
    Fixture f;
    GradientAccumulator accumulator({&f.matrix, &f.norm}, leaves);
    std::uint64_t next = 0;
    for (int step = 0; step < 2; ++step) {
      const std::uint64_t first = next;
      for (std::int64_t leaf = 0; leaf < leaves; ++leaf) {
        f.Write(next++);
        accumulator.Add(pool);
      }
      ExpectTree(f, first, leaves);
    }
  }
}

TEST(GradientAccumulatorTest, TheTreeIsNotARunningSum) {
  // Else the test above could not tell them apart.
  int different = 0;
  for (std::int64_t i = 0; i < kSize; ++i) {
    const float running = ((LeafValue(0, i) + LeafValue(1, i)) + LeafValue(2, i)) + LeafValue(3, i);
    if (running != Tree(0, 4, i)) ++different;
  }
  EXPECT_GT(different, 3);
}

TEST(GradientAccumulatorTest, OneLeafCostsNothing) {
  Fixture f;
  GradientAccumulator accumulator({&f.matrix, &f.norm}, 1);
  EXPECT_EQ(accumulator.buffer_bytes(), 0);
  const void* storage = f.matrix.gradient.raw_data();
  f.Write(3);
  ThreadPool pool(1);
  accumulator.Add(pool);
  EXPECT_EQ(f.matrix.gradient.raw_data(), storage);
}

TEST(GradientAccumulatorTest, KeepsLog2LeavesPartialSums) {
  Fixture f;
  const std::int64_t bytes = (kSize + kGroups * kHeadDim) * 4;
  EXPECT_EQ(GradientAccumulator({&f.matrix, &f.norm}, 8).buffer_bytes(), 3 * bytes);
}

TEST(GradientAccumulatorDeathTest, LeavesArePowersOfTwo) {
  Fixture f;
  EXPECT_DEATH(GradientAccumulator({&f.matrix}, 3), "3 leaves must be a power of two");
}

TEST(GradientAccumulatorDeathTest, AModelForInferenceHasNothingToSum) {
  Fixture f;
  f.norm.gradient = Tensor();
  for (const std::int64_t leaves : {1, 4}) {
    EXPECT_DEATH(GradientAccumulator({&f.matrix, &f.norm}, leaves),
                 "parameter q_norm has no gradient, as in a model for inference");
  }
}

}  // namespace
}  // namespace headwise
