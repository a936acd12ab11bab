#include "kernels/elementwise/elementwise.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "core/dtype/dtype.h"
#include "gtest/gtest.h"
#include "kernels/common/math.h"
#include "kernels/common/testing/kernel_testing.h"

namespace headwise {
namespace {

// [rows, width] of element(r, i): the contract, one element at a time.
template <typename T, typename F>
TestMatrix<T> Matrix(std::int64_t rows, std::int64_t width, F element) {
  TestMatrix<T> m(rows, width);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t i = 0; i < width; ++i) m.at(r, i) = element(r, i);
  }
  return m;
}

template <typename T>
void ExpectReferenceBits(std::int64_t rows, std::int64_t width, Layout layout, int threads) {
  using C = Compute<T>;
  const std::string what = std::to_string(rows) + " x " + std::to_string(width);
  TestMatrix<T> x(rows, width, layout), gate(rows, width, layout), dout(rows, width, layout);
  FillWithSpecials(x, 1);
  FillWithSpecials(gate, 2, 8.0);
  FillWithSpecials(dout, 3, 0.1);
  const auto at = [](const TestMatrix<T>& m, std::int64_t r, std::int64_t i) -> C {
    return Widen(m.at(r, i));
  };
  TestMatrix<T> out(rows, width, layout), dx(rows, width, layout), dgate(rows, width, layout);
  ThreadPool pool(threads);

  Add<T>(x.view(), dout.view(), out.span(), pool);
  const auto sum = Matrix<T>(
      rows, width, [&](auto r, auto i) { return Narrow<T>(at(x, r, i) + at(dout, r, i)); });
  ExpectSameBits(out.view(), sum.view(), "sum " + what);
  out.ExpectGapsUntouched();

  SigmoidGateForward<T>(x.view(), gate.view(), out.span(), pool);
  const auto gated = Matrix<T>(rows, width, [&](auto r, auto i) {
    return Narrow<T>(at(x, r, i) * Sigmoid(at(gate, r, i)));
  });
  ExpectSameBits(out.view(), gated.view(), "gated " + what);
  out.ExpectGapsUntouched();

  SigmoidGateBackward<T>(x.view(), gate.view(), dout.view(), dx.span(), dgate.span(), pool);
  const auto expected_dx = Matrix<T>(rows, width, [&](auto r, auto i) {
    return Narrow<T>(at(dout, r, i) * Sigmoid(at(gate, r, i)));
  });
  const auto expected_dgate = Matrix<T>(rows, width, [&](auto r, auto i) {
    const C g = at(gate, r, i);
    return Narrow<T>(((at(dout, r, i) * at(x, r, i)) * Sigmoid(g)) * Sigmoid(-g));
  });
  ExpectSameBits(dx.view(), expected_dx.view(), "dx " + what);
  ExpectSameBits(dgate.view(), expected_dgate.view(), "dgate " + what);
  dx.ExpectGapsUntouched();
  dgate.ExpectGapsUntouched();
}

template <typename T>
class ElementwiseTest : public ::testing::Test {};
using StorageTypes = ::testing::Types<float, BFloat16, double>;
TYPED_TEST_SUITE(ElementwiseTest, StorageTypes);

TYPED_TEST(ElementwiseTest, EqualsTheReferenceForOddShapesAndThreads) {
  for (const std::int64_t width : kOddSizes) {
    for (const Layout layout : {Layout::kContiguous, Layout::kStrided}) {
      for (const int threads : {1, 2, 3}) {
        ExpectReferenceBits<TypeParam>(7, width, layout, threads);
      }
    }
  }
  ExpectReferenceBits<TypeParam>(300, 129, Layout::kStrided, 3);
}

TYPED_TEST(ElementwiseTest, OutputsMayTakeTheInputsPlace) {
  using T = TypeParam;
  TestMatrix<T> x(9, 77, Layout::kStrided), gate(9, 77), dout(9, 77);
  Fill(x, 1);
  Fill(gate, 2, 4.0);
  Fill(dout, 3);
  ThreadPool pool(2);
  TestMatrix<T> out(9, 77), dx(9, 77), dgate(9, 77);

  TestMatrix<T> in_place = x;
  Add<T>(x.view(), dout.view(), out.span(), pool);
  Add<T>(in_place.view(), dout.view(), in_place.span(), pool);
  ExpectSameBits(in_place.view(), out.view(), "sum in place");

  in_place = x;
  SigmoidGateForward<T>(x.view(), gate.view(), out.span(), pool);
  SigmoidGateForward<T>(in_place.view(), gate.view(), in_place.span(), pool);
  ExpectSameBits(in_place.view(), out.view(), "gate in place");

  SigmoidGateBackward<T>(x.view(), gate.view(), dout.view(), dx.span(), dgate.span(), pool);
  SigmoidGateBackward<T>(x.view(), gate.view(), dout.view(), dout.span(), gate.span(), pool);
  ExpectSameBits(dout.view(), dx.view(), "dx in place of dout");
  ExpectSameBits(gate.view(), dgate.view(), "dgate in place of gate");
}

