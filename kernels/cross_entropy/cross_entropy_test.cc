#include "kernels/cross_entropy/cross_entropy.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/dtype/dtype.h"
#include "core/io/checksum.h"
#include "gtest/gtest.h"
#include "kernels/common/math.h"
#include "kernels/common/testing/kernel_testing.h"
#include "kernels/cross_entropy/test_problem.h"

namespace headwise {
namespace {

// The contract, one element at a time.
template <typename T>
Compute<T> ReferenceRow(const LogitTransform& op, const Compute<T>* z, std::int64_t width,
                        std::int64_t target, T* dz) {
  using C = Compute<T>;
  const bool capped = op.cap > 0;
  const C k = C(capped ? op.multiplier / op.cap : op.multiplier);
  std::vector<C> h(width), l(width), e(width);
  C m = -std::numeric_limits<C>::infinity();
  for (std::int64_t i = 0; i < width; ++i) {
    h[i] = Tanh(z[i] * k);
    l[i] = capped ? C(op.cap) * h[i] : z[i] * k;
    if (l[i] > m) m = l[i];
  }
  C p[64] = {};
  for (std::int64_t i = 0; i < width; ++i) {
    e[i] = Exp(l[i] - m);
    p[i % 64] = p[i % 64] + e[i];
  }
  for (int n = 32; n >= 1; n /= 2) {
    for (int c = 0; c < n; ++c) p[c] = p[c] + p[c + n];
  }
  const C inverse = C(1) / p[0];
  const C g = C(kLossScale * op.multiplier);
  for (std::int64_t i = 0; i < width; ++i) {
    C probability = e[i] * inverse;
    if (i == target) probability = probability - C(1);
    C gradient = probability * g;
    if (capped) gradient = gradient * std::fma(-h[i], h[i], C(1));
    dz[i] = Narrow<T>(gradient);
  }
  return Log(p[0]) - (l[target] - m);
}

template <typename T>
void ExpectReferenceBits(const LogitTransform& op, std::int64_t rows, std::int64_t width,
                         Layout layout, int threads, bool specials) {
  using C = Compute<T>;
  const std::string what = Name(op) + ", " + std::to_string(rows) + " x " + std::to_string(width) +
                           ", " + std::to_string(threads) + " threads";
  TestMatrix<C> z(rows, width, layout);
  if (specials) {
    FillWithSpecials(z, width, 30.0);
  } else {
    Fill(z, width, 30.0);
  }
  const std::vector<std::int32_t> targets = Targets(rows, width);
  ThreadPool pool(threads);
  TestMatrix<C> losses(1, rows), expected_losses(1, rows), losses_alone(1, rows);
  TestMatrix<T> dz(rows, width, layout), expected_dz(rows, width);
  const auto span = [](TestMatrix<C>& m) {
    return absl::Span<C>(m.span().data, static_cast<std::size_t>(m.width()));
  };
  CrossEntropy<T>(op, z.view(), targets, kLossScale, span(losses), dz.span(), pool);
  CrossEntropy<T>(op, z.view(), targets, kLossScale, span(losses_alone), RowSpan<T>(), pool);
  for (std::int64_t t = 0; t < rows; ++t) {
    if (targets[t] == kIgnoredTarget) {
      expected_losses.at(0, t) = C(0);
      for (std::int64_t i = 0; i < width; ++i) expected_dz.at(t, i) = Narrow<T>(0);
    } else {
      expected_losses.at(0, t) =
          ReferenceRow<T>(op, z.view().row(t), width, targets[t], expected_dz.span().row(t));
    }
  }
  ExpectSameBits(losses.view(), expected_losses.view(), "losses, " + what);
  ExpectSameBits(losses_alone.view(), expected_losses.view(), "losses alone, " + what);
  ExpectSameBits(dz.view(), expected_dz.view(), "dz, " + what);
  dz.ExpectGapsUntouched();
  losses.ExpectGapsUntouched();
}

template <typename T>
class CrossEntropyTest : public ::testing::Test {};
using StorageTypes = ::testing::Types<float, BFloat16, double>;
TYPED_TEST_SUITE(CrossEntropyTest, StorageTypes);

TYPED_TEST(CrossEntropyTest, EqualsTheReferenceForOddVocabulariesAndThreads) {
  for (const LogitTransform& op : kTransforms) {
    for (const std::int64_t width : kOddSizes) {
      for (const int threads : {1, 2, 3}) {
        for (const bool specials : {false, true}) {
          ExpectReferenceBits<TypeParam>(op, 9, width, Layout::kStrided, threads, specials);
        }
      }
    }
    ExpectReferenceBits<TypeParam>(op, 65, 1031, Layout::kContiguous, 3, false);
    ExpectReferenceBits<TypeParam>(op, 0, 10, Layout::kContiguous, 2, false);
  }
}

TEST(CrossEntropy, GradientMayTakeTheLogitsPlace) {
  for (const LogitTransform& op : kTransforms) {
    TestMatrix<float> z(20, 77, Layout::kStrided), dz(20, 77);
    Fill(z, 5, 10.0);
    const std::vector<std::int32_t> targets = Targets(20, 77);
    std::vector<float> losses(20);
    ThreadPool pool(2);
    CrossEntropy<float>(op, z.view(), targets, 1.0, absl::MakeSpan(losses), dz.span(), pool);
    CrossEntropy<float>(op, z.view(), targets, 1.0, absl::MakeSpan(losses), z.span(), pool);
    ExpectSameBits(z.view(), dz.view(), Name(op));
  }
}

TEST(CrossEntropy, GradientIsTheDerivative) {
  for (const LogitTransform& op : kTransforms) {
    TestMatrix<double> z(4, 13), dz(4, 13);
    Fill(z, 2, 3.0);
    const std::vector<std::int32_t> targets = {0, 12, 5, kIgnoredTarget};
    std::vector<double> losses(4), scratch(4);
    ThreadPool pool(1);
    CrossEntropy<double>(op, z.view(), targets, 0.3, absl::MakeSpan(losses), dz.span(), pool);
    const auto loss = [&] {
      CrossEntropy<double>(op, z.view(), targets, 0.3, absl::MakeSpan(scratch), RowSpan<double>(),
                           pool);
      return 0.3 * (scratch[0] + scratch[1] + scratch[2] + scratch[3]);
    };
    ExpectGradient(z, dz.view(), loss, Name(op));
  }
}

TEST(CrossEntropy, LossesAreAccurateAndNeverOverflow) {
  for (const double scale : {1e-3, 1.0, 50.0, 1e4, 1e30}) {
    TestMatrix<float> z(8, 300);
    Fill(z, 6, scale);
    z.at(0, 7) = static_cast<float>(2 * scale);  // row 0: the target stands out
    std::vector<std::int32_t> targets(8, 7);
    std::vector<float> losses(8);
    ThreadPool pool(1);
    CrossEntropy<float>({}, z.view(), targets, 1.0, absl::MakeSpan(losses), RowSpan<float>(), pool);
    for (int t = 0; t < 8; ++t) {
      double max = -1e300, sum = 0;
      for (int i = 0; i < 300; ++i) max = std::max(max, double(z.at(t, i)));
      for (int i = 0; i < 300; ++i) sum += std::exp(double(z.at(t, i)) - max);
      const double exact = std::log(sum) + max - z.at(t, 7);
      EXPECT_NEAR(losses[t], exact, 3e-7 * std::max(1.0, exact)) << "scale " << scale;
    }
  }
}

TEST(CrossEntropy, GradientsOfARowSumToZero) {
  TestMatrix<float> z(5, 1000), dz(5, 1000);
  Fill(z, 6, 8.0);
  std::vector<float> losses(5);
  ThreadPool pool(1);
  CrossEntropy<float>({}, z.view(), {1, 2, 3, 4, 5}, 1.0, absl::MakeSpan(losses), dz.span(), pool);
  for (int t = 0; t < 5; ++t) {
    double sum = 0;
    for (int i = 0; i < 1000; ++i) sum += dz.at(t, i);
    EXPECT_NEAR(sum, 0, 3e-7);
    EXPECT_LT(dz.at(t, t + 1), 0);
  }
}

TEST(TransformLogits, IsWhatTheLossSees) {
  for (const LogitTransform& op : kTransforms) {
    for (const std::int64_t width : kOddSizes) {
      TestMatrix<float> z(3, width, Layout::kStrided), logits(3, width, Layout::kStrided);
      FillWithSpecials(z, width, 40.0);
      ThreadPool pool(2);
      TransformLogits(op, z.view(), logits.span(), pool);
      for (std::int64_t t = 0; t < 3; ++t) {
        for (std::int64_t i = 0; i < width; ++i) {
          const float k = static_cast<float>(op.cap > 0 ? op.multiplier / op.cap : op.multiplier);
          const float scaled = z.at(t, i) * k;
          const float expected = op.cap > 0 ? static_cast<float>(op.cap) * Tanh(scaled) : scaled;
          ASSERT_TRUE(SameBits(logits.at(t, i), expected)) << Name(op);
        }
      }
      logits.ExpectGapsUntouched();
      const TestMatrix<float> apart = logits;
      TransformLogits(op, z.view(), z.span(), pool);
      ExpectSameBits(z.view(), apart.view(), "in place");
    }
  }
}

TEST(SumLosses, AddsInDoubleByAdjacentPairs) {
  const float losses[] = {0x1p60f, 1.0f, -0x1p60f, 1.0f, 3.0f};
  EXPECT_EQ(SumLosses(losses), ((0x1p60 + 1.0) + (-0x1p60 + 1.0)) + 3.0);
  EXPECT_EQ(SumLosses({}), 0.0);
  const std::vector<float> many(100000, 0.1f);
  EXPECT_NEAR(SumLosses(many), 100000 * double(0.1f), 1e-8);
}

template <typename T>
std::uint64_t Golden() {
  Fnv1a64 sum;
  ThreadPool pool(2);
  for (const LogitTransform& op : kTransforms) {
    TestMatrix<float> z(40, 515), losses(1, 40);
    TestMatrix<T> dz(40, 515);
    Fill(z, 1, 12.0);
    CrossEntropy<T>(op, z.view(), Targets(40, 515), kLossScale,
                    absl::MakeSpan(losses.span().data, 40), dz.span(), pool);
    AddToChecksum(sum, losses.view());
    AddToChecksum(sum, dz.view());
  }
  return sum.value();
}
TEST(CrossEntropy, BitsAreGolden) {
  EXPECT_EQ(Golden<float>(), 0xab89acd27ce0934cu);
  EXPECT_EQ(Golden<BFloat16>(), 0x52621b982776b92au);
}

TEST(CrossEntropyDeathTest, ATargetOutOfRangeIsNamed) {
  TestMatrix<float> z(3, 10);
  Fill(z, 1);
  std::vector<float> losses(3);
  ThreadPool pool(1);
  const auto run = [&](std::vector<std::int32_t> targets, LogitTransform op) {
    CrossEntropy<float>(op, z.view(), targets, 1.0, absl::MakeSpan(losses), RowSpan<float>(), pool);
  };
  EXPECT_DEATH(run({1, 2, 10}, {}), "target 10 at index 2, vocabulary 10");
  EXPECT_DEATH(run({1, -2, 1}, {}), "target -2 at index 1");
  EXPECT_DEATH(run({1, 2}, {}), "2 vs 3");
  EXPECT_DEATH(run({1, 2, 3}, {.cap = -1.0}), "cap -1");
}

}  // namespace
}  // namespace headwise
