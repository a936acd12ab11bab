// The residual gate against plain loops, bit for bit, against its definition, and against
// differences.
//
// Break it to believe it: leave the clamp out, let it pass gradients, or sum 32 tokens to a tile,
// and a test fails.
#include "kernels/elementwise/residual_gate.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "core/dtype/dtype.h"
#include "core/io/checksum.h"
#include "gtest/gtest.h"
#include "kernels/common/math.h"
#include "kernels/common/reductions.h"
#include "kernels/common/testing/kernel_testing.h"

namespace headwise {
namespace {

constexpr ResidualGate kGate = {.temperature = 2.5, .epsilon = 1e-3};

// --- The contract, one channel at a time ---------------------------------------------------------

template <typename C>
struct Channel {
  explicit Channel(C gate) {
    const C w = gate / static_cast<C>(kGate.temperature);
    beta = Sigmoid(w);
    complement = Sigmoid(-w);
    const C p = complement * (C(1) + beta);
    clamped = p < static_cast<C>(kGate.epsilon);
    alpha = std::sqrt(clamped ? static_cast<C>(kGate.epsilon) : p);
  }
  C Gradient(C dalpha, C dbeta) const {
    const C d = clamped ? dbeta : std::fma(-dalpha, beta / alpha, dbeta);
    return (d * (beta * complement)) / static_cast<C>(kGate.temperature);
  }
  C beta, complement, alpha;
  bool clamped;
};

template <typename T>
struct Case {
  using C = Compute<T>;

  Case(std::int64_t rows, std::int64_t width, Layout layout, bool specials)
      : residual(rows, width, layout),
        branch(residual),
        dout(residual),
        out(residual),
        dresidual(residual),
        dbranch(residual),
        gate(1, width, layout),
        dgate(gate) {
    const auto fill = [&](auto& m, std::uint64_t seed, double scale) {
      specials ? FillWithSpecials(m, seed, scale) : Fill(m, seed, scale);
    };
    fill(residual, 10 * rows + width, 2.0);
    fill(branch, 11 * rows + width, 1.0);
    fill(dout, 12 * rows + width, 0.1);
    fill(gate, width + 1, 30.0);  // the clamp begins at 19.0004
  }
  absl::Span<const C> Gate() const { return absl::MakeConstSpan(gate.view().data, gate.width()); }
  absl::Span<C> DGate() { return absl::MakeSpan(dgate.span().data, dgate.width()); }
  void Forward(ThreadPool& pool) {
    ResidualGateForward<T>(kGate, residual.view(), branch.view(), Gate(), out.span(), pool);
  }
  void Backward(ThreadPool& pool) {
    ResidualGateBackward<T>(kGate, residual.view(), branch.view(), Gate(), dout.view(),
                            dresidual.span(), dbranch.span(), DGate(), pool);
  }

