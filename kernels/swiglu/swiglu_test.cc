#include "kernels/swiglu/swiglu.h"

#include <cmath>
#include <string>

#include "core/dtype/dtype.h"
#include "core/io/checksum.h"
#include "gtest/gtest.h"
#include "kernels/common/math.h"
#include "kernels/common/testing/kernel_testing.h"

namespace headwise {
namespace {

constexpr Swiglu kPlain = {};
constexpr Swiglu kClamped = {.clamped = true, .alpha = 1.702, .limit = 1.25};

// The contract, one element at a time.
template <typename T>
struct Reference {
  using C = Compute<T>;
  static T Forward(T gate, T up) {
    const C g = Widen(gate);
    return Narrow<T>((g * Sigmoid(g)) * Widen(up));
  }
  static T GateGradient(T gate, T up, T dout) {
    const C g = Widen(gate), s = Sigmoid(g), a = g * s;
    return Narrow<T>((Widen(dout) * Widen(up)) * std::fma(a, Sigmoid(-g), s));
  }
  static T UpGradient(T gate, T, T dout) {
    const C g = Widen(gate);
    return Narrow<T>(Widen(dout) * (g * Sigmoid(g)));
  }
};

// The clamped form's.
template <typename T>
struct ClampedReference {
  using C = Compute<T>;
  const C alpha = static_cast<C>(kClamped.alpha), limit = static_cast<C>(kClamped.limit);

  C ClampGate(T gate) const { return Widen(gate) > limit ? limit : Widen(gate); }
  C ClampUp(T up) const {
    const C u = Widen(up);
    return u > limit ? limit : u < -limit ? -limit : u;
  }
  T Forward(T gate, T up) const {
    const C g = ClampGate(gate);
    return Narrow<T>((g * Sigmoid(g * alpha)) * (ClampUp(up) + C{1}));
  }
  T GateGradient(T gate, T up, T dout) const {
    if (!(Widen(gate) <= limit)) return Narrow<T>(C{0});
    const C g = ClampGate(gate), s = Sigmoid(g * alpha), t = Sigmoid(-(g * alpha));
    return Narrow<T>((Widen(dout) * (ClampUp(up) + C{1})) * std::fma((g * s) * alpha, t, s));
  }
  T UpGradient(T gate, T up, T dout) const {
    if (!(std::abs(Widen(up)) <= limit)) return Narrow<T>(C{0});
    const C g = ClampGate(gate);
    return Narrow<T>(Widen(dout) * (g * Sigmoid(g * alpha)));
  }
};

template <typename T>
struct Case {
  Case(std::int64_t rows, std::int64_t width, Layout layout)
      : gate(rows, width, layout), up(rows, width, layout), dout(rows, width, layout) {
    FillWithSpecials(gate, 1, 8.0);
    FillWithSpecials(up, 2);
    FillWithSpecials(dout, 3, 0.1);
  }
  TestMatrix<T> gate, up, dout;
};

template <typename T, typename Elements>
void ExpectBitsOf(const Elements& reference, const Swiglu& op, std::int64_t rows,
                  std::int64_t width, Layout layout, int threads) {
  const Case<T> c(rows, width, layout);
  TestMatrix<T> out(rows, width, layout), dgate(rows, width, layout), dup(rows, width, layout);
  ThreadPool pool(threads);
  SwigluForward<T>(op, c.gate.view(), c.up.view(), out.span(), pool);
  SwigluBackward<T>(op, c.gate.view(), c.up.view(), c.dout.view(), dgate.span(), dup.span(), pool);
  TestMatrix<T> expected(rows, width), expected_dgate(rows, width), expected_dup(rows, width);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t i = 0; i < width; ++i) {
      const T g = c.gate.at(r, i), u = c.up.at(r, i), d = c.dout.at(r, i);
      expected.at(r, i) = reference.Forward(g, u);
      expected_dgate.at(r, i) = reference.GateGradient(g, u, d);
      expected_dup.at(r, i) = reference.UpGradient(g, u, d);
    }
  }
  const std::string what =
      (op.clamped ? "clamped " : "plain ") + std::to_string(rows) + " x " + std::to_string(width);
  ExpectSameBits(out.view(), expected.view(), "out " + what);
  ExpectSameBits(dgate.view(), expected_dgate.view(), "dgate " + what);
  ExpectSameBits(dup.view(), expected_dup.view(), "dup " + what);
  out.ExpectGapsUntouched();
  dgate.ExpectGapsUntouched();
  dup.ExpectGapsUntouched();
}

