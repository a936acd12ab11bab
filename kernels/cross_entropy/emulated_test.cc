// The CUDA kernels, emulated, have the bits of cross_entropy.h's CPU kernels: on odd sizes, layouts
// and values, in three thread orders, with every buffer a region whose gaps are out of bounds; and
// targets outside the vocabulary are found.
#include "kernels/common/testing/emulated.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/dtype/dtype.h"
#include "core/tensor/row_span.h"
#include "gtest/gtest.h"
#include "kernels/common/testing/kernel_testing.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/cross_entropy/cuda.h"
#include "kernels/cross_entropy/test_problem.h"
#include "kernels/emulation/emulation.h"

namespace headwise {
namespace {

constexpr std::uint64_t kNone = ~std::uint64_t{0};
constexpr Layout kLayouts[] = {Layout::kContiguous, Layout::kStrided, Layout::kAligned};

template <typename T>
struct Problem {
  Problem(std::int64_t rows, std::int64_t width, Layout layout, bool specials)
      : z(rows, width, layout),
        logits(z),
        losses(1, rows, Layout::kStrided),
        dz(rows, width, layout),
        targets(Targets(rows, width)) {
    specials ? FillWithSpecials(z, rows + width, 6.0) : Fill(z, rows + width, 6.0);
  }
  absl::Span<float> Losses() {
    return {losses.span().data, static_cast<std::size_t>(losses.width())};
  }
  void AddRegions(emulation::Session& session) {
    AddMatrix(session, "z", z.view());
    AddMatrix(session, "logits", logits.span());
    AddArray(session, "targets", absl::MakeConstSpan(targets));
    AddMatrix(session, "losses", losses.span());
    AddMatrix(session, "dz", dz.span());
    AddArray(session, "loss_scale", absl::MakeConstSpan(&kLossScale, 1));
    session.AddRegion("first_bad_target", &first_bad_target, sizeof(first_bad_target),
                      emulation::Access::kReadWrite);
  }
  absl::Status Run(const LogitTransform& op, bool with_gradient = true) {
    return cuda_emulated::CrossEntropy<T>(
        op, z.view(), targets, with_gradient ? &kLossScale : nullptr, Losses(),
        with_gradient ? dz.span() : RowSpan<T>(), &first_bad_target, nullptr);
  }

