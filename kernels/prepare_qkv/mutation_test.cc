// Would the bitwise tests notice a wrong order of operations? The reference is run with arithmetic
// that is mathematically right and not the contract's, and must differ in fp32 storage by the very
// comparison that bitwise_test makes.
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/prepare_qkv/reference_impl.h"
#include "kernels/prepare_qkv/test_problem.h"

namespace headwise {
namespace {

using Contract = ContractArithmetic<float>;

struct AdjacentPairsInDot : Contract {
  static float Dot(const Head<float>& a, const Head<float>& b) {
    float p[kMaxHeadDim / 8] = {};
    for (std::int64_t d = 0; d < a.size(); ++d) p[d / 8] = std::fma(a[d], b[d], p[d / 8]);
    std::uint64_t n = std::bit_ceil(static_cast<std::uint64_t>(a.size() + 7) / 8);
    for (n /= 2; n >= 1; n /= 2) {
      for (std::uint64_t c = 0; c < n; ++c) p[c] = p[2 * c] + p[2 * c + 1];
    }
    return p[0];
  }
};

struct ChunksOfSixteen : Contract {
  static float Dot(const Head<float>& a, const Head<float>& b) {
    float p[kMaxHeadDim / 16] = {};
    for (std::int64_t d = 0; d < a.size(); ++d) p[d / 16] = std::fma(a[d], b[d], p[d / 16]);
    std::uint64_t n = std::bit_ceil(static_cast<std::uint64_t>(a.size() + 15) / 16);
    for (n /= 2; n >= 1; n /= 2) {
      for (std::uint64_t c = 0; c < n; ++c) p[c] = p[c] + p[c + n];
    }
    return p[0];
  }
};

struct ProductsRoundedInDot : Contract {
  static float Dot(const Head<float>& a, const Head<float>& b) {
    float p[kMaxHeadDim / 8] = {};
    for (std::int64_t d = 0; d < a.size(); ++d) p[d / 8] = a[d] * b[d] + p[d / 8];
    std::uint64_t n = std::bit_ceil(static_cast<std::uint64_t>(a.size() + 7) / 8);
    for (n /= 2; n >= 1; n /= 2) {
      for (std::uint64_t c = 0; c < n; ++c) p[c] = p[c] + p[c + n];
    }
    return p[0];
  }
};

struct SingleSquareRoot : Contract {
  static float ReciprocalRoot(float v) { return 1.0f / std::sqrt(v); }
};

struct FusedMeanAndEpsilon : Contract {
  static float MeanPlusEpsilon(float sum, std::int64_t dim, float epsilon) {
    return std::fma(sum, 1.0f / static_cast<float>(dim), epsilon);
  }
};

struct FusedRotation : Contract {
  static float SumOfProducts(float a, float b, float c, float d) { return std::fma(a, b, c * d); }
  static float DifferenceOfProducts(float a, float b, float c, float d) {
    return std::fma(a, b, -(c * d));
  }
};

struct TilesOfThirtyTwo : Contract {
  static constexpr std::int64_t kTile = 32;
};

struct HalvingTreeOverHeadsAndTiles : Contract {
  static Head<float> AdjacentPairTree(std::vector<Head<float>> p) {
    p.resize(std::bit_ceil(p.size()), Head<float>::Zero(p[0].size()));
    for (std::size_t n = p.size() / 2; n >= 1; n /= 2) {
      for (std::size_t i = 0; i < n; ++i) p[i] = Head<float>(p[i] + p[i + n]);
    }
    return p[0];
  }
};

template <typename Arithmetic>
std::string DifferenceFromCpu() {
  // 257 tokens: more than two tiles. 96: not a power of two, or a fused mean would be exact.
  const Problem<float> problem({.tokens = 257, .group_size = 5, .head_dim = 96});
  ThreadPool pool(1);
  const QkvInputs<float> in = problem.inputs();
  const Reference<float, Arithmetic> reference(problem.op(), in);
  Results<float> results = problem.MakeResults();
  reference.Forward(Problem<float>::Outputs(results));
  reference.Backward(problem.gradients(), problem.Gradients(results));
  return Difference(problem.RunCpu(pool), results);
}

TEST(Mutation, ContractItselfIsEqual) { EXPECT_EQ(DifferenceFromCpu<Contract>(), ""); }

template <typename Arithmetic>
class Mutation : public testing::Test {};

// Those that change what every head is divided by, or how it is turned.
using ForwardMutations = testing::Types<AdjacentPairsInDot, ChunksOfSixteen, ProductsRoundedInDot,
                                        SingleSquareRoot, FusedMeanAndEpsilon, FusedRotation>;
template <typename Arithmetic>
class ForwardMutation : public Mutation<Arithmetic> {};
TYPED_TEST_SUITE(ForwardMutation, ForwardMutations);

TYPED_TEST(ForwardMutation, IsNoticedForwardAndBackward) {
  const std::string difference = DifferenceFromCpu<TypeParam>();
  for (const char* matrix : {"q: ", "k: ", "dpacked: ", "dq_weight: ", "dk_weight: "}) {
    EXPECT_NE(difference.find(matrix), std::string::npos) << matrix << difference;
  }
  EXPECT_EQ(difference.find("v: "), std::string::npos) << difference;
}

// Those that change the sums over tokens and heads only.
using WeightMutations = testing::Types<TilesOfThirtyTwo, HalvingTreeOverHeadsAndTiles>;
template <typename Arithmetic>
class WeightMutation : public Mutation<Arithmetic> {};
TYPED_TEST_SUITE(WeightMutation, WeightMutations);

TYPED_TEST(WeightMutation, IsNoticedInWeightGradients) {
  const std::string difference = DifferenceFromCpu<TypeParam>();
  EXPECT_NE(difference.find("dq_weight: "), std::string::npos) << difference;
  EXPECT_NE(difference.find("dk_weight: "), std::string::npos) << difference;
  EXPECT_EQ(difference.find("dpacked: "), std::string::npos) << difference;
}

}  // namespace
}  // namespace headwise
