// The orders of operations that the contract fixes can be seen: a second, independent statement of
// it gives the reference's bits, and each way of getting one order wrong gives other bits.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/newton_schulz/parity.h"

namespace headwise {
namespace {

enum class Mutation {
  kNone,
  kChunksOf512,
  kHalvingTree,
  kSerialSumOfChunks,
  kGramWithoutFma,
  kSerialTrace,
  kFastRsqrt,
  kReciprocalOfTrace,
  kSquareWithoutFma,
  kSwappedOperands,
  kNotMirrored,
  kScaleAfterProduct,
  kDescendingApply,
};

constexpr std::int64_t kD = 48, kN = 1000;  // four chunks
using Square = std::vector<std::vector<float>>;

float Tree(std::vector<float> p, bool halving) {
  std::size_t size = 1;
  while (size < p.size()) size *= 2;
  p.resize(size, 0.0f);
  for (; size > 1; size /= 2) {
    std::vector<float> next(size / 2);
    for (std::size_t i = 0; i < next.size(); ++i) {
      next[i] = halving ? p[i] + p[i + size / 2] : p[2 * i] + p[2 * i + 1];
    }
    p = next;
  }
  return p[0];
}

float Serial(const std::vector<float>& p) {
  float sum = 0;
  for (const float v : p) sum += v;
  return sum;
}

// Rows of A times columns of B; `full` computes what is above the diagonal too.
template <typename F>
Square Product(const Square& a, const Square& b, bool full, const F& epilogue) {
  Square m(kD, std::vector<float>(kD));
  for (std::int64_t i = 0; i < kD; ++i) {
    for (std::int64_t j = 0; j < (full ? kD : i + 1); ++j) {
      float sum = 0;
      for (std::int64_t k = 0; k < kD; ++k) sum = std::fmaf(a[i][k], b[k][j], sum);
      m[i][j] = epilogue(sum, i, j);
      if (!full) m[j][i] = m[i][j];
    }
  }
  return m;
}

FloatMatrix Restatement(const FloatMatrix& x, Mutation mutation) {
  const auto is = [mutation](Mutation m) { return mutation == m; };
  const std::int64_t chunk = is(Mutation::kChunksOf512) ? 512 : 256;
  Square r(kD, std::vector<float>(kD));
  for (std::int64_t i = 0; i < kD; ++i) {
    for (std::int64_t j = 0; j < kD; ++j) {
      std::vector<float> partials;
      for (std::int64_t c = 0; c < kN; ++c) {
        if (c % chunk == 0) partials.push_back(0);
        float& sum = partials.back();
        sum = is(Mutation::kGramWithoutFma) ? sum + x.at(i, c) * x.at(j, c)
                                            : std::fmaf(x.at(i, c), x.at(j, c), sum);
      }
      r[i][j] = is(Mutation::kSerialSumOfChunks) ? Serial(partials)
                                                 : Tree(partials, is(Mutation::kHalvingTree));
    }
  }
  std::vector<float> diagonal;
  for (std::int64_t i = 0; i < kD; ++i) diagonal.push_back(r[i][i]);
  const float t = is(Mutation::kSerialTrace) ? Serial(diagonal) : Tree(diagonal, false);
  const float s = is(Mutation::kFastRsqrt) ? 1.0f / std::sqrt(t)
                                           : static_cast<float>(1.0 / std::sqrt(double{t}));
  for (auto& row : r) {
    for (float& v : row) v = is(Mutation::kReciprocalOfTrace) ? v * (1.0f / t) : v / t;
  }

  const bool full = is(Mutation::kNotMirrored);
  Square q;
  for (int step = 0; step < 5; ++step) {
    const float a = 3.4445f, b = -4.7750f, c = 2.0315f;
    const Square z = Product(r, r, full, [&](float rr, auto i, auto j) {
      return is(Mutation::kSquareWithoutFma) ? c * rr + b * r[i][j] : std::fmaf(c, rr, b * r[i][j]);
    });
    if (step == 0) {
      q = z;
      for (std::int64_t i = 0; i < kD; ++i) q[i][i] += a;
    } else {
      const bool swapped = is(Mutation::kSwappedOperands);
      q = Product(swapped ? q : z, swapped ? z : q, full,
                  [&](float zq, auto i, auto j) { return std::fmaf(a, q[i][j], zq); });
    }
    if (step == 4) break;
    const Square w =
        Product(z, r, full, [&](float zr, auto i, auto j) { return std::fmaf(a, r[i][j], zr); });
    r = Product(w, z, full, [&](float wz, auto i, auto j) { return std::fmaf(a, w[i][j], wz); });
  }

  FloatMatrix o(kD, kN);
  for (std::int64_t i = 0; i < kD; ++i) {
    for (std::int64_t c = 0; c < kN; ++c) {
      float sum = 0;
      for (std::int64_t k = 0; k < kD; ++k) {
        const std::int64_t at = is(Mutation::kDescendingApply) ? kD - 1 - k : k;
        const float factor = is(Mutation::kScaleAfterProduct) ? q[i][at] : q[i][at] * s;
        sum = std::fmaf(factor, x.at(at, c), sum);
      }
      o.at(i, c) = is(Mutation::kScaleAfterProduct) ? sum * s : sum;
    }
  }
  return o;
}

// The share of elements whose bits differ.
double Different(const FloatMatrix& a, const FloatMatrix& b) {
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < kD; ++i) {
    for (std::int64_t c = 0; c < kN; ++c) count += !SameBits(a.at(i, c), b.at(i, c));
  }
  return static_cast<double>(count) / (kD * kN);
}

FloatMatrix Input(std::uint64_t seed) {
  FloatMatrix x(kD, kN);
  Fill(x, seed);
  return x;
}

TEST(Mutations, RestatementEqualsTheReference) {
  const FloatMatrix x = Input(1);
  ExpectSameBits(Restatement(x, Mutation::kNone).view(),
                 ReferenceOf(Quintic5(), x, HeadBlocks::Whole(kD)).view(), "restatement");
}

class Mutations : public testing::TestWithParam<Mutation> {};

// One rounding of one number, which is all that some mutations change, comes out the same for most
// inputs; hence several.
TEST_P(Mutations, IsSeen) {
  double different = 0;
  for (std::uint64_t seed = 1; seed <= 12 && different <= 0.01; ++seed) {
    const FloatMatrix x = Input(seed);
    different = std::max(different, Different(Restatement(x, GetParam()),
                                              FastOf(Quintic5(), x, HeadBlocks::Whole(kD))));
  }
  EXPECT_GT(different, 0.01);
}

INSTANTIATE_TEST_SUITE_P(All, Mutations,
                         testing::Values(Mutation::kChunksOf512, Mutation::kHalvingTree,
                                         Mutation::kSerialSumOfChunks, Mutation::kGramWithoutFma,
                                         Mutation::kSerialTrace, Mutation::kFastRsqrt,
                                         Mutation::kReciprocalOfTrace, Mutation::kSquareWithoutFma,
                                         Mutation::kSwappedOperands, Mutation::kNotMirrored,
                                         Mutation::kScaleAfterProduct, Mutation::kDescendingApply));

}  // namespace
}  // namespace headwise