template <typename T>
void ExpectReferenceBits(std::int64_t rows, std::int64_t width, Layout layout, int threads) {
  ExpectBitsOf<T>(Reference<T>(), kPlain, rows, width, layout, threads);
  ExpectBitsOf<T>(ClampedReference<T>(), kClamped, rows, width, layout, threads);
}

template <typename T>
class SwigluTest : public ::testing::Test {};
using StorageTypes = ::testing::Types<float, BFloat16, double>;
TYPED_TEST_SUITE(SwigluTest, StorageTypes);

TYPED_TEST(SwigluTest, EqualsTheReferenceForOddShapesAndThreads) {
  for (const std::int64_t width : kOddSizes) {
    for (const Layout layout : {Layout::kContiguous, Layout::kStrided}) {
      for (const int threads : {1, 2, 3}) {
        ExpectReferenceBits<TypeParam>(7, width, layout, threads);
      }
    }
  }
  ExpectReferenceBits<TypeParam>(300, 129, Layout::kStrided, 3);
  ExpectReferenceBits<TypeParam>(0, 5, Layout::kContiguous, 2);
}

TYPED_TEST(SwigluTest, OutputsMayTakeTheInputsPlace) {
  using T = TypeParam;
  for (const Swiglu& op : {kPlain, kClamped}) {
    Case<T> c(9, 77, Layout::kStrided);
    ThreadPool pool(2);
    TestMatrix<T> out(9, 77), dgate(9, 77), dup(9, 77);
    SwigluForward<T>(op, c.gate.view(), c.up.view(), out.span(), pool);
    SwigluBackward<T>(op, c.gate.view(), c.up.view(), c.dout.view(), dgate.span(), dup.span(),
                      pool);
    Case<T> forward = c;
    SwigluForward<T>(op, forward.gate.view(), forward.up.view(), forward.up.span(), pool);
    ExpectSameBits(forward.up.view(), out.view(), "out in place of up");
    SwigluBackward<T>(op, c.gate.view(), c.up.view(), c.dout.view(), c.gate.span(), c.up.span(),
                      pool);
    ExpectSameBits(c.gate.view(), dgate.view(), "dgate in place of gate");
    ExpectSameBits(c.up.view(), dup.view(), "dup in place of up");
  }
}

TEST(Swiglu, GradientsAreDerivatives) {
  for (const Swiglu& op : {kPlain, kClamped}) {
    TestMatrix<double> gate(2, 19), up(2, 19), dout(2, 19), out(2, 19), dgate(2, 19), dup(2, 19);
    Fill(gate, 1, 6.0);
    Fill(up, 2, 3.0);
    Fill(dout, 3);
    for (const TestMatrix<double>* m : {&gate, &up}) {  // differences must not straddle a corner
      for (int i = 0; i < 38; ++i) {
        ASSERT_GT(std::abs(std::abs(m->at(i / 19, i % 19)) - kClamped.limit), 3e-3);
      }
    }
    ThreadPool pool(1);
    const auto loss = [&] {
      SwigluForward<double>(op, gate.view(), up.view(), out.span(), pool);
      double sum = 0;
      for (int r = 0; r < 2; ++r) {
        for (int i = 0; i < 19; ++i) sum += out.at(r, i) * dout.at(r, i);
      }
      return sum;
    };
    SwigluBackward<double>(op, gate.view(), up.view(), dout.view(), dgate.span(), dup.span(), pool);
    ExpectGradient(gate, dgate.view(), loss, "dgate");
    ExpectGradient(up, dup.view(), loss, "dup");
  }
}