TEST(SigmoidGate, GradientsAreDerivatives) {
  TestMatrix<double> x(2, 19), gate(2, 19), dout(2, 19), out(2, 19), dx(2, 19), dgate(2, 19);
  Fill(x, 1);
  Fill(gate, 2, 5.0);
  Fill(dout, 3);
  ThreadPool pool(1);
  const auto loss = [&] {
    SigmoidGateForward<double>(x.view(), gate.view(), out.span(), pool);
    double sum = 0;
    for (int r = 0; r < 2; ++r) {
      for (int i = 0; i < 19; ++i) sum += out.at(r, i) * dout.at(r, i);
    }
    return sum;
  };
  SigmoidGateBackward<double>(x.view(), gate.view(), dout.view(), dx.span(), dgate.span(), pool);
  ExpectGradient(x, dx.view(), loss, "dx");
  ExpectGradient(gate, dgate.view(), loss, "dgate");
}

TEST(SigmoidGate, GradientKeepsItsPrecisionWhereTheSigmoidSaturates) {
  TestMatrix<float> x(1, 1), gate(1, 1), dout(1, 1), dx(1, 1), dgate(1, 1);
  x.at(0, 0) = dout.at(0, 0) = 1.0f;
  gate.at(0, 0) = 20.0f;  // 1 - Sigmoid(20) is 0 in fp32
  ThreadPool pool(1);
  SigmoidGateBackward<float>(x.view(), gate.view(), dout.view(), dx.span(), dgate.span(), pool);
  EXPECT_NEAR(dgate.at(0, 0), std::exp(-20.0), 1e-6 * std::exp(-20.0));
}

TEST(Convert, WidensExactlyAndRoundsOnce) {
  for (const std::int64_t width : kOddSizes) {
    TestMatrix<float> wide(5, width, Layout::kStrided), back(5, width, Layout::kStrided),
        copy(5, width);
    TestMatrix<BFloat16> narrow(5, width, Layout::kStrided);
    FillWithSpecials(wide, 9);
    ThreadPool pool(2);
    Convert<float, BFloat16>(wide.view(), narrow.span(), pool);
    Convert<BFloat16, float>(narrow.view(), back.span(), pool);
    Convert<float, float>(wide.view(), copy.span(), pool);
    const auto rounded =
        Matrix<BFloat16>(5, width, [&](auto r, auto i) { return RoundToBFloat16(wide.at(r, i)); });
    const auto widened =
        Matrix<float>(5, width, [&](auto r, auto i) { return ToFloat(rounded.at(r, i)); });
    ExpectSameBits(narrow.view(), rounded.view(), "narrowed");
    ExpectSameBits(back.view(), widened.view(), "widened");
    ExpectSameBits(copy.view(), wide.view(), "copied");
    narrow.ExpectGapsUntouched();
    back.ExpectGapsUntouched();
  }
}

TEST(ScatterRows, RowsGoToTheirPlacesBitForBitAndOthersNowhere) {
  for (const std::int64_t width : kOddSizes) {
    TestMatrix<BFloat16> in(5, width, Layout::kStrided), out(40, width, Layout::kStrided);
    FillWithSpecials(in, 9);
    Fill(out, 3);
    TestMatrix<BFloat16> expected(out);
    const std::vector<std::int64_t> destinations = {39, -1, 0, 40, 17};
    for (const int t : {0, 2, 4}) {
      for (std::int64_t i = 0; i < width; ++i) expected.at(destinations[t], i) = in.at(t, i);
    }
    ThreadPool pool(2);
    ScatterRows<BFloat16>(in.view(), destinations, out.span(), pool);
    ExpectSameBits(out.view(), expected.view(), "scattered");
    out.ExpectGapsUntouched();
  }
}

TEST(ElementwiseDeathTest, ShapesMustAgree) {
  TestMatrix<float> a(3, 8), b(3, 9), c(2, 8);
  ThreadPool pool(1);
  EXPECT_DEATH(Add<float>(a.view(), b.view(), a.span(), pool), "9 vs 8");
  EXPECT_DEATH((Convert<float, float>(a.view(), c.span(), pool)), "3 vs 2");
  const std::vector<std::int64_t> two(2), three(3);
  EXPECT_DEATH(ScatterRows<float>(a.view(), two, c.span(), pool), "2 vs 3");
  EXPECT_DEATH(ScatterRows<float>(a.view(), three, b.span(), pool), "8 vs 9");
}

}  // namespace
}  // namespace headwise
