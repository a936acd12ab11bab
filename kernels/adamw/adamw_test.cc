#include "kernels/adamw/adamw.h"

#include <cmath>
#include <string>
#include <vector>

#include "core/dtype/dtype.h"
#include "core/io/checksum.h"
#include "gtest/gtest.h"
#include "kernels/common/testing/kernel_testing.h"

namespace headwise {
namespace {

constexpr AdamWHyperparameters kHyper{
    .learning_rate = 3e-3, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};

template <typename C>
struct State {
  explicit State(std::int64_t n)
      : weight(1, n, Layout::kStrided),
        m(1, n, Layout::kStrided),
        v(1, n, Layout::kStrided),
        gradient(1, n, Layout::kStrided) {
    Fill(weight, 1);
    Fill(m, 2, 0);
    Fill(v, 3, 0);
    Fill(gradient, 4, 0.01);
  }
  static absl::Span<C> Span(TestMatrix<C>& x) { return {x.span().data, std::size_t(x.width())}; }
  void Step(const AdamWHyperparameters& hyper, std::int64_t step, double scale, int threads = 1) {
    ThreadPool pool(threads);
    AdamWStep<C>(hyper, step, scale, Span(weight), Span(m), Span(v), Span(gradient), pool);
  }
  TestMatrix<C> weight, m, v, gradient;
};

// The contract for one element.
template <typename C>
void ReferenceStep(const AdamWHyperparameters& hyper, std::int64_t step, double scale, C& w, C& m,
                   C& v, C g) {
  double power1 = 1, power2 = 1;
  double square1 = hyper.beta1, square2 = hyper.beta2;
  for (std::int64_t t = step; t > 0; t /= 2) {
    if (t % 2 == 1) {
      power1 *= square1;
      power2 *= square2;
    }
    square1 *= square1;
    square2 *= square2;
  }
  if (scale != 1) g = g * C(scale);
  m = std::fma(C(1 - hyper.beta1), g - m, m);
  v = std::fma(C(1 - hyper.beta2), std::fma(g, g, -v), v);
  const C denominator = std::fma(std::sqrt(v), C(1 / std::sqrt(1 - power2)), C(hyper.epsilon));
  w = std::fma(-C(hyper.learning_rate / (1 - power1)), m / denominator,
               w * C(1 - hyper.learning_rate * hyper.weight_decay));
}

template <typename C>
class AdamWTest : public ::testing::Test {};
using ComputeTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(AdamWTest, ComputeTypes);

TYPED_TEST(AdamWTest, EqualsTheReferenceForOddSizesStepsScalesAndThreads) {
  std::vector<std::int64_t> sizes(std::begin(kOddSizes), std::end(kOddSizes));
  sizes.push_back(40001);  // several tasks
  for (const std::int64_t n : sizes) {
    for (const int threads : {1, 2, 3}) {
      for (const double scale : {1.0, 0.37}) {
        State<TypeParam> s(n);
        FillWithSpecials(s.gradient, 7, 0.01);
        FillWithSpecials(s.weight, 8);
        State<TypeParam> expected = s;
        for (const std::int64_t step : {1, 2, 3, 1000003}) {
          s.Step(kHyper, step, scale, threads);
          for (std::int64_t i = 0; i < n; ++i) {
            ReferenceStep(kHyper, step, scale, expected.weight.at(0, i), expected.m.at(0, i),
                          expected.v.at(0, i), s.gradient.at(0, i));
          }
          const std::string what = std::to_string(n) + " elements, step " + std::to_string(step);
          ExpectSameBits(s.weight.view(), expected.weight.view(), "weight, " + what);
          ExpectSameBits(s.m.view(), expected.m.view(), "m, " + what);
          ExpectSameBits(s.v.view(), expected.v.view(), "v, " + what);
        }
        s.weight.ExpectGapsUntouched();
        s.m.ExpectGapsUntouched();
        s.v.ExpectGapsUntouched();
      }
    }
  }
}

// The formula of the header as written, in double, with std::pow, over many steps.
TEST(AdamW, FollowsTheFormula) {
  constexpr std::int64_t kCount = 50;
  State<double> exact(kCount);
  State<float> single(kCount);
  std::vector<double> w(kCount), m(kCount), v(kCount);
  for (int i = 0; i < kCount; ++i) w[i] = exact.weight.at(0, i);
  for (int step = 1; step <= 40; ++step) {
    Fill(exact.gradient, 100 + step, 0.01);
    Fill(single.gradient, 100 + step, 0.01);
    exact.Step(kHyper, step, 0.5);
    single.Step(kHyper, step, 0.5);
    for (int i = 0; i < kCount; ++i) {
      const double g = exact.gradient.at(0, i) * 0.5;
      m[i] = 0.9 * m[i] + 0.1 * g;
      v[i] = 0.95 * v[i] + 0.05 * g * g;
      const double m_hat = m[i] / (1 - std::pow(0.9, step));
      const double v_hat = v[i] / (1 - std::pow(0.95, step));
      w[i] = w[i] * (1 - 3e-3 * 0.1) - 3e-3 * m_hat / (std::sqrt(v_hat) + 1e-8);
      ASSERT_NEAR(exact.weight.at(0, i), w[i], 1e-13) << "step " << step;
      ASSERT_NEAR(single.weight.at(0, i), w[i], 2e-6) << "step " << step;
      ASSERT_NEAR(exact.v.at(0, i), v[i], 1e-12 * v[i]);
    }
  }
}

TEST(AdamW, TheFirstStepMovesByTheLearningRateAgainstTheGradientsSign) {
  AdamWHyperparameters hyper = kHyper;
  hyper.weight_decay = 0;
  State<float> s(100);
  const State<float> before = s;
  s.Step(hyper, 1, 1.0);
  for (int i = 0; i < 100; ++i) {
    // Without bias correction the step would be 0.45 of that.
    const float moved = before.weight.at(0, i) - s.weight.at(0, i);
    EXPECT_NEAR(moved, std::copysign(3e-3f, s.gradient.at(0, i)), 2e-6) << i;
  }
}

TEST(AdamW, ZeroGradientOnlyDecays) {
  State<float> s(33);
  Fill(s.gradient, 1, 0);
  const State<float> before = s;
  s.Step(kHyper, 1, 1.0);
  for (int i = 0; i < 33; ++i) {
    EXPECT_EQ(s.weight.at(0, i), before.weight.at(0, i) * static_cast<float>(1 - 3e-3 * 0.1));
    EXPECT_EQ(s.v.at(0, i), 0);
  }
}

TEST(AdamW, SecondMomentNeverTurnsNegative) {
  AdamWHyperparameters hyper = kHyper;
  hyper.beta2 = 0;  // v follows g^2 at once: the hardest case for fma(b, g^2 - v, v)
  State<float> s(257);
  for (int step = 1; step <= 8; ++step) {
    Fill(s.gradient, step, std::pow(10.0, -3.0 * (step % 4)));
    s.Step(hyper, step, 1.0);
    for (int i = 0; i < 257; ++i) ASSERT_GE(s.v.at(0, i), 0) << step;
  }
}

TEST(AdamW, BitsAreGolden) {
  State<float> s(1000);
  for (int step = 1; step <= 5; ++step) {
    Fill(s.gradient, step, 0.01);
    s.Step(kHyper, step, step % 2 ? 1.0 : 0.7, 2);
  }
  Fnv1a64 sum;
  AddToChecksum(sum, s.weight.view());
  AddToChecksum(sum, s.m.view());
  AddToChecksum(sum, s.v.view());
  EXPECT_EQ(sum.value(), 0x2ce870c502a158b6u);
}

TEST(AdamWDeathTest, ProgrammersErrors) {
  State<float> s(8);
  EXPECT_DEATH(s.Step(kHyper, 0, 1.0), "0 vs 1");
  s.gradient = TestMatrix<float>(1, 7);
  EXPECT_DEATH(s.Step(kHyper, 1, 1.0), "7 vs 8");
}

}  // namespace
}  // namespace headwise
