#include "kernels/rms_norm/rms_norm.h"

#include <cmath>
#include <string>
#include <vector>

#include "core/dtype/dtype.h"
#include "core/io/checksum.h"
#include "gtest/gtest.h"
#include "kernels/common/testing/kernel_testing.h"

namespace headwise {
namespace {

constexpr RmsNorm kStyles[] = {
    {.style = RmsNormStyle::kWeighted, .epsilon = 1e-6f},
    {.style = RmsNormStyle::kGainCentered, .epsilon = 1e-5f, .centre = 1.25f},
    {.style = RmsNormStyle::kScaleless, .epsilon = 1e-8f},
    {.style = RmsNormStyle::kInputScaled, .epsilon = 1e-5f, .centre = 1.25f},
};

std::string Name(const RmsNorm& op) {
  const char* const names[] = {"weighted", "gain-centred", "scaleless", "input-scaled"};
  return names[static_cast<int>(op.style)];
}

// --- The contract, one element at a time ---------------------------------------------------------

// p[64] are the chains of a row's sum.
template <typename C>
C TreeOf64(C* p) {
  for (int h = 32; h >= 1; h /= 2) {
    for (int c = 0; c < h; ++c) p[c] = p[c] + p[c + h];
  }
  return p[0];
}

template <typename C>
C Scaled(const RmsNorm& op, C x, const std::vector<C>& weight, std::int64_t i) {
  if (op.style == RmsNormStyle::kScaleless) return x;
  return x * (op.style == RmsNormStyle::kWeighted ? weight[i] : C(op.centre) + weight[i]);
}

// u, what is normalised, and the scale of what was.
template <typename T>
std::vector<Compute<T>> Inputs(const RmsNorm& op, const T* x, std::int64_t n,
                               const std::vector<Compute<T>>& weight) {
  std::vector<Compute<T>> u;
  for (std::int64_t i = 0; i < n; ++i) {
    const bool scaled = op.style == RmsNormStyle::kInputScaled;
    u.push_back(scaled ? Widen(Narrow<T>(Scaled(op, Widen(x[i]), weight, i))) : Widen(x[i]));
  }
  return u;
}
template <typename C>
C ScaledAfter(const RmsNorm& op, C v, const std::vector<C>& weight, std::int64_t i) {
  return op.style == RmsNormStyle::kInputScaled ? v : Scaled(op, v, weight, i);
}

template <typename C>
C ReferenceR(const RmsNorm& op, const std::vector<C>& u) {
  C p[64] = {};
  for (std::size_t i = 0; i < u.size(); ++i) p[i % 64] = std::fma(u[i], u[i], p[i % 64]);
  const C v = TreeOf64(p) / C(u.size()) + C(op.epsilon);
  return C(1.0 / std::sqrt(double(v)));
}

template <typename T>
void ReferenceForward(const RmsNorm& op, RowSpan<const T> x, const std::vector<Compute<T>>& weight,
                      RowSpan<T> y) {
  for (std::int64_t t = 0; t < x.rows; ++t) {
    const std::vector<Compute<T>> u = Inputs(op, x.row(t), x.width, weight);
    const Compute<T> r = ReferenceR(op, u);
    for (std::int64_t i = 0; i < x.width; ++i) {
      y.row(t)[i] = Narrow<T>(ScaledAfter(op, u[i] * r, weight, i));
    }
  }
}

template <typename T>
void ReferenceBackward(const RmsNorm& op, RowSpan<const T> x, const std::vector<Compute<T>>& weight,
                       RowSpan<const T> dy, RowSpan<T> dx, std::vector<Compute<T>>& dweight) {
  using C = Compute<T>;
  std::vector<std::vector<C>> tiles;
  for (std::int64_t t = 0; t < x.rows; ++t) {
    if (t % 64 == 0) tiles.emplace_back(dweight.size(), C(0));
    const std::vector<C> u = Inputs(op, x.row(t), x.width, weight);
    const C r = ReferenceR(op, u);
    C p[64] = {};
    for (std::int64_t i = 0; i < x.width; ++i) {
      const C h = ScaledAfter(op, Widen(dy.row(t)[i]), weight, i);
      p[i % 64] = std::fma(h, u[i] * r, p[i % 64]);
    }
    const C c = TreeOf64(p) / C(x.width);
    for (std::int64_t i = 0; i < x.width; ++i) {
      const C g = Widen(dy.row(t)[i]), uh = u[i] * r;
      const C du = r * std::fma(-uh, c, ScaledAfter(op, g, weight, i));
      if (op.style == RmsNormStyle::kInputScaled) {
        dx.row(t)[i] = Narrow<T>(Scaled(op, du, weight, i));
        tiles.back()[i] = std::fma(du, Widen(x.row(t)[i]), tiles.back()[i]);
        continue;
      }
      dx.row(t)[i] = Narrow<T>(du);
      if (!dweight.empty()) tiles.back()[i] = std::fma(g, uh, tiles.back()[i]);
    }
  }
  std::size_t n = 1;
  while (n < tiles.size()) n *= 2;
  tiles.resize(n, std::vector<C>(dweight.size(), C(0)));
  for (; n > 1; n /= 2) {
    for (std::size_t k = 0; k < n / 2; ++k) {
      for (std::size_t i = 0; i < dweight.size(); ++i) {
        tiles[k][i] = tiles[2 * k][i] + tiles[2 * k + 1][i];
      }
    }
  }
  dweight = tiles[0];
}

// --- Cases -------------------------------------------------------------------------------------

template <typename T>
struct Case {
  Case(const RmsNorm& op, std::int64_t rows, std::int64_t width, Layout layout, bool specials)
      : op(op), x(rows, width, layout), dy(rows, width, layout), w(1, Weights(op, width)) {
    if (specials) {
      FillWithSpecials(x, 10 * rows + width, 2.0);
      FillWithSpecials(dy, 11 * rows + width, 0.1);
    } else {
      Fill(x, 10 * rows + width, 2.0);
      Fill(dy, 11 * rows + width, 0.1);
    }
    Fill(w, width + 1);
    weight.assign(w.view().data, w.view().data + w.width());
  }
  static std::int64_t Weights(const RmsNorm& op, std::int64_t width) {
    return op.style == RmsNormStyle::kScaleless ? 0 : width;
  }
  // The weight lies where no vector is aligned, as everything else does.
  absl::Span<const Compute<T>> weight_span() const {
    return absl::MakeConstSpan(w.view().data, w.width());
  }