  TestMatrix<float> z, logits, losses;
  TestMatrix<T> dz;
  std::vector<std::int32_t> targets;
  std::uint64_t first_bad_target = kNone;
};

template <typename T>
void ExpectCpuBits(const LogitTransform& op, const Problem<T>& problem,
                   absl::Span<const emulation::Options> orders = kThreadOrders) {
  Problem<T> expected = problem;
  ThreadPool pool(1);
  CrossEntropy<T>(op, expected.z.view(), expected.targets, kLossScale, expected.Losses(),
                  expected.dz.span(), pool);
  TransformLogits(op, expected.z.view(), expected.logits.span(), pool);
  for (const emulation::Options& order : orders) {
    SCOPED_TRACE(testing::Message()
                 << Name(op) << ", " << problem.z.rows() << " x " << problem.z.width() << ", order "
                 << static_cast<int>(order.order));
    Problem<T> actual = problem, loss_alone = problem;
    emulation::Session session(order);
    actual.AddRegions(session);
    ASSERT_EQ(actual.Run(op), absl::OkStatus());
    ASSERT_EQ(cuda_emulated::TransformLogits(op, actual.z.view(), actual.logits.span(), nullptr),
              absl::OkStatus());
    ExpectSameBits<float>(actual.losses.view(), expected.losses.view(), "losses");
    ExpectSameBits<T>(actual.dz.view(), expected.dz.view(), "dz");
    ExpectSameBits<float>(actual.logits.view(), expected.logits.view(), "logits");
    actual.losses.ExpectGapsUntouched();
    actual.dz.ExpectGapsUntouched();
    actual.logits.ExpectGapsUntouched();
    EXPECT_EQ(actual.first_bad_target, kNone);
    emulation::Session without(order);
    loss_alone.AddRegions(without);
    ASSERT_EQ(loss_alone.Run(op, /*with_gradient=*/false), absl::OkStatus());
    ExpectSameBits<float>(loss_alone.losses.view(), expected.losses.view(), "the loss alone");
    if (testing::Test::HasFailure()) return;
  }
}

template <typename T>
class EmulatedCrossEntropy : public testing::Test {};
using StorageTypes = testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(EmulatedCrossEntropy, StorageTypes);

TYPED_TEST(EmulatedCrossEntropy, HasTheCpusBits) {
  for (const LogitTransform& op : kTransforms) {
    for (const std::int64_t rows : {0, 1, 2, 63, 64, 65}) {
      ExpectCpuBits(op, Problem<TypeParam>(rows, 37, Layout::kStrided, /*specials=*/false));
    }
    for (const std::int64_t width : {0, 1, 2, 63, 64, 65, 130, 257, 1001}) {
      for (const Layout layout : kLayouts) {
        ExpectCpuBits(op, Problem<TypeParam>(5, width, layout, /*specials=*/false));
      }
    }
  }
  ExpectCpuBits(kTransforms[3], Problem<TypeParam>(257, 9, Layout::kAligned, false));
}

TYPED_TEST(EmulatedCrossEntropy, HasTheCpusBitsOnSpecialValues) {
  for (const LogitTransform& op : kTransforms) {
    for (const std::int64_t width : {3, 17, 64, 130}) {
      ExpectCpuBits(op, Problem<TypeParam>(66, width, Layout::kAligned, /*specials=*/true));
    }
  }
}

TYPED_TEST(EmulatedCrossEntropy, ForSanitizersHasTheCpusBits) {
  for (const LogitTransform& op : {kTransforms[0], kTransforms[2]}) {
    ExpectCpuBits(op, Problem<TypeParam>(9, 70, Layout::kStrided, /*specials=*/true),
                  absl::MakeConstSpan(kThreadOrders).subspan(2));
  }
}

TEST(EmulatedCrossEntropy, TheGradientMayTakeTheLogitsPlace) {
  for (const LogitTransform& op : kTransforms) {
    Problem<float> expected(6, 75, Layout::kStrided, /*specials=*/false), p = expected;
    ThreadPool pool(1);
    CrossEntropy<float>(op, expected.z.view(), expected.targets, kLossScale, expected.Losses(),
                        expected.dz.span(), pool);
    ASSERT_EQ(cuda_emulated::CrossEntropy<float>(op, p.z.view(), p.targets, &kLossScale, p.Losses(),
                                                 p.z.span(), &p.first_bad_target, nullptr),
              absl::OkStatus());
    ExpectSameBits<float>(p.z.view(), expected.dz.view(), "dz in place of z");
    ExpectSameBits<float>(p.losses.view(), expected.losses.view(), "losses");
  }
}

TYPED_TEST(EmulatedCrossEntropy, TargetsOutsideTheVocabularyAreLeftOutAndReported) {
  for (const std::int32_t bad : {-2, 20, 2000000000}) {
    Problem<TypeParam> p(40, 20, Layout::kAligned, /*specials=*/false), right = p;
    p.targets[33] = p.targets[9] = bad;
    const Problem<TypeParam> before = p;
    emulation::Session session(kThreadOrders[2]);
    p.AddRegions(session);
    ASSERT_EQ(p.Run(kTransforms[2]), absl::OkStatus());
    EXPECT_EQ(p.first_bad_target, 9);
    emulation::Session of_right;
    right.AddRegions(of_right);
    ASSERT_EQ(right.Run(kTransforms[2]), absl::OkStatus());
    for (const std::int64_t t : {9, 33}) {
      ExpectSameBits<TypeParam>(p.dz.view().Rows(t, 1), before.dz.view().Rows(t, 1), "untouched");
      EXPECT_TRUE(SameBits(p.losses.at(0, t), before.losses.at(0, t)));
    }
    ExpectSameBits<TypeParam>(p.dz.view().Rows(10, 23), right.dz.view().Rows(10, 23), "others");
  }
}

// Magnitudes so far apart that the order of additions shows.
void ExpectTheCpusSum(std::int64_t count, const emulation::Options& order) {
  TestMatrix<float> losses(1, count, Layout::kStrided);
  Fill(losses, count, 6.0);
  for (std::int64_t i = 0; i < count; ++i) {
    losses.at(0, i) = std::ldexp(losses.at(0, i), static_cast<int>(i * 7 % 50));
  }
  const absl::Span<const float> values(losses.view().data, static_cast<std::size_t>(count));
  double sum = std::numeric_limits<double>::quiet_NaN();
  emulation::Session session(order);
  AddArray(session, "losses", values);
  session.AddRegion("sum", &sum, sizeof(sum), emulation::Access::kReadWrite);
  ASSERT_EQ(cuda_emulated::SumLosses(values, &sum, nullptr), absl::OkStatus());
  EXPECT_TRUE(SameBits(sum, SumLosses(values))) << count << " losses: " << sum;
}

TEST(EmulatedSumLosses, HasTheCpusBits) {
  for (const emulation::Options& order : kThreadOrders) {
    for (const std::int64_t count : kOddSizes) ExpectTheCpusSum(count, order);
    for (const std::int64_t count : {127, 128, 129, 513, 2047, 2048, 2049, 4097, 16384, 40001}) {
      ExpectTheCpusSum(count, order);
    }
  }
}

TEST(EmulatedSumLosses, ForSanitizersHasTheCpusBits) { ExpectTheCpusSum(3001, kThreadOrders[2]); }

TEST(EmulatedSumLosses, KeepsTheSignOfZeroAndNan) {
  for (const float value : {-0.0f, 0.0f, std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::infinity()}) {
    for (const std::int64_t count : {1, 2, 3, 4, 300}) {
      const std::vector<float> losses(count, value);
      double sum = 1;
      ASSERT_EQ(cuda_emulated::SumLosses(losses, &sum, nullptr), absl::OkStatus());
      EXPECT_TRUE(SameBits(sum, SumLosses(losses))) << count << " of " << value << ": " << sum;
    }
  }
}

TEST(EmulatedCrossEntropyTraffic, IsWhatTheHeaderSays) {
  constexpr std::int64_t kRows = 16, kWidth = 512;
  SectorRows<float> z(kRows, kWidth);
  SectorRows<BFloat16> dz(kRows, kWidth);
  const std::vector<std::int32_t> targets(kRows, 5);
  std::vector<float> losses(kRows);
  std::uint64_t bad = kNone;
  for (const bool with_gradient : {true, false}) {
    emulation::Session session({.count_traffic = true});
    AddMatrix(session, "z", z.span());
    AddMatrix(session, "dz", dz.span());
    AddArray(session, "targets", absl::MakeConstSpan(targets));
    AddArray(session, "losses", absl::MakeSpan(losses));
    AddArray(session, "loss_scale", absl::MakeConstSpan(&kLossScale, 1));
    ASSERT_EQ(cuda_emulated::CrossEntropy<BFloat16>(
                  {}, z.span(), targets, &kLossScale, absl::MakeSpan(losses),
                  with_gradient ? dz.span() : RowSpan<BFloat16>(), &bad, nullptr),
              absl::OkStatus());
    EXPECT_EQ(session.launches().size(), 1);
    const std::int64_t of_targets = kRows * 32 * 4;  // by every lane
    EXPECT_EQ(session.traffic("z").loads - of_targets,
              (with_gradient ? 3 : 2) * kRows * kWidth * 4);
    EXPECT_EQ(session.traffic("z").partly_used_sectors, kRows);
    EXPECT_EQ(session.traffic("dz").stores, with_gradient ? kRows * kWidth * 2 : 0);
    EXPECT_EQ(session.traffic("dz").partly_used_sectors, 0);
  }
}

TEST(EmulatedCrossEntropyDeathTest, ProgrammersErrors) {
  Problem<float> p(3, 8, Layout::kContiguous, /*specials=*/false);
  EXPECT_DEATH(static_cast<void>(p.Run({.cap = -1})), "cap -1");
  TestMatrix<float> wide(3, 9);
  EXPECT_DEATH(static_cast<void>(cuda_emulated::CrossEntropy<float>(
                   {}, p.z.view(), p.targets, &kLossScale, p.Losses(), wide.span(),
                   &p.first_bad_target, nullptr)),
               "9 vs 8");
  EXPECT_DEATH(static_cast<void>(cuda_emulated::CrossEntropy<float>(
                   {}, p.z.view(), p.targets, nullptr, p.Losses(), p.dz.span(), &p.first_bad_target,
                   nullptr)),
               "loss_scale");
}

}  // namespace
}  // namespace headwise
