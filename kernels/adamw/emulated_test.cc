// The CUDA kernel, emulated, has the bits of adamw.h's CPU kernel: on odd sizes, alignments and
// values, over steps and clip scales, in three thread orders, with every buffer a region.
#include "kernels/common/testing/emulated.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "kernels/adamw/adamw.h"
#include "kernels/adamw/cuda.h"
#include "kernels/common/testing/kernel_testing.h"
#include "kernels/emulation/emulation.h"

namespace headwise {
namespace {

constexpr AdamWHyperparameters kHyper{
    .learning_rate = 3e-3, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};

struct State {
  State(std::int64_t n, Layout layout)
      : weight(1, n, layout), m(weight), v(weight), gradient(weight) {
    FillWithSpecials(weight, 1);
    Fill(m, 2, 0);
    Fill(v, 3, 0);
    FillWithSpecials(gradient, 4, 0.01);
  }
  template <typename T>
  static absl::Span<T> Span(RowSpan<T> row) {
    return {row.data, static_cast<std::size_t>(row.width)};
  }
  void OnCpu(std::int64_t step, double scale) {
    ThreadPool pool(1);
    AdamWStep<float>(kHyper, step, scale, Span(weight.span()), Span(m.span()), Span(v.span()),
                     Span(gradient.view()), pool);
  }
  absl::Status Emulated(std::int64_t step, double scale, const emulation::Options& order,
                        std::uint32_t skip = 0) {
    auto factors = MakeAdamWFactors<float>(kHyper, step, scale);
    factors.skip = skip;
    emulation::Session session(order);
    session.AddRegion("factors", &factors, sizeof(factors), emulation::Access::kRead);
    AddMatrix(session, "weight", weight.span());
    AddMatrix(session, "m", m.span());
    AddMatrix(session, "v", v.span());
    AddMatrix(session, "gradient", gradient.view());
    return cuda_emulated::AdamWStep(&factors, Span(weight.span()), Span(m.span()), Span(v.span()),
                                    Span(gradient.view()), nullptr);
  }

  TestMatrix<float> weight, m, v, gradient;
};

void ExpectCpuBits(std::int64_t n, Layout layout, const emulation::Options& order) {
  State actual(n, layout), expected(n, layout);
  for (const std::int64_t step : {1, 2, 3, 1000003}) {
    const double scale = step % 2 == 0 ? 0.37 : 1.0;
    SCOPED_TRACE(std::to_string(n) + " elements, step " + std::to_string(step));
    expected.OnCpu(step, scale);
    ASSERT_EQ(actual.Emulated(step, scale, order), absl::OkStatus());
    ExpectSameBits<float>(actual.weight.view(), expected.weight.view(), "weight");
    ExpectSameBits<float>(actual.m.view(), expected.m.view(), "m");
    ExpectSameBits<float>(actual.v.view(), expected.v.view(), "v");
    actual.weight.ExpectGapsUntouched();
    actual.m.ExpectGapsUntouched();
    actual.v.ExpectGapsUntouched();
    if (testing::Test::HasFailure()) return;
  }
}

TEST(EmulatedAdamW, HasTheCpusBits) {
  for (const emulation::Options& order : kThreadOrders) {
    for (const Layout layout : {Layout::kContiguous, Layout::kStrided}) {
      for (const std::int64_t n : kOddSizes) ExpectCpuBits(n, layout, order);
      ExpectCpuBits(4001, layout, order);
    }
  }
}

TEST(EmulatedAdamW, ForSanitizersHasTheCpusBits) {
  for (const Layout layout : {Layout::kContiguous, Layout::kStrided}) {
    ExpectCpuBits(301, layout, kThreadOrders[2]);
  }
}

TEST(EmulatedAdamW, AStepThatIsSkippedWritesNothing) {
  for (const std::int64_t n : {1, 63, 1024}) {
    State actual(n, Layout::kContiguous);
    const State before = actual;
    ASSERT_EQ(actual.Emulated(1, 0.5, kThreadOrders[0], /*skip=*/1), absl::OkStatus());
    ExpectSameBits<float>(actual.weight.view(), before.weight.view(), "weight");
    ExpectSameBits<float>(actual.m.view(), before.m.view(), "m");
    ExpectSameBits<float>(actual.v.view(), before.v.view(), "v");
  }
}

// 28 bytes an element, in 16-byte vectors and whole sectors, in one launch.
TEST(EmulatedAdamWTraffic, IsTwentyEightBytesAnElement) {
  constexpr std::int64_t kCount = 4096;
  SectorRows<float> weight(1, kCount), m(1, kCount), v(1, kCount), gradient(1, kCount);
  const auto factors = MakeAdamWFactors<float>(kHyper, 1, 1.0);
  emulation::Session session({.count_traffic = true});
  session.AddRegion("factors", &factors, sizeof(factors), emulation::Access::kRead);
  AddMatrix(session, "weight", weight.span());
  AddMatrix(session, "m", m.span());
  AddMatrix(session, "v", v.span());
  AddMatrix(session, "gradient", gradient.span());
  ASSERT_EQ(cuda_emulated::AdamWStep(&factors, State::Span(weight.span()), State::Span(m.span()),
                                     State::Span(v.span()), State::Span(gradient.span()), nullptr),
            absl::OkStatus());
  EXPECT_EQ(session.launches().size(), 1);
  std::int64_t bytes = 0;
  for (const char* name : {"weight", "m", "v", "gradient"}) {
    const emulation::Traffic& traffic = session.traffic(name);
    bytes += traffic.loads + traffic.stores;
    EXPECT_EQ(traffic.narrowest, 16) << name;
    EXPECT_EQ(traffic.partly_used_sectors, 0) << name;
  }
  EXPECT_EQ(bytes, 28 * kCount);
}

TEST(EmulatedAdamWDeathTest, LengthsMustAgree) {
  State s(8, Layout::kContiguous), other(7, Layout::kContiguous);
  const auto factors = MakeAdamWFactors<float>(kHyper, 1, 1.0);
  EXPECT_DEATH(static_cast<void>(cuda_emulated::AdamWStep(
                   &factors, State::Span(s.weight.span()), State::Span(s.m.span()),
                   State::Span(s.v.span()), State::Span(other.gradient.view()), nullptr)),
               "7 vs 8");
}

}  // namespace
}  // namespace headwise
