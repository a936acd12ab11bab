#include "kernels/cross_entropy/sharded_cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/dtype/dtype.h"
#include "core/io/checksum.h"
#include "gtest/gtest.h"
#include "kernels/common/math.h"
#include "kernels/common/testing/kernel_testing.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/cross_entropy/test_problem.h"

namespace headwise {
namespace {

// Shard s has columns [cuts[s], cuts[s + 1]).
using Cuts = std::vector<std::int64_t>;

// One, two, three and four shards, even and uneven, with empty ones first, last and between.
std::vector<Cuts> CutsOf(std::int64_t width) {
  return {{0, width},
          {0, width / 2, width},
          {0, 0, width},
          {0, width / 3, width - width / 4, width},
          {0, std::min<std::int64_t>(width, 1), width, width},
          {0, width / 4, width / 2, width / 2, width}};
}

std::string Describe(const LogitTransform& op, const Cuts& cuts) {
  std::string what = Name(op) + ", cuts";
  for (const std::int64_t cut : cuts) what += " " + std::to_string(cut);
  return what;
}

template <typename T>
RowSpan<T> Columns(RowSpan<T> m, const Cuts& cuts, std::size_t shard) {
  return RowSpan<T>(m.data + cuts[shard], m.rows, cuts[shard + 1] - cuts[shard], m.stride);
}

template <typename C>
absl::Span<C> RowOf(TestMatrix<C>& m, std::size_t row) {
  return {m.span().row(static_cast<std::int64_t>(row)), static_cast<std::size_t>(m.width())};
}

// Shards in order, serially.
template <typename C>
void AddShards(TestMatrix<C>& parts, absl::Span<C> sum) {
  for (std::size_t t = 0; t < sum.size(); ++t) {
    sum[t] = parts.at(0, static_cast<std::int64_t>(t));
    for (std::int64_t s = 1; s < parts.rows(); ++s) {
      sum[t] = sum[t] + parts.at(s, static_cast<std::int64_t>(t));
    }
  }
}

// What the shards have between the steps, and the losses.
template <typename C>
struct Sharded {
  TestMatrix<C> maxima, sums, target_logits;  // [shards, T]
  std::vector<C> largest, sum, target_logit, losses;
};

// The whole loss as shards make it. dz has the columns of all shards; it may be z itself.
template <typename T, typename C = Compute<T>>
Sharded<C> RunShards(const LogitTransform& op, RowSpan<const C> z,
                     const std::vector<std::int32_t>& targets, double loss_scale, const Cuts& cuts,
                     RowSpan<T> dz, ThreadPool& pool) {
  const auto shards = static_cast<std::int64_t>(cuts.size()) - 1;
  const std::vector<C> zeros(targets.size());
  const TestMatrix<C> part(shards, z.rows);
  Sharded<C> r = {part, part, part, zeros, zeros, zeros, zeros};
  const auto shard = [&](std::size_t s) {
    return VocabularyShard{.begin = cuts[s], .vocabulary = z.width};
  };
  for (std::size_t s = 0; s + 1 < cuts.size(); ++s) {
    ShardMaxima<T>(op, Columns(z, cuts, s), RowOf(r.maxima, s), pool);
  }
  LargestOfShards<C>(r.maxima.view(), absl::MakeSpan(r.largest));
  for (std::size_t s = 0; s + 1 < cuts.size(); ++s) {
    ShardSums<T>(op, Columns(z, cuts, s), targets, shard(s), r.largest, RowOf(r.sums, s),
                 RowOf(r.target_logits, s), pool);
  }
  AddShards(r.sums, absl::MakeSpan(r.sum));
  AddShards(r.target_logits, absl::MakeSpan(r.target_logit));
  ShardedLosses<C>(targets, r.sum, r.target_logit, absl::MakeSpan(r.losses));
  if (dz.data == nullptr) return r;
  for (std::size_t s = 0; s + 1 < cuts.size(); ++s) {
    ShardGradient<T>(op, Columns(z, cuts, s), targets, shard(s), r.largest, r.sum, loss_scale,
                     Columns(dz, cuts, s), pool);
  }
  return r;
}

template <typename C>
RowSpan<const C> AsRow(const std::vector<C>& v) {
  return RowSpan<const C>(v.data(), 1, static_cast<std::int64_t>(v.size()));
}

// --- The contract, one element at a time ---------------------------------------------------------

template <typename T, typename C = Compute<T>>
void ExpectReferenceBits(const LogitTransform& op, std::int64_t rows, std::int64_t width,
                         const Cuts& cuts, int threads, bool specials) {
  const std::string what = Describe(op, cuts) + ", " + std::to_string(rows) + " rows";
  TestMatrix<C> z(rows, width, Layout::kStrided);
  specials ? FillWithSpecials(z, width, 30.0) : Fill(z, width, 30.0);
  const std::vector<std::int32_t> targets = Targets(rows, width);
  TestMatrix<T> dz(rows, width, Layout::kStrided), expected_dz(rows, width);
  ThreadPool pool(threads);
  const Sharded<C> r = RunShards<T>(op, z.view(), targets, kLossScale, cuts, dz.span(), pool);
  Sharded<C> expected = r;
  const bool capped = op.cap > 0;
  const C k = C(capped ? op.multiplier / op.cap : op.multiplier);
  const C g = C(kLossScale * op.multiplier);
  const auto shards = static_cast<std::int64_t>(cuts.size()) - 1;
  for (std::int64_t t = 0; t < rows; ++t) {
    std::vector<C> h(width), l(width), e(width);
    C m = -std::numeric_limits<C>::infinity();
    for (std::int64_t i = 0; i < width; ++i) {
      h[i] = Tanh(z.at(t, i) * k);
      l[i] = capped ? C(op.cap) * h[i] : z.at(t, i) * k;
      if (l[i] > m) m = l[i];
    }
    // Of zeros either may be the largest.
    ASSERT_EQ(r.largest[t], m) << what;
    if (m == 0) m = r.largest[t];
    const bool ignored = targets[t] == kIgnoredTarget;
    C s = 0;
    for (std::int64_t shard = 0; shard < shards; ++shard) {
      C p[64] = {};
      for (std::int64_t i = cuts[shard]; i < cuts[shard + 1]; ++i) {
        e[i] = Exp(l[i] - m);
        const std::int64_t chain = (i - cuts[shard]) % 64;
        p[chain] = p[chain] + e[i];
      }
      for (int n = 32; n >= 1; n /= 2) {
        for (int c = 0; c < n; ++c) p[c] = p[c] + p[c + n];
      }
      const bool here = targets[t] >= cuts[shard] && targets[t] < cuts[shard + 1];
      expected.sums.at(shard, t) = ignored ? C(0) : p[0];
      expected.target_logits.at(shard, t) = here && !ignored ? l[targets[t]] - m : C(0);
      s = shard == 0 ? p[0] : s + p[0];
    }
    if (!ignored) expected.losses[t] = Log(s) - (l[targets[t]] - m);
    if (ignored) expected.losses[t] = C(0);
    const C inverse = C(1) / s;
    for (std::int64_t i = 0; i < width; ++i) {
      C probability = e[i] * inverse;
      if (i == targets[t]) probability = probability - C(1);
      C gradient = probability * g;
      if (capped) gradient = gradient * std::fma(-h[i], h[i], C(1));
      expected_dz.at(t, i) = Narrow<T>(ignored ? C(0) : gradient);
    }
  }
  ExpectSameBits(r.sums.view(), expected.sums.view(), "sums, " + what);
  ExpectSameBits(r.target_logits.view(), expected.target_logits.view(), "target logits, " + what);
  ExpectSameBits(AsRow(r.losses), AsRow(expected.losses), "losses, " + what);
  ExpectSameBits<T>(dz.view(), expected_dz.view(), "dz, " + what);
  for (const TestMatrix<C>* m : {&r.maxima, &r.sums, &r.target_logits}) m->ExpectGapsUntouched();
  dz.ExpectGapsUntouched();
}

template <typename T>
class ShardedCrossEntropyTest : public ::testing::Test {};
using StorageTypes = ::testing::Types<float, BFloat16, double>;
TYPED_TEST_SUITE(ShardedCrossEntropyTest, StorageTypes);

TYPED_TEST(ShardedCrossEntropyTest, EqualsTheReferenceForAnyCutAndThreads) {
  for (const LogitTransform& op : kTransforms) {
    for (const std::int64_t width : kOddSizes) {
      for (const Cuts& cuts : CutsOf(width)) {
        for (const bool specials : {false, true}) {
          ExpectReferenceBits<TypeParam>(op, 9, width, cuts, 2, specials);
        }
      }
    }
    for (const int threads : {1, 2, 3}) {
      for (const Cuts& cuts : CutsOf(1031)) {
        ExpectReferenceBits<TypeParam>(op, 65, 1031, cuts, threads, false);
        ExpectReferenceBits<TypeParam>(op, 0, 1031, cuts, threads, false);
      }
    }
  }
}

TYPED_TEST(ShardedCrossEntropyTest, OneShardHasTheBitsOfTheWhole) {
  using C = Compute<TypeParam>;
  for (const LogitTransform& op : kTransforms) {
    for (const std::int64_t width : kOddSizes) {
      for (const bool specials : {false, true}) {
        TestMatrix<C> z(20, width, Layout::kStrided);
        specials ? FillWithSpecials(z, width, 30.0) : Fill(z, width, 30.0);
        // A row without any number, one of zeros, and ones with infinities only.
        for (std::int64_t i = 0; i < width; ++i) {
          z.at(0, i) = std::numeric_limits<C>::quiet_NaN();
          z.at(1, i) = i % 2 == 0 ? C(0) : -C(0);
          z.at(2, i) = -std::numeric_limits<C>::infinity();
          z.at(4, i) = std::numeric_limits<C>::infinity();
        }
        const std::vector<std::int32_t> targets = Targets(20, width);
        TestMatrix<TypeParam> dz(20, width), expected_dz(20, width);
        std::vector<C> expected(20);
        ThreadPool pool(2);
        CrossEntropy<TypeParam>(op, z.view(), targets, kLossScale, absl::MakeSpan(expected),
                                expected_dz.span(), pool);
        const Sharded<C> r =
            RunShards<TypeParam>(op, z.view(), targets, kLossScale, {0, width}, dz.span(), pool);
        const std::string what = Name(op) + ", width " + std::to_string(width);
        ExpectSameBits(AsRow(r.losses), AsRow(expected), "losses, " + what);
        ExpectSameBits<TypeParam>(dz.view(), expected_dz.view(), "dz, " + what);
      }
    }
  }
}

TEST(ShardedCrossEntropy, GradientMayTakeTheLogitsPlace) {
  for (const LogitTransform& op : kTransforms) {
    for (const Cuts& cuts : CutsOf(77)) {
      TestMatrix<float> z(20, 77, Layout::kStrided), dz(20, 77);
      Fill(z, 5, 10.0);
      const std::vector<std::int32_t> targets = Targets(20, 77);
      ThreadPool pool(2);
      RunShards<float>(op, z.view(), targets, 1.0, cuts, dz.span(), pool);
      RunShards<float>(op, z.view(), targets, 1.0, cuts, z.span(), pool);
      ExpectSameBits(z.view(), dz.view(), Describe(op, cuts));
    }
  }
}

// --- The formula ---------------------------------------------------------------------------------

// Losses and gradients in storage T against the whole kernel's in double. What rounding may do:
// l and the loss are off by a few ulps of the largest of them, and l's error is the relative error
// of a probability.
template <typename T>
void ExpectNearDouble(const LogitTransform& op, const Cuts& cuts, double scale) {
  using C = Compute<T>;
  const std::int64_t rows = 30, width = cuts.back();
  const double epsilon = std::numeric_limits<C>::epsilon();
  const double rounding = std::is_same_v<T, BFloat16> ? 0x1p-8 : 0;
  TestMatrix<C> z(rows, width);
  Fill(z, 6, scale);
  TestMatrix<double> exact_z(rows, width), exact_dz(rows, width);
  for (std::int64_t t = 0; t < rows; ++t) {
    for (std::int64_t i = 0; i < width; ++i) exact_z.at(t, i) = static_cast<double>(z.at(t, i));
  }
  const std::vector<std::int32_t> targets = Targets(rows, width);
  std::vector<double> exact(static_cast<std::size_t>(rows));
  TestMatrix<T> dz(rows, width);
  ThreadPool pool(2);
  CrossEntropy<double>(op, exact_z.view(), targets, kLossScale, absl::MakeSpan(exact),
                       exact_dz.span(), pool);
  const Sharded<C> r = RunShards<T>(op, z.view(), targets, kLossScale, cuts, dz.span(), pool);
  const double g = kLossScale * op.multiplier;
  for (std::int64_t t = 0; t < rows; ++t) {
    const auto logit = [&](std::int64_t i) {
      const double x = exact_z.at(t, i) * op.multiplier;
      return op.cap > 0 ? op.cap * std::tanh(x / op.cap) : x;
    };
    double largest = std::max(1.0, exact[t]);
    for (std::int64_t i = 0; i < width; ++i) largest = std::max(largest, std::abs(logit(i)));
    const double bound = 4 * epsilon * largest;
    ASSERT_NEAR(r.losses[t], exact[t], bound) << Describe(op, cuts);
    if (targets[t] == kIgnoredTarget) continue;
    const double log_sum = exact[t] + logit(targets[t]);
    for (std::int64_t i = 0; i < width; ++i) {
      const double weight = i == targets[t] ? 1 : std::exp(logit(i) - log_sum);
      ASSERT_NEAR(Widen(dz.at(t, i)), exact_dz.at(t, i),
                  g * weight * bound + rounding * std::abs(exact_dz.at(t, i)) + 1e-42)
          << Describe(op, cuts) << ": row " << t << ", column " << i;
    }
  }
}

TYPED_TEST(ShardedCrossEntropyTest, IsTheWholeLossAndGradientUpToRounding) {
  for (const LogitTransform& op : kTransforms) {
    for (const std::int64_t width : {5, 300, 2000}) {
      for (const Cuts& cuts : CutsOf(width)) {
        for (const double scale : {1e-3, 1.0, 30.0}) ExpectNearDouble<TypeParam>(op, cuts, scale);
      }
    }
  }
}

TEST(ShardedCrossEntropy, GradientIsTheDerivative) {
  for (const LogitTransform& op : kTransforms) {
    for (const Cuts& cuts : CutsOf(13)) {
      TestMatrix<double> z(4, 13), dz(4, 13);
      Fill(z, 2, 3.0);
      const std::vector<std::int32_t> targets = {0, 12, 5, kIgnoredTarget};
      ThreadPool pool(1);
      RunShards<double>(op, z.view(), targets, 0.3, cuts, dz.span(), pool);
      const auto loss = [&] {
        const Sharded<double> r =
            RunShards<double>(op, z.view(), targets, 0.3, cuts, RowSpan<double>(), pool);
        return 0.3 * (r.losses[0] + r.losses[1] + r.losses[2] + r.losses[3]);
      };
      ExpectGradient(z, dz.view(), loss, Describe(op, cuts));
    }
  }
}

TEST(ShardedCrossEntropy, FarApartShardsNeitherOverflowNorVanish) {
  // All of the second shard lies far above the first, then far below.
  for (const float offset : {1e4f, -1e4f, 1e30f, -1e30f}) {
    TestMatrix<float> z(1, 40), dz(1, 40);
    Fill(z, 1);
    for (std::int64_t i = 20; i < 40; ++i) z.at(0, i) = offset;
    const std::int32_t target = offset > 0 ? 30 : 3;
    std::vector<float> expected(1);
    TestMatrix<float> expected_dz(1, 40);
    ThreadPool pool(1);
    CrossEntropy<float>({}, z.view(), {target}, 1.0, absl::MakeSpan(expected), expected_dz.span(),
                        pool);
    const Sharded<float> r =
        RunShards<float>({}, z.view(), {target}, 1.0, {0, 20, 40}, dz.span(), pool);
    EXPECT_TRUE(std::isfinite(r.losses[0]));
    EXPECT_NEAR(r.losses[0], expected[0], 1e-6) << offset;
    for (std::int64_t i = 0; i < 40; ++i) EXPECT_NEAR(dz.at(0, i), expected_dz.at(0, i), 1e-6);
  }
}

TEST(ShardedCrossEntropy, ANaNOfOneShardIsSeenByAll) {
  TestMatrix<float> z(2, 40), dz(2, 40);
  Fill(z, 1);
  z.at(0, 33) = std::numeric_limits<float>::quiet_NaN();
  ThreadPool pool(1);
  const Sharded<float> r =
      RunShards<float>({}, z.view(), {3, 3}, 1.0, {0, 10, 30, 40}, dz.span(), pool);
  EXPECT_TRUE(std::isnan(r.losses[0]));
  EXPECT_FALSE(std::isnan(r.losses[1]));
  for (std::int64_t i = 0; i < 40; ++i) {
    EXPECT_TRUE(std::isnan(dz.at(0, i))) << i;
    EXPECT_FALSE(std::isnan(dz.at(1, i))) << i;
  }
}

template <typename T>
std::uint64_t Golden() {
  Fnv1a64 sum;
  ThreadPool pool(2);
  for (const LogitTransform& op : kTransforms) {
    TestMatrix<float> z(40, 515);
    TestMatrix<T> dz(40, 515);
    Fill(z, 1, 12.0);
    const Sharded<float> r = RunShards<T>(op, z.view(), Targets(40, 515), kLossScale,
                                          {0, 130, 301, 515}, dz.span(), pool);
    AddToChecksum(sum, AsRow(r.losses));
    AddToChecksum<T>(sum, dz.view());
  }
  return sum.value();
}
TEST(ShardedCrossEntropy, BitsAreGolden) {
  EXPECT_EQ(Golden<float>(), 0x35a1cc4dd6d529efu);
  EXPECT_EQ(Golden<BFloat16>(), 0xaa3f8e8603c2ef76u);
}

TEST(ShardedCrossEntropyDeathTest, WrongArgumentsAreNamed) {
  TestMatrix<float> z(3, 10);
  Fill(z, 1);
  std::vector<float> maxima(3), sums(3, 1.0f), logits(3);
  ThreadPool pool(1);
  const auto add = [&](std::vector<std::int32_t> targets, VocabularyShard shard) {
    ShardSums<float>({}, z.view(), targets, shard, maxima, absl::MakeSpan(sums),
                     absl::MakeSpan(logits), pool);
  };
  const auto differentiate = [&](std::vector<std::int32_t> targets, VocabularyShard shard) {
    ShardGradient<float>({}, z.view(), targets, shard, maxima, sums, 1.0, z.span(), pool);
  };
  const VocabularyShard shard = {.begin = 20, .vocabulary = 30};
  add({1, 29, kIgnoredTarget}, shard);
  EXPECT_DEATH(add({1, 2, 30}, shard), "target 30 at index 2, vocabulary 30");
  EXPECT_DEATH(add({1, -2, 3}, shard), "target -2 at index 1");
  EXPECT_DEATH(add({1, 2}, shard), "2 vs 3");
  EXPECT_DEATH(add({1, 2, 3}, {.begin = 21, .vocabulary = 30}), "ids \\[21, 31\\)");
  EXPECT_DEATH(differentiate({1, 2, 30}, shard), "target 30 at index 2, vocabulary 30");
  EXPECT_DEATH(differentiate({1, 2, 3}, {.begin = -1, .vocabulary = 30}), "ids \\[-1, 9\\)");
  EXPECT_DEATH(ShardMaxima<float>({.cap = -1.0}, z.view(), absl::MakeSpan(maxima), pool), "cap -1");
  EXPECT_DEATH(ShardMaxima<float>({}, z.view(), absl::MakeSpan(maxima).subspan(1), pool), "2 vs 3");
  EXPECT_DEATH(LargestOfShards<float>(z.view(), absl::MakeSpan(maxima)), "3 vs 10");
  EXPECT_DEATH(ShardedLosses<float>({1, 2, 3}, absl::MakeSpan(sums).subspan(1), logits,
                                    absl::MakeSpan(maxima)),
               "2 vs 3");
}

}  // namespace
}  // namespace headwise
