// The CUDA kernels, emulated, have the bits of rms_norm.h's CPU kernels: on odd sizes, layouts and
// values, in three thread orders, with every buffer a region whose gaps are out of bounds.
#include "kernels/common/testing/emulated.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/dtype/dtype.h"
#include "gtest/gtest.h"
#include "kernels/common/testing/kernel_testing.h"
#include "kernels/emulation/emulation.h"
#include "kernels/rms_norm/cuda.h"
#include "kernels/rms_norm/rms_norm.h"

namespace headwise {
namespace {

constexpr RmsNorm kStyles[] = {
    {.style = RmsNormStyle::kWeighted, .epsilon = 1e-6f},
    {.style = RmsNormStyle::kGainCentered, .epsilon = 1e-5f, .centre = 1.25f},
    {.style = RmsNormStyle::kScaleless, .epsilon = 1e-8f},
    {.style = RmsNormStyle::kInputScaled, .epsilon = 1e-5f, .centre = 1.25f},
};
constexpr Layout kLayouts[] = {Layout::kContiguous, Layout::kStrided, Layout::kAligned};

template <typename T>
struct Problem {
  Problem(const RmsNorm& op, std::int64_t rows, std::int64_t width, Layout layout, bool specials)
      : op(op),
        layout(layout),
        x(rows, width, layout),
        dy(rows, width, layout),
        weight(1, op.style == RmsNormStyle::kScaleless ? 0 : width, Layout::kStrided) {
    const std::uint64_t seed = 1000 * rows + width;
    if (specials) {
      FillWithSpecials(x, seed, 2.0);
      FillWithSpecials(dy, seed + 1, 0.1);
    } else {
      Fill(x, seed, 2.0);
      Fill(dy, seed + 1, 0.1);
    }
    Fill(weight, seed + 2);
  }
  absl::Span<const float> weights() const { return {weight.view().data, Size(weight.width())}; }
  static std::size_t Size(std::int64_t n) { return static_cast<std::size_t>(n); }

  std::string Name() const {
    return "style " + std::to_string(static_cast<int>(op.style)) + ", " + std::to_string(x.rows()) +
           " x " + std::to_string(x.width()) + ", layout " +
           std::to_string(static_cast<int>(layout));
  }

  RmsNorm op;
  Layout layout;
  TestMatrix<T> x, dy;
  TestMatrix<float> weight;
};

template <typename T>
struct Results {
  explicit Results(const Problem<T>& p)
      : y(p.x.rows(), p.x.width(), p.layout),
        dx(p.x.rows(), p.x.width(), p.layout),
        dweight(1, p.weight.width(), Layout::kStrided) {}
  absl::Span<float> dweights() {
    return {dweight.span().data, static_cast<std::size_t>(dweight.width())};
  }

