// The CUDA kernels, emulated, have the bits of gemm.h's LinearBackwardBias: on odd sizes, layouts
// and values, in three thread orders, with every buffer a region whose gaps are out of bounds.
#include "kernels/common/testing/emulated.h"

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/dtype/dtype.h"
#include "gtest/gtest.h"
#include "kernels/common/testing/kernel_testing.h"
#include "kernels/common/thread_pool.h"
#include "kernels/emulation/emulation.h"
#include "kernels/gemm/cuda.h"
#include "kernels/gemm/gemm.h"

namespace headwise {
namespace {

constexpr Layout kLayouts[] = {Layout::kContiguous, Layout::kStrided, Layout::kAligned};
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

absl::Span<float> Span(TestMatrix<float>& row) {
  return {row.span().data, static_cast<std::size_t>(row.width())};
}

template <typename T>
void ExpectCpuBits(const TestMatrix<T>& dy, const emulation::Options& order) {
  SCOPED_TRACE(testing::Message() << dy.rows() << " x " << dy.width());
  TestMatrix<float> expected(1, dy.width(), Layout::kStrided), actual = expected;
  ThreadPool pool(1);
  LinearBackwardBias<T>(dy.view(), Span(expected), pool);
  std::vector<float> scratch(LinearBackwardBiasScratch(dy.rows(), dy.width()), kNan);
  emulation::Session session(order);
  AddMatrix(session, "dy", dy.view());
  AddMatrix(session, "dbias", actual.span());
  AddArray(session, "scratch", absl::MakeSpan(scratch));
  ASSERT_EQ(cuda_emulated::LinearBackwardBias<T>(dy.view(), Span(actual), scratch.data(), nullptr),
            absl::OkStatus());
  ExpectSameBits<float>(actual.view(), expected.view(), "dbias");
  actual.ExpectGapsUntouched();
}

template <typename T>
class EmulatedLinearBackwardBias : public testing::Test {};
using StorageTypes = testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(EmulatedLinearBackwardBias, StorageTypes);

TYPED_TEST(EmulatedLinearBackwardBias, HasTheCpusBits) {
  for (const emulation::Options& order : kThreadOrders) {
    for (const Layout layout : kLayouts) {
      for (const std::int64_t rows : {0, 1, 63, 64, 65, 129, 320, 513}) {
        for (const std::int64_t width : {0, 1, 2, 33, 257}) {
          TestMatrix<TypeParam> dy(rows, width, layout);
          Fill(dy, rows + width);
          ExpectCpuBits(dy, order);
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

TYPED_TEST(EmulatedLinearBackwardBias, HasTheCpusBitsOnSpecialValues) {
  TestMatrix<TypeParam> dy(130, 300, Layout::kStrided);
  FillWithSpecials(dy, 1);
  ExpectCpuBits(dy, kThreadOrders[0]);
}

TYPED_TEST(EmulatedLinearBackwardBias, ForSanitizersHasTheCpusBits) {
  TestMatrix<TypeParam> dy(131, 67, Layout::kStrided);
  Fill(dy, 5);
  ExpectCpuBits(dy, kThreadOrders[2]);
}

TEST(EmulatedLinearBackwardBiasTraffic, ReadsEachElementOnce) {
  constexpr std::int64_t kRows = 128, kWidth = 512;
  SectorRows<BFloat16> dy(kRows, kWidth);
  std::vector<float> dbias(kWidth), scratch(LinearBackwardBiasScratch(kRows, kWidth));
  emulation::Session session({.count_traffic = true});
  AddMatrix(session, "dy", dy.span());
  AddArray(session, "dbias", absl::MakeSpan(dbias));
  AddArray(session, "scratch", absl::MakeSpan(scratch));
  ASSERT_EQ(cuda_emulated::LinearBackwardBias<BFloat16>(dy.span(), absl::MakeSpan(dbias),
                                                        scratch.data(), nullptr),
            absl::OkStatus());
  EXPECT_EQ(session.launches().size(), 2);
  EXPECT_EQ(session.traffic("dy").loads, kRows * kWidth * 2);
  EXPECT_EQ(session.traffic("dy").narrowest, 4);
  EXPECT_EQ(session.traffic("dy").partly_used_sectors, 0);
  EXPECT_EQ(session.traffic("scratch").stores, kRows / 64 * kWidth * 4);
  EXPECT_EQ(session.traffic("scratch").loads, kRows / 64 * kWidth * 4);
}

TEST(EmulatedLinearBackwardBiasDeathTest, LengthsMustAgree) {
  TestMatrix<float> dy(3, 8), dbias(1, 7);
  float scratch[8];
  EXPECT_DEATH(static_cast<void>(cuda_emulated::LinearBackwardBias<float>(dy.view(), Span(dbias),
                                                                          scratch, nullptr)),
               "7 vs 8");
}

}  // namespace
}  // namespace headwise