  RmsNorm op;
  TestMatrix<T> x, dy;
  TestMatrix<Compute<T>> w;
  std::vector<Compute<T>> weight;
};

template <typename T>
void ExpectReferenceBits(const Case<T>& c, int threads, const std::string& what) {
  const std::int64_t rows = c.x.rows(), width = c.x.width();
  ThreadPool pool(threads);
  TestMatrix<T> y(rows, width, Layout::kStrided), expected_y(rows, width);
  RmsNormForward<T>(c.op, c.x.view(), c.weight_span(), y.span(), pool);
  ReferenceForward<T>(c.op, c.x.view(), c.weight, expected_y.span());
  ExpectSameBits(y.view(), expected_y.view(), "y, " + what);
  y.ExpectGapsUntouched();

  TestMatrix<T> dx(rows, width, Layout::kStrided), expected_dx(rows, width);
  TestMatrix<Compute<T>> dw(1, c.w.width(), Layout::kStrided);
  RmsNormBackward<T>(c.op, c.x.view(), c.weight_span(), c.dy.view(), dx.span(),
                     absl::MakeSpan(dw.span().data, dw.width()), pool);
  std::vector<Compute<T>> expected_dw(c.weight.size());
  ReferenceBackward<T>(c.op, c.x.view(), c.weight, c.dy.view(), expected_dx.span(), expected_dw);
  ExpectSameBits(dx.view(), expected_dx.view(), "dx, " + what);
  ExpectSameBits(dw.view(), RowSpan<const Compute<T>>(expected_dw.data(), 1, c.w.width()),
                 "dweight, " + what);
  dx.ExpectGapsUntouched();
  dw.ExpectGapsUntouched();
}

template <typename T>
class RmsNormTest : public ::testing::Test {};
using StorageTypes = ::testing::Types<float, BFloat16, double>;
TYPED_TEST_SUITE(RmsNormTest, StorageTypes);

TYPED_TEST(RmsNormTest, EqualsTheReferenceOnOddWidths) {
  for (const RmsNorm& op : kStyles) {
    for (const std::int64_t width : kOddSizes) {
      for (const Layout layout : {Layout::kContiguous, Layout::kStrided}) {
        const Case<TypeParam> c(op, 5, width, layout, /*specials=*/false);
        ExpectReferenceBits(c, 2, Name(op) + ", width " + std::to_string(width));
      }
    }
  }
}

TYPED_TEST(RmsNormTest, EqualsTheReferenceForAnyTokensAndThreads) {
  for (const RmsNorm& op : kStyles) {
    for (const std::int64_t rows : kOddSizes) {
      const Case<TypeParam> c(op, rows, 33, Layout::kStrided, /*specials=*/false);
      for (const int threads : {1, 2, 3}) {
        ExpectReferenceBits(c, threads,
                            Name(op) + ", " + std::to_string(rows) + " tokens, " +
                                std::to_string(threads) + " threads");
      }
    }
  }
}

TYPED_TEST(RmsNormTest, EqualsTheReferenceOnSpecialValues) {
  for (const RmsNorm& op : kStyles) {
    for (const std::int64_t width : {1, 3, 17, 64, 130}) {
      const Case<TypeParam> c(op, 65, width, Layout::kStrided, /*specials=*/true);
      ExpectReferenceBits(c, 2, Name(op) + ", specials, width " + std::to_string(width));
    }
  }
}

TYPED_TEST(RmsNormTest, OutputsMayTakeTheirInputsPlace) {
  using T = TypeParam;
  for (const RmsNorm& op : kStyles) {
    Case<T> c(op, 70, 37, Layout::kStrided, /*specials=*/false);
    ThreadPool pool(2);
    TestMatrix<T> y(70, 37), dx(70, 37);
    std::vector<Compute<T>> dw(c.weight.size()), dw_in_place(c.weight.size());
    RmsNormForward<T>(op, c.x.view(), c.weight_span(), y.span(), pool);
    RmsNormBackward<T>(op, c.x.view(), c.weight_span(), c.dy.view(), dx.span(), absl::MakeSpan(dw),
                       pool);
    RmsNormBackward<T>(op, c.x.view(), c.weight_span(), c.dy.view(), c.dy.span(),
                       absl::MakeSpan(dw_in_place), pool);
    RmsNormForward<T>(op, c.x.view(), c.weight_span(), c.x.span(), pool);
    ExpectSameBits(c.x.view(), y.view(), "y in place of x");
    ExpectSameBits(c.dy.view(), dx.view(), "dx in place of dy");
    EXPECT_EQ(dw, dw_in_place);
  }
}

// --- Meaning -----------------------------------------------------------------------------------

TEST(RmsNorm, GradientsAreDerivatives) {
  for (const RmsNorm& op : kStyles) {
    Case<double> c(op, 3, 21, Layout::kStrided, /*specials=*/false);
    TestMatrix<double> y(3, 21), dx(3, 21), dw(1, c.w.width());
    ThreadPool pool(1);
    const auto loss = [&] {
      RmsNormForward<double>(op, c.x.view(), c.weight_span(), y.span(), pool);
      double sum = 0;
      for (int t = 0; t < 3; ++t) {
        for (int i = 0; i < 21; ++i) sum += y.at(t, i) * c.dy.at(t, i);
      }
      return sum;
    };
    RmsNormBackward<double>(op, c.x.view(), c.weight_span(), c.dy.view(), dx.span(),
                            absl::MakeSpan(dw.span().data, dw.width()), pool);
    ExpectGradient(c.x, dx.view(), loss, Name(op) + " dx");
    ExpectGradient(c.w, dw.view(), loss, Name(op) + " dweight");
  }
}

TEST(RmsNorm, RowsHaveUnitRootMeanSquare) {
  TestMatrix<float> x(4, 512), y(4, 512);
  Fill(x, 3, 7.0);
  ThreadPool pool(1);
  RmsNormForward<float>(RmsNorm{.style = RmsNormStyle::kScaleless, .epsilon = 0}, x.view(), {},
                        y.span(), pool);
  for (int t = 0; t < 4; ++t) {
    double squares = 0;
    for (int i = 0; i < 512; ++i) squares += double(y.at(t, i)) * y.at(t, i);
    EXPECT_NEAR(std::sqrt(squares / 512), 1.0, 1e-6);
  }
}

// The gain cannot change the size of a row, only the proportions in it.
TEST(RmsNorm, InputScaledRowsHaveUnitRootMeanSquareForAnyGain) {
  TestMatrix<float> x(4, 512), y(4, 512), weight(1, 512);
  Fill(x, 3, 7.0);
  Fill(weight, 4, 5.0);
  ThreadPool pool(1);
  const RmsNorm op{.style = RmsNormStyle::kInputScaled, .epsilon = 0};
  RmsNormForward<float>(op, x.view(), absl::MakeConstSpan(weight.view().data, 512), y.span(), pool);
  for (int t = 0; t < 4; ++t) {
    double squares = 0;
    for (int i = 0; i < 512; ++i) squares += double(y.at(t, i)) * y.at(t, i);
    EXPECT_NEAR(std::sqrt(squares / 512), 1.0, 1e-6);
    const double gain_0 = 1 + weight.at(0, 0), gain_1 = 1 + weight.at(0, 1);
    EXPECT_NEAR(y.at(t, 0) * (x.at(t, 1) * gain_1), y.at(t, 1) * (x.at(t, 0) * gain_0), 1e-4);
  }
}

TEST(RmsNorm, ARowDoesNotDependOnItsNeighbours) {
  TestMatrix<float> x(130, 100), all(130, 100), one(1, 100);
  Fill(x, 4);
  ThreadPool pool(3);
  const RmsNorm op{.style = RmsNormStyle::kScaleless};
  RmsNormForward<float>(op, x.view(), {}, all.span(), pool);
  for (int t = 0; t < 130; ++t) {
    RmsNormForward<float>(op, x.view().Rows(t, 1), {}, one.span(), pool);
    ExpectSameBits(one.view(), all.view().Rows(t, 1), "alone");
  }
}

template <typename T>
std::uint64_t Golden(absl::Span<const RmsNorm> ops) {
  Fnv1a64 sum;
  ThreadPool pool(2);
  for (const RmsNorm& op : ops) {
    const Case<T> c(op, 150, 203, Layout::kStrided, /*specials=*/false);
    TestMatrix<T> y(150, 203), dx(150, 203);
    TestMatrix<Compute<T>> dw(1, c.w.width());
    RmsNormForward<T>(op, c.x.view(), c.weight_span(), y.span(), pool);
    RmsNormBackward<T>(op, c.x.view(), c.weight_span(), c.dy.view(), dx.span(),
                       absl::MakeSpan(dw.span().data, dw.width()), pool);
    AddToChecksum(sum, y.view());
    AddToChecksum(sum, dx.view());
    AddToChecksum(sum, dw.view());
  }
  return sum.value();
}
TEST(RmsNorm, BitsAreGolden) {
  const absl::Span<const RmsNorm> ops = kStyles, scaled_after = ops.subspan(0, 3),
                                  before = ops.subspan(3);
  EXPECT_EQ(Golden<float>(scaled_after), 0x5acf0d0048257c79u);
  EXPECT_EQ(Golden<BFloat16>(scaled_after), 0xcd6a040ba5ce9abu);
  EXPECT_EQ(Golden<float>(before), 0x69e2d7be9b8b84u);
  EXPECT_EQ(Golden<BFloat16>(before), 0x4029c33387ca33du);
}

TEST(RmsNormDeathTest, ShapesMustAgree) {
  TestMatrix<float> x(3, 8), y(3, 9);
  std::vector<float> weight(8);
  ThreadPool pool(1);
  const RmsNorm op;
  EXPECT_DEATH(RmsNormForward<float>(op, x.view(), weight, y.span(), pool), "9 vs 8");
  EXPECT_DEATH(RmsNormForward<float>(op, x.view(), {}, x.span(), pool),
               "weight against the width of x");
  EXPECT_DEATH(RmsNormForward<float>(RmsNorm{.style = RmsNormStyle::kScaleless}, x.view(), weight,
                                     x.span(), pool),
               "kScaleless has no weight");
}

}  // namespace
}  // namespace headwise