// GPT-OSS's constants, at and beyond the corners; the values are the formula's, in double.
TEST(Swiglu, ClampsAsGptOssDoes) {
  struct Element {
    float gate, up, out, dgate, dup;
  };
  const Element elements[] = {
      {1.0f, 0.5f, 1.26869365f, 1.60166941f, 0.845795766f},
      {7.0f, 7.0f, 55.999625f, 8.00058463f, 6.99995313f},  // at the limits gradients pass
      {-9.0f, 6.0f, -1.40222459e-5f, -2.23078299e-5f, -2.00317799e-6f},  // no lower limit
      {7.01f, -7.01f, -41.9997188f, 0.0f, 0.0f},
      {2.0f, -7.0f, -11.6139517f, -6.44289213f, 1.93565862f},
  };
  constexpr int kCount = std::size(elements);
  TestMatrix<float> gate(1, kCount), up(1, kCount), one(1, kCount);
  for (int i = 0; i < kCount; ++i) {
    gate.at(0, i) = elements[i].gate;
    up.at(0, i) = elements[i].up;
    one.at(0, i) = 1.0f;
  }
  TestMatrix<float> out(1, kCount), dgate(1, kCount), dup(1, kCount);
  ThreadPool pool(1);
  SwigluForward<float>({.clamped = true}, gate.view(), up.view(), out.span(), pool);
  SwigluBackward<float>({.clamped = true}, gate.view(), up.view(), one.view(), dgate.span(),
                        dup.span(), pool);
  const auto expect = [](float actual, float expected, int i) {
    EXPECT_NEAR(actual, expected, 2e-6 * std::abs(expected)) << "element " << i;
  };
  for (int i = 0; i < kCount; ++i) {
    expect(out.at(0, i), elements[i].out, i);
    expect(dgate.at(0, i), elements[i].dgate, i);
    expect(dup.at(0, i), elements[i].dup, i);
  }
}

TEST(Swiglu, GradientKeepsItsPrecisionWhereTheSigmoidSaturates) {
  TestMatrix<float> gate(1, 200), one(1, 200), dgate(1, 200), dup(1, 200);
  for (int i = 0; i < 200; ++i) gate.at(0, i) = 0.3f * static_cast<float>(i - 100);
  for (int i = 0; i < 200; ++i) one.at(0, i) = 1.0f;
  ThreadPool pool(1);
  SwigluBackward<float>(kPlain, gate.view(), one.view(), one.view(), dgate.span(), dup.span(),
                        pool);
  for (int i = 0; i < 200; ++i) {
    const double g = gate.at(0, i), s = 1 / (1 + std::exp(-g)), t = 1 / (1 + std::exp(g));
    // Where the derivative crosses zero (g = -1.28) only the terms' precision can be asked for.
    EXPECT_NEAR(dgate.at(0, i), s + g * s * t, 8e-7 * s + 8e-7 * std::abs(g * s * t)) << g;
  }
}

template <typename T>
std::uint64_t Golden(const Swiglu& op) {
  const Case<T> c(33, 211, Layout::kStrided);
  TestMatrix<T> out(33, 211), dgate(33, 211), dup(33, 211);
  ThreadPool pool(2);
  SwigluForward<T>(op, c.gate.view(), c.up.view(), out.span(), pool);
  SwigluBackward<T>(op, c.gate.view(), c.up.view(), c.dout.view(), dgate.span(), dup.span(), pool);
  Fnv1a64 sum;
  AddToChecksum(sum, out.view());
  AddToChecksum(sum, dgate.view());
  AddToChecksum(sum, dup.view());
  return sum.value();
}
TEST(Swiglu, BitsAreGolden) {
  EXPECT_EQ(Golden<float>(kPlain), 0x5642bf3c1c2fe552u);
  EXPECT_EQ(Golden<BFloat16>(kPlain), 0x86db6e7df5e7ad6au);
  EXPECT_EQ(Golden<float>(kClamped), 0x19e0e70cc352ce18u);
  EXPECT_EQ(Golden<BFloat16>(kClamped), 0xd0ef5e090f456ce8u);
}

TEST(SwigluDeathTest, ShapesMustAgree) {
  TestMatrix<float> a(3, 8), b(3, 9);
  ThreadPool pool(1);
  EXPECT_DEATH(SwigluForward<float>(kPlain, a.view(), b.view(), a.span(), pool), "9 vs 8");
  EXPECT_DEATH(
      SwigluForward<float>({.clamped = true, .limit = 0}, a.view(), a.view(), a.span(), pool),
      "limit 0");
}

}  // namespace
}  // namespace headwise