  TestMatrix<T> residual, branch, dout, out, dresidual, dbranch;
  TestMatrix<C> gate, dgate;
};

template <typename T>
void ExpectReferenceBits(Case<T> c, int threads) {
  using C = Compute<T>;
  const std::int64_t rows = c.residual.rows(), width = c.residual.width();
  ThreadPool pool(threads);
  c.Forward(pool);
  c.Backward(pool);
  TestMatrix<T> out(rows, width), dresidual(out), dbranch(out);
  TestMatrix<C> dgate(1, width);
  for (std::int64_t i = 0; i < width; ++i) {
    const Channel<C> channel(c.gate.at(0, i));
    std::vector<C> dalpha, dbeta;  // of tiles
    for (std::int64_t t = 0; t < rows; ++t) {
      const C h = Widen(c.residual.at(t, i)), x = Widen(c.branch.at(t, i));
      const C g = Widen(c.dout.at(t, i));
      out.at(t, i) = Narrow<T>(channel.alpha * h + channel.beta * x);
      dresidual.at(t, i) = Narrow<T>(g * channel.alpha);
      dbranch.at(t, i) = Narrow<T>(g * channel.beta);
      if (t % 64 == 0) {
        dalpha.push_back(0);
        dbeta.push_back(0);
      }
      dalpha.back() = std::fma(g, h, dalpha.back());
      dbeta.back() = std::fma(g, x, dbeta.back());
    }
    dgate.at(0, i) = channel.Gradient(AdjacentPairTree<C>(dalpha), AdjacentPairTree<C>(dbeta));
  }
  const std::string what = std::to_string(rows) + " tokens, " + std::to_string(threads) +
                           " threads, width " + std::to_string(width);
  ExpectSameBits(c.out.view(), out.view(), "out, " + what);
  ExpectSameBits(c.dresidual.view(), dresidual.view(), "dresidual, " + what);
  ExpectSameBits(c.dbranch.view(), dbranch.view(), "dbranch, " + what);
  ExpectSameBits(c.dgate.view(), dgate.view(), "dgate, " + what);
  for (const auto* m : {&c.out, &c.dresidual, &c.dbranch}) m->ExpectGapsUntouched();
  c.dgate.ExpectGapsUntouched();
}

template <typename T>
class ResidualGateTest : public ::testing::Test {};
using StorageTypes = ::testing::Types<float, BFloat16, double>;
TYPED_TEST_SUITE(ResidualGateTest, StorageTypes);

TYPED_TEST(ResidualGateTest, EqualsTheReferenceOnOddWidths) {
  for (const std::int64_t width : kOddSizes) {
    for (const Layout layout : {Layout::kContiguous, Layout::kStrided}) {
      for (const bool specials : {false, true}) {
        ExpectReferenceBits(Case<TypeParam>(5, width, layout, specials), 2);
      }
    }
  }
}

TYPED_TEST(ResidualGateTest, EqualsTheReferenceForAnyTokensAndThreads) {
  for (const std::int64_t rows : kOddSizes) {
    for (const int threads : {1, 2, 3}) {
      ExpectReferenceBits(Case<TypeParam>(rows, 33, Layout::kStrided, /*specials=*/false), threads);
    }
  }
  ExpectReferenceBits(Case<TypeParam>(1100, 40, Layout::kStrided, /*specials=*/false), 3);
}

TYPED_TEST(ResidualGateTest, OutputsMayTakeTheirInputsPlace) {
  using T = TypeParam;
  Case<T> c(70, 37, Layout::kStrided, /*specials=*/false), in_place = c;
  ThreadPool pool(2);
  c.Forward(pool);
  c.Backward(pool);
  for (TestMatrix<T> Case<T>::*out : {&Case<T>::residual, &Case<T>::branch}) {
    Case<T> copy = in_place;
    ResidualGateForward<T>(kGate, copy.residual.view(), copy.branch.view(), copy.Gate(),
                           (copy.*out).span(), pool);
    ExpectSameBits((copy.*out).view(), c.out.view(), "out in place");
  }
  Case<T> copy = in_place;
  ResidualGateBackward<T>(kGate, copy.residual.view(), copy.branch.view(), copy.Gate(),
                          copy.dout.view(), copy.residual.span(), copy.branch.span(), copy.DGate(),
                          pool);
  ExpectSameBits(copy.residual.view(), c.dresidual.view(), "dresidual in place of residual");
  ExpectSameBits(copy.branch.view(), c.dbranch.view(), "dbranch in place of branch");
  ExpectSameBits(copy.dgate.view(), c.dgate.view(), "dgate, both in place");
  ResidualGateBackward<T>(kGate, in_place.residual.view(), in_place.branch.view(), in_place.Gate(),
                          in_place.dout.view(), in_place.dout.span(), in_place.residual.span(),
                          in_place.DGate(), pool);
  ExpectSameBits(in_place.dout.view(), c.dresidual.view(), "dresidual in place of dout");
  ExpectSameBits(in_place.residual.view(), c.dbranch.view(), "dbranch in place of residual");
  ExpectSameBits(in_place.dgate.view(), c.dgate.view(), "dgate");
}

// --- Meaning -------------------------------------------------------------------------------------

TEST(ResidualGate, IsThatOfTheDefinition) {
  Case<double> c(1, 41, Layout::kContiguous, /*specials=*/false);
  for (int i = 0; i < 41; ++i) {
    c.gate.at(0, i) = i - 20;
    c.residual.at(0, i) = 3;
    c.branch.at(0, i) = -2;
  }
  ThreadPool pool(1);
  c.Forward(pool);
  for (int i = 0; i < 41; ++i) {
    const double beta = 1 / (1 + std::exp(-(i - 20) / 2.5));
    const double alpha = std::sqrt(std::max(1 - beta * beta, 1e-3));
    EXPECT_NEAR(c.out.at(0, i), 3 * alpha - 2 * beta, 1e-12) << "gate " << i - 20;
  }
}

TEST(ResidualGate, GradientsAreDerivatives) {
  Case<double> c(3, 21, Layout::kStrided, /*specials=*/false);
  // Channels 16 and on are clamped; where the clamp begins is between two channels.
  for (int i = 0; i < 21; ++i) c.gate.at(0, i) = i < 16 ? 2.3 * i - 17 : i + 4.0;
  ThreadPool pool(1);
  c.Backward(pool);
  const auto loss = [&] {
    c.Forward(pool);
    double sum = 0;
    for (int t = 0; t < 3; ++t) {
      for (int i = 0; i < 21; ++i) sum += c.out.at(t, i) * c.dout.at(t, i);
    }
    return sum;
  };
  ExpectGradient(c.residual, c.dresidual.view(), loss, "dresidual");
  ExpectGradient(c.branch, c.dbranch.view(), loss, "dbranch");
  ExpectGradient(c.gate, c.dgate.view(), loss, "dgate");
}

template <typename T>
std::uint64_t Golden() {
  Fnv1a64 sum;
  ThreadPool pool(2);
  Case<T> c(150, 203, Layout::kStrided, /*specials=*/false);
  c.Forward(pool);
  c.Backward(pool);
  for (const auto* m : {&c.out, &c.dresidual, &c.dbranch}) AddToChecksum(sum, m->view());
  AddToChecksum(sum, c.dgate.view());
  return sum.value();
}
TEST(ResidualGate, BitsAreGolden) {
  EXPECT_EQ(Golden<float>(), 0xedffc5930e31716cu);
  EXPECT_EQ(Golden<BFloat16>(), 0x3e10ec0cd3b1b51u);
}

TEST(ResidualGateDeathTest, ArgumentsThatDoNotFit) {
  Case<float> c(3, 8, Layout::kContiguous, /*specials=*/false);
  ThreadPool pool(1);
  const auto forward = [&](const ResidualGate& op, std::size_t channels) {
    ResidualGateForward<float>(op, c.residual.view(), c.branch.view(),
                               c.Gate().subspan(0, channels), c.out.span(), pool);
  };
  EXPECT_DEATH(forward(kGate, 7), "7 vs 8.*gate and residual");
  EXPECT_DEATH(forward({.temperature = 0}, 8), "temperature 0");
  EXPECT_DEATH(forward({.epsilon = -1}, 8), "epsilon -1");
  c.dbranch = TestMatrix<float>(2, 8);
  EXPECT_DEATH(c.Backward(pool), "2 vs 3.*dbranch and residual");
}

}  // namespace
}  // namespace headwise