  TestMatrix<T> y, dx;
  TestMatrix<float> dweight;
};

template <typename T>
Results<T> OnCpu(const Problem<T>& p) {
  Results<T> r(p);
  ThreadPool pool(1);
  RmsNormForward<T>(p.op, p.x.view(), p.weights(), r.y.span(), pool);
  RmsNormBackward<T>(p.op, p.x.view(), p.weights(), p.dy.view(), r.dx.span(), r.dweights(), pool);
  return r;
}

template <typename T>
void AddRegions(const Problem<T>& p, Results<T>& r, std::vector<float>& scratch,
                emulation::Session& session) {
  AddMatrix(session, "x", p.x.view());
  AddMatrix(session, "dy", p.dy.view());
  AddArray(session, "weight", p.weights());
  AddMatrix(session, "y", r.y.span());
  AddMatrix(session, "dx", r.dx.span());
  AddArray(session, "dweight", r.dweights());
  AddArray(session, "scratch", absl::MakeSpan(scratch));
}

template <typename T>
void ExpectCpuBits(const Problem<T>& p,
                   absl::Span<const emulation::Options> orders = kThreadOrders) {
  const Results<T> expected = OnCpu(p);
  for (const emulation::Options& order : orders) {
    SCOPED_TRACE(p.Name() + ", order " + std::to_string(static_cast<int>(order.order)));
    Results<T> r(p);
    std::vector<float> scratch(RmsNormBackwardScratch(p.op, p.x.rows(), p.x.width()),
                               std::numeric_limits<float>::quiet_NaN());
    emulation::Session session(order);
    AddRegions(p, r, scratch, session);
    ASSERT_EQ(cuda_emulated::RmsNormForward<T>(p.op, p.x.view(), p.weights(), r.y.span(), nullptr),
              absl::OkStatus());
    ASSERT_EQ(cuda_emulated::RmsNormBackward<T>(p.op, p.x.view(), p.weights(), p.dy.view(),
                                                r.dx.span(), r.dweights(), scratch.data(), nullptr),
              absl::OkStatus());
    ExpectSameBits<T>(r.y.view(), expected.y.view(), "y");
    ExpectSameBits<T>(r.dx.view(), expected.dx.view(), "dx");
    ExpectSameBits<float>(r.dweight.view(), expected.dweight.view(), "dweight");
    r.y.ExpectGapsUntouched();
    r.dx.ExpectGapsUntouched();
    r.dweight.ExpectGapsUntouched();
    if (testing::Test::HasFailure()) return;
  }
}

template <typename T>
class EmulatedRmsNorm : public testing::Test {};
using StorageTypes = testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(EmulatedRmsNorm, StorageTypes);

TYPED_TEST(EmulatedRmsNorm, HasTheCpusBitsForAnyNumberOfTokens) {
  for (const RmsNorm& op : kStyles) {
    for (const std::int64_t rows : {0, 1, 2, 63, 64, 65, 257}) {
      ExpectCpuBits(Problem<TypeParam>(op, rows, 33, Layout::kStrided, false));
    }
  }
}

TYPED_TEST(EmulatedRmsNorm, HasTheCpusBitsForAnyWidth) {
  for (const RmsNorm& op : kStyles) {
    for (const std::int64_t width : {0, 1, 2, 15, 63, 64, 65, 127, 257, 520}) {
      for (const Layout layout : kLayouts) {
        ExpectCpuBits(Problem<TypeParam>(op, 3, width, layout, false));
      }
    }
  }
}

TYPED_TEST(EmulatedRmsNorm, HasTheCpusBitsOnSpecialValues) {
  for (const RmsNorm& op : kStyles) {
    for (const std::int64_t width : {1, 3, 64, 130}) {
      ExpectCpuBits(Problem<TypeParam>(op, 66, width, Layout::kAligned, true));
    }
  }
}

// Four tiles of subnormal terms: sums that underflow to zeros of either sign.
TYPED_TEST(EmulatedRmsNorm, HasTheCpusBitsOnSubnormalGradients) {
  for (const RmsNorm& op : kStyles) {
    Problem<TypeParam> p(op, 195, 67, Layout::kContiguous, false);
    Fill(p.dy, 3, std::ldexp(1.0, -130));
    ExpectCpuBits(p);
  }
}

TYPED_TEST(EmulatedRmsNorm, ForSanitizersHasTheCpusBits) {
  for (const RmsNorm& op : kStyles) {
    ExpectCpuBits(Problem<TypeParam>(op, 9, 70, Layout::kStrided, true),
                  absl::MakeConstSpan(kThreadOrders).subspan(2));
  }
}

TYPED_TEST(EmulatedRmsNorm, OutputsMayTakeTheirInputsPlace) {
  using T = TypeParam;
  for (const RmsNorm& op : kStyles) {
    Problem<T> p(op, 66, 37, Layout::kStrided, false);
    Results<T> expected = OnCpu(p);
    std::vector<float> scratch(RmsNormBackwardScratch(op, 66, 37));
    ASSERT_EQ(
        cuda_emulated::RmsNormBackward<T>(op, p.x.view(), p.weights(), p.dy.view(), p.dy.span(),
                                          expected.dweights(), scratch.data(), nullptr),
        absl::OkStatus());
    ASSERT_EQ(cuda_emulated::RmsNormForward<T>(op, p.x.view(), p.weights(), p.x.span(), nullptr),
              absl::OkStatus());
    ExpectSameBits<T>(p.dy.view(), expected.dx.view(), "dx in place of dy");
    ExpectSameBits<T>(p.x.view(), expected.y.view(), "y in place of x");
  }
}

// What the header says: forward x twice and y once; backward x three times, dy twice, dx once, and
// three launches; whole sectors.
TEST(EmulatedRmsNormTraffic, IsWhatTheHeaderSays) {
  constexpr std::int64_t kRows = 128, kWidth = 512, kBytes = kRows * kWidth * 2;
  const RmsNorm op = kStyles[1];
  SectorRows<BFloat16> x(kRows, kWidth), dy(kRows, kWidth), out(kRows, kWidth);
  std::vector<float> weight(kWidth), dweight(kWidth);
  std::vector<float> scratch(RmsNormBackwardScratch(op, kRows, kWidth));
  EXPECT_EQ(scratch.size(), 2 * kRows + 2 * kWidth);
  const auto run = [&](bool backward, std::int64_t launches, std::int64_t loads_of_x) {
    emulation::Session session({.count_traffic = true});
    AddMatrix(session, "x", x.span());
    AddMatrix(session, "dy", dy.span());
    AddMatrix(session, "out", out.span());
    AddArray(session, "weight", absl::MakeSpan(weight));
    AddArray(session, "dweight", absl::MakeSpan(dweight));
    AddArray(session, "scratch", absl::MakeSpan(scratch));
    ASSERT_EQ(backward ? cuda_emulated::RmsNormBackward<BFloat16>(
                             op, x.span(), weight, dy.span(), out.span(), absl::MakeSpan(dweight),
                             scratch.data(), nullptr)
                       : cuda_emulated::RmsNormForward<BFloat16>(op, x.span(), weight, out.span(),
                                                                 nullptr),
              absl::OkStatus());
    EXPECT_EQ(session.launches().size(), launches);
    EXPECT_EQ(session.traffic("x").loads, loads_of_x * kBytes);
    EXPECT_EQ(session.traffic("dy").loads, backward ? 2 * kBytes : 0);
    EXPECT_EQ(session.traffic("out").stores, kBytes);
    for (const char* name : {"x", "dy", "out"}) {
      EXPECT_EQ(session.traffic(name).partly_used_sectors, 0) << name;
    }
  };
  run(/*backward=*/false, 1, 2);
  run(/*backward=*/true, 3, 3);
}

TEST(EmulatedRmsNormLaunches, AreNoneWithoutTokens) {
  const Problem<float> p(kStyles[2], 0, 8, Layout::kContiguous, false);
  Results<float> r(p);
  emulation::Session session;
  ASSERT_TRUE(cuda_emulated::RmsNormForward<float>(p.op, p.x.view(), {}, r.y.span(), nullptr).ok());
  ASSERT_TRUE(cuda_emulated::RmsNormBackward<float>(p.op, p.x.view(), {}, p.dy.view(), r.dx.span(),
                                                    {}, nullptr, nullptr)
                  .ok());
  EXPECT_TRUE(session.launches().empty());
}

// No memory is behind these rows; nothing looks.
TEST(EmulatedRmsNormLaunches, AGridThatIsTooLargeIsRefused) {
  const std::int64_t rows = std::int64_t{1} << 35;
  float nothing;
  const absl::Status status =
      cuda_emulated::RmsNormForward<float>(kStyles[2], RowSpan<const float>(&nothing, rows, 1), {},
                                           RowSpan<float>(&nothing, rows, 1), nullptr);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(status.message()).find("split the call"), std::string::npos) << status;
}

TEST(EmulatedRmsNormDeathTest, ShapesMustAgree) {
  const Problem<float> p(kStyles[0], 3, 8, Layout::kContiguous, false);
  Results<float> r(p);
  TestMatrix<float> wide(3, 9);
  EXPECT_DEATH(static_cast<void>(cuda_emulated::RmsNormForward<float>(p.op, p.x.view(), p.weights(),
                                                                      wide.span(), nullptr)),
               "9 vs 8");
  EXPECT_DEATH(static_cast<void>(
                   cuda_emulated::RmsNormForward<float>(p.op, p.x.view(), {}, r.y.span(), nullptr)),
               "weight against the width of x");
  EXPECT_DEATH(
      static_cast<void>(cuda_emulated::RmsNormBackward<float>(
          p.op, p.x.view(), p.weights(), p.dy.view(), r.dx.span(), r.dweights(), nullptr, nullptr)),
      "scratch");
}

}  // namespace
}  // namespace headwise
