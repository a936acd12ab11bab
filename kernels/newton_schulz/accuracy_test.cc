// How far fp32 in Gram form is from the same polynomial in double by the standard form, on seven
// spectra; and that magnitudes, neighbours and positions show in no bit.
#include <cmath>
#include <cstdint>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/newton_schulz/double_standard_form.h"
#include "kernels/newton_schulz/parity.h"
#include "kernels/newton_schulz/spectra.h"

namespace headwise {
namespace {

struct Shape {
  std::int64_t rows, cols;
};

struct Spectrum {
  const char* name;
  // Relative Frobenius errors of quintic5 and of polar_express8; `square` where rows == cols.
  double gate, square_gate;
  double polar_gate, polar_square_gate;
  MakeSpectrum make;
};

constexpr Spectrum kSpectra[] = {
    {"gaussian", 5e-6, 1e-4, 5e-6, 2e-4, Gaussian},
    {"log_spaced_1e-2", 2e-4, 2e-4, 1e-4, 1e-4, LogSpectrum<2>},
    {"log_spaced_1e-4", 7e-4, 7e-4, 3e-4, 3e-4, LogSpectrum<4>},
    {"log_spaced_1e-6", 1.2e-3, 1.2e-3, 3e-4, 3e-4, LogSpectrum<6>},
    {"log_spaced_1e-8", 1.2e-3, 1.2e-3, 3e-4, 3e-4, LogSpectrum<8>},
    {"half_rank", 2e-4, 2e-4, 1e-3, 1e-3, HalfRank},
    {"one_spike", 3e-3, 3e-3, 1e-3, 1e-3, OneSpike},
};

FloatMatrix Rounded(const DoubleMatrix& m) {
  FloatMatrix r(m.rows, m.cols);
  for (std::int64_t i = 0; i < m.rows; ++i) {
    for (std::int64_t j = 0; j < m.cols; ++j) r.at(i, j) = static_cast<float>(m.at(i, j));
  }
  return r;
}

DoubleMatrix Widened(const FloatMatrix& m) {
  DoubleMatrix r{m.rows(), m.width(), std::vector<double>(m.rows() * m.width())};
  for (std::int64_t i = 0; i < r.rows; ++i) {
    for (std::int64_t j = 0; j < r.cols; ++j) r.at(i, j) = m.at(i, j);
  }
  return r;
}

FloatMatrix Fast(const FloatMatrix& x) {
  return FastOf(Quintic5(), x, HeadBlocks::Whole(x.rows()));
}

class Accuracy : public testing::TestWithParam<Spectrum> {};

// The worst error over shapes and seeds is recorded, against the standard form and, for the smaller
// shapes, against the polynomial of the singular values.
void CheckGates(const NewtonSchulzCoefficients& set, const Spectrum& spectrum, double gate,
                double square_gate) {
  double worst = 0;
  for (const Shape shape : {Shape{64, 128}, Shape{64, 512}, Shape{512, 64}, Shape{128, 256},
                            Shape{64, 64}, Shape{128, 128}}) {
    for (const std::uint64_t seed : {1, 2}) {
      const FloatMatrix x = Rounded(spectrum.make(shape.rows, shape.cols, seed));
      const DoubleMatrix o = Widened(FastOf(set, x, HeadBlocks::Whole(x.rows())));
      const double limit = shape.rows == shape.cols ? square_gate : gate;
      const double error = RelativeDifference(o, StandardForm(set, Widened(x)));
      EXPECT_LE(error, limit) << shape.rows << " x " << shape.cols << ", seed " << seed;
      worst = std::max(worst, error);
      if (std::min(shape.rows, shape.cols) > 64) continue;
      EXPECT_LE(RelativeDifference(o, PolynomialOfSingularValues(set, Widened(x))), limit)
          << "singular values: " << shape.rows << " x " << shape.cols << ", seed " << seed;
    }
  }
  testing::Test::RecordProperty("worst", absl::StrCat(worst));
}

TEST_P(Accuracy, OfQuintic5) {
  CheckGates(Quintic5(), GetParam(), GetParam().gate, GetParam().square_gate);
}

TEST_P(Accuracy, OfPolarExpress8) {
  CheckGates(PolarExpress8(), GetParam(), GetParam().polar_gate, GetParam().polar_square_gate);
}

INSTANTIATE_TEST_SUITE_P(Spectra, Accuracy, testing::ValuesIn(kSpectra), [](const auto& info) {
  std::string name = info.param.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

// Singular values of a well-conditioned block come out near 1: what it is for.
TEST(Meaning, RowsComeOutNearlyOrthonormal) {
  const FloatMatrix o = Fast(Rounded(Gaussian(32, 256, 3)));
  for (int i = 0; i < 32; ++i) {
    for (int j = 0; j < 32; ++j) {
      double dot = 0;
      for (int c = 0; c < 256; ++c) dot += double{o.at(i, c)} * o.at(j, c);
      EXPECT_NEAR(dot, i == j ? 1.0 : 0.0, i == j ? 0.5 : 0.25) << i << ", " << j;
    }
  }
}

// Its reason to be: singular values that quintic5 leaves between 0.7 and 1.2 come out near 1.
TEST(Meaning, PolarExpressBringsSmallSingularValuesToOne) {
  const std::vector<double> values = LogSpaced(32, 1e-2);
  const FloatMatrix x = Rounded(MatrixWithSingularValues(32, 96, values, 7));
  const FloatMatrix o = FastOf(PolarExpress8(), x, HeadBlocks::Whole(32));
  for (int i = 0; i < 32; ++i) {
    double dot = 0;
    for (int c = 0; c < 96; ++c) dot += double{o.at(i, c)} * o.at(i, c);
    EXPECT_NEAR(dot, 1.0, 0.02) << i;
  }
}

// The constants are the published ones with the safety factor, computed anew.
TEST(PolarExpress, ConstantsAreThePublishedOnes) {
  constexpr double kPublished[8][3] = {
      {8.28721201814563, -23.595886519098837, 17.300387312530933},
      {4.107059111542203, -2.9478499167379106, 0.5448431082926601},
      {3.9486908534822946, -2.908902115962949, 0.5518191394370137},
      {3.3184196573706015, -2.488488024314874, 0.51004894012372},
      {2.300652019954817, -1.6689039845747493, 0.4188073119525673},
      {1.891301407787398, -1.2679958271945868, 0.37680408948524835},
      {1.8750014808534479, -1.2500016453999487, 0.3750001645474248},
      {1.875, -1.25, 0.375}};
  ASSERT_EQ(PolarExpress8().steps.size(), 8u);
  for (int i = 0; i < 8; ++i) {
    const double safety = i < 7 ? 1.01 : 1.0;
    const QuinticStep& step = PolarExpress8().steps[i];
    EXPECT_EQ(step.a, static_cast<float>(kPublished[i][0] / safety)) << i;
    EXPECT_EQ(step.b, static_cast<float>(kPublished[i][1] / std::pow(safety, 3))) << i;
    EXPECT_EQ(step.c, static_cast<float>(kPublished[i][2] / std::pow(safety, 5))) << i;
  }
}

FloatMatrix Times(const FloatMatrix& x, float factor) {
  FloatMatrix r = x;
  for (std::int64_t i = 0; i < x.rows(); ++i) {
    for (std::int64_t j = 0; j < x.width(); ++j) r.at(i, j) = x.at(i, j) * factor;
  }
  return r;
}

TEST(Magnitude, PowersOfTwoShowInNoBit) {
  const FloatMatrix x = Rounded(Gaussian(48, 100, 4));
  const FloatMatrix expected = Fast(x);
  for (int exponent = -80; exponent <= 80; ++exponent) {
    ExpectSameBits(Fast(Times(x, std::ldexp(1.0f, exponent))).view(), expected.view(),
                   absl::StrCat("2^", exponent));
  }
}

// As near to overflow as floats are, and integers that are exact as multiples of the smallest one.
TEST(Magnitude, NorDoHugeAndSubnormalBlocks) {
  FloatMatrix integers(20, 60);
  Fill(integers, 5);
  for (int r = 0; r < 20; ++r) {
    for (int c = 0; c < 60; ++c) integers.at(r, c) = std::trunc(integers.at(r, c) * 60000);
  }
  const FloatMatrix expected = Fast(integers);
  for (const float factor : {0x1p-149f, 0x1p-140f, 0x1p-126f, 0x1p111f}) {
    ExpectSameBits(Fast(Times(integers, factor)).view(), expected.view(), absl::StrCat(factor));
  }
}

TEST(Magnitude, OneHeadAHundredTimesTheOthers) {
  const HeadBlocks blocks = BlocksOfSizes({32, 32, 32});
  FloatMatrix x = Rounded(Gaussian(96, 128, 6));
  const FloatMatrix before = FastOf(Quintic5(), x, blocks);
  FloatMatrix alone(32, 128);
  for (int r = 0; r < 32; ++r) {
    for (int c = 0; c < 128; ++c) {
      x.at(32 + r, c) *= 100;
      alone.at(r, c) = x.at(32 + r, c);
    }
  }
  const FloatMatrix after = FastOf(Quintic5(), x, blocks);
  ExpectSameBits(after.view().Rows(0, 32), before.view().Rows(0, 32), "the head before");
  ExpectSameBits(after.view().Rows(64, 32), before.view().Rows(64, 32), "the head after");
  ExpectSameBits(after.view().Rows(32, 32), Fast(alone).view(), "the head itself");
  // Scale free, so its update is that of the head before it was multiplied, to rounding.
  DoubleMatrix large = Widened(after), small = Widened(before);
  EXPECT_LE(RelativeDifference(large, small), 1e-5);
}

TEST(Magnitude, ZeroBlockGivesZeros) {
  FloatMatrix zeros(7, 9);
  for (int r = 0; r < 7; ++r) {
    for (int c = 0; c < 9; ++c) zeros.at(r, c) = (r + c) % 2 == 0 ? 0.0f : -0.0f;
  }
  const FloatMatrix o = Fast(zeros);
  for (int r = 0; r < 7; ++r) {
    for (int c = 0; c < 9; ++c) EXPECT_TRUE(SameBits(o.at(r, c), 0.0f)) << r << ", " << c;
  }
}

}  // namespace
}  // namespace headwise
