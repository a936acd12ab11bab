// What a Muon step means: against the same step in double, by the standard form; the scales; and
// what is refused, in which words, with nothing written.
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/dtype/dtype.h"
#include "core/heads/head_blocks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/muon_step/parity.h"
#include "kernels/newton_schulz/double_standard_form.h"

namespace headwise {
namespace {

using testing::HasSubstr;

template <typename G>
class MuonStepMeaning : public testing::Test {};

using GradientTypes = testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(MuonStepMeaning, GradientTypes);

// One block, in double. `scale` is the factor of its logical shape.
struct Exact {
  DoubleMatrix weight, momentum, update;
};

template <typename G>
Exact StepInDouble(const MuonHyperparameters& hyper, double scale, const TestWeight<G>& w,
                   std::int64_t first_row, std::int64_t rows) {
  const std::int64_t cols = w.weight.width();
  const DoubleMatrix empty{rows, cols, std::vector<double>(rows * cols)};
  Exact e{empty, empty, empty};
  DoubleMatrix u = empty;
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < cols; ++j) {
      const double g = Widen(w.gradient.at(first_row + i, j));
      const double m = w.momentum.at(first_row + i, j);
      const double next = hyper.momentum * m + (1 - hyper.momentum) * g;
      e.momentum.at(i, j) = next;
      u.at(i, j) = hyper.nesterov ? (1 - hyper.momentum) * g + hyper.momentum * next : next;
    }
  }
  const DoubleMatrix o = StandardForm(*hyper.coefficients, u);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < cols; ++j) {
      e.update.at(i, j) = hyper.learning_rate * scale * o.at(i, j);
      e.weight.at(i, j) =
          w.weight.at(first_row + i, j) * (1 - hyper.learning_rate * hyper.weight_decay) -
          e.update.at(i, j);
    }
  }
  return e;
}

double Norm(const DoubleMatrix& m) {
  double sum = 0;
  for (const double v : m.elements) sum += v * v;
  return std::sqrt(sum);
}

DoubleMatrix RowsOf(const TestMatrix<float>& m, std::int64_t first, std::int64_t rows) {
  DoubleMatrix r{rows, m.width(), std::vector<double>(rows * m.width())};
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < m.width(); ++j) r.at(i, j) = m.at(first + i, j);
  }
  return r;
}

TYPED_TEST(MuonStepMeaning, AgreesWithDouble) {
  const HeadBlocks blocks = *HeadBlocks::Separate(HeadRole::kQuery, 3, 32, 1);
  for (const bool nesterov : {true, false}) {
    for (const double decay : {0.0, 0.1}) {
      for (const bool transposed : {false, true}) {
        // 0.2 sqrt(max(32, 100)) and sqrt(32 / 100), or with the sides swapped sqrt(100 / 32).
        for (const auto& [kind, scale] :
             {std::pair(UpdateScale::kMatchRmsAdamW, 0.2 * std::sqrt(100.0)),
              std::pair(UpdateScale::kSpectral, std::sqrt(transposed ? 100.0 / 32 : 32.0 / 100)),
              std::pair(UpdateScale::kAspect, std::sqrt(transposed ? 100.0 / 32 : 1.0))}) {
          const MuonHyperparameters hyper = {
              .learning_rate = 0.5, .nesterov = nesterov, .weight_decay = decay, .scale = kind};
          const TestWeight<TypeParam> before(blocks, 100, 1);
          std::vector<TestWeight<TypeParam>> after = {before};
          after[0].transposed_storage = transposed;
          ThreadPool pool(2);
          ASSERT_TRUE(MuonStep<TypeParam>(hyper, ViewsOf(after), pool).ok());
          for (int head = 0; head < 3; ++head) {
            SCOPED_TRACE(absl::StrCat(Name(kind), ", nesterov ", nesterov, ", decay ", decay,
                                      ", transposed ", transposed, ", head ", head));
            const Exact exact = StepInDouble(hyper, scale, before, head * 32, 32);
            const DoubleMatrix momentum = RowsOf(after[0].momentum, head * 32, 32);
            EXPECT_LE(RelativeDifference(momentum, exact.momentum), 2e-7);
            // The weight's error as a share of the update.
            const DoubleMatrix weight = RowsOf(after[0].weight, head * 32, 32);
            const double error =
                RelativeDifference(weight, exact.weight) * Norm(exact.weight) / Norm(exact.update);
            EXPECT_LE(error, 5e-6);
          }
        }
      }
    }
  }
}

TEST(UpdateScales, AreThoseOfTheLogicalShape) {
  EXPECT_EQ(UpdateScaleFactor(UpdateScale::kAspect, 64, 512), 1.0);
  EXPECT_EQ(UpdateScaleFactor(UpdateScale::kAspect, 512, 128), 2.0);
  EXPECT_EQ(UpdateScaleFactor(UpdateScale::kMatchRmsAdamW, 64, 400), 4.0);
  EXPECT_EQ(UpdateScaleFactor(UpdateScale::kMatchRmsAdamW, 400, 64), 4.0);
  EXPECT_EQ(UpdateScaleFactor(UpdateScale::kSpectral, 64, 256), 0.5);
  EXPECT_EQ(UpdateScaleFactor(UpdateScale::kSpectral, 256, 64), 2.0);
  EXPECT_EQ(UpdateScaleFactor(UpdateScale::kUnit, 3, 5), 1.0);
}

// A weight stored [in, out] gets the transposed update of the same weight stored [out, in]. A square
// one looks the same both ways, and must be told apart all the same.
TEST(UpdateScales, TransposedStorageDoesNotInvertThem) {
  for (const UpdateScale scale : {UpdateScale::kAspect, UpdateScale::kMatchRmsAdamW,
                                  UpdateScale::kSpectral, UpdateScale::kUnit}) {
    for (const int rows : {96, 40, 20}) {
      std::vector<TestWeight<float>> stored = {TestWeight<float>(HeadBlocks::Whole(rows), 40, 3)};
      std::vector<TestWeight<float>> transposed = {
          TestWeight<float>(HeadBlocks::Whole(40), rows, 4)};
      transposed[0].transposed_storage = true;
      for (int i = 0; i < rows; ++i) {
        for (int j = 0; j < 40; ++j) {
          transposed[0].weight.at(j, i) = stored[0].weight.at(i, j);
          transposed[0].momentum.at(j, i) = stored[0].momentum.at(i, j);
          transposed[0].gradient.at(j, i) = stored[0].gradient.at(i, j);
        }
      }
      ThreadPool pool(1);
      ASSERT_TRUE(MuonStep<float>({.scale = scale}, ViewsOf(stored), pool).ok());
      ASSERT_TRUE(MuonStep<float>({.scale = scale}, ViewsOf(transposed), pool).ok());
      for (int i = 0; i < rows; ++i) {
        for (int j = 0; j < 40; ++j) {
          ASSERT_TRUE(SameBits(transposed[0].weight.at(j, i), stored[0].weight.at(i, j)))
              << Name(scale) << ", " << rows << " rows: " << i << ", " << j;
        }
      }
    }
  }
}

// A step larger than another by a power of two of the learning rate moves exactly so much further,
// where nothing decays and the weight is zero.
TEST(UpdateScales, StepIsProportionalToTheLearningRate) {
  std::vector<TestWeight<float>> once = {TestWeight<float>(HeadBlocks::Whole(20), 60, 5)};
  for (int i = 0; i < 20; ++i) {
    for (int j = 0; j < 60; ++j) once[0].weight.at(i, j) = 0.0f;
  }
  std::vector<TestWeight<float>> fourfold = once;
  ThreadPool pool(1);
  ASSERT_TRUE(MuonStep<float>({.learning_rate = 0.02}, ViewsOf(once), pool).ok());
  ASSERT_TRUE(MuonStep<float>({.learning_rate = 0.08}, ViewsOf(fourfold), pool).ok());
  for (int i = 0; i < 20; ++i) {
    for (int j = 0; j < 60; ++j) {
      ASSERT_EQ(fourfold[0].weight.at(i, j), 4 * once[0].weight.at(i, j)) << i << ", " << j;
    }
  }
}

class Errors : public testing::Test {
 protected:
  void ExpectRefused(const MuonHyperparameters& hyper, const MuonWeight<float>& bad,
                     const std::string& message) {
    ThreadPool pool(1);
    const std::vector<MuonWeight<float>> both = {weights[0].view(), bad};
    const std::vector<TestWeight<float>> before = weights;
    for (const absl::Status& status :
         {MuonStep<float>(hyper, both, pool), MuonStepReference<float>(hyper, both)}) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(status.message()), HasSubstr(message));
    }
    for (int i = 0; i < 2; ++i) {
      ExpectSameBits<float>(weights[i].weight.view(), before[i].weight.view(), "weight");
      ExpectSameBits<float>(weights[i].momentum.view(), before[i].momentum.view(), "momentum");
    }
  }

  std::vector<TestWeight<float>> weights = {TestWeight<float>(HeadBlocks::Whole(4), 6, 1),
                                            TestWeight<float>(HeadBlocks::Whole(4), 6, 2)};
};

TEST_F(Errors, Weights) {
  MuonWeight<float> bad = weights[1].view();
  bad.momentum.rows = 3;
  ExpectRefused({}, bad,
                "Muon weight 1: it is [4, 6], its momentum [3, 6], its gradient [4, 6]; all must "
                "be the same");
  bad = weights[1].view();
  bad.gradient.data = nullptr;
  ExpectRefused({}, bad, "Muon weight 1: its gradient has no data");
  bad = weights[1].view();
  bad.weight.stride = 5;
  ExpectRefused({}, bad, "its weight has rows of 6 elements but 5 from one row to the next");
  bad = weights[1].view();
  bad.momentum = bad.weight;
  ExpectRefused({}, bad, "its weight, momentum and gradient share memory");
  bad.momentum = weights[0].view().momentum;
  ExpectRefused({}, bad,
                "Muon weight 0: its momentum and the momentum of Muon weight 1 share memory");
  bad = weights[1].view();
  bad.gradient = weights[0].view().weight;
  ExpectRefused({}, bad,
                "Muon weight 0: its weight and the gradient of Muon weight 1 share memory");
  bad = weights[1].view();
  bad.blocks = nullptr;
  ExpectRefused({}, bad, "Muon weight 1: it has no head blocks");
  const HeadBlocks five = HeadBlocks::Whole(5);
  bad.blocks = &five;
  ExpectRefused({}, bad, "its head blocks tile 5 rows but the matrix is [4, 6]");
}

TEST_F(Errors, Hyperparameters) {
  const MuonWeight<float> good = weights[1].view();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  ExpectRefused({.learning_rate = nan}, good, "learning_rate is nan, expected a finite number");
  ExpectRefused({.learning_rate = -0.1}, good, "learning_rate is -0.1");
  ExpectRefused({.momentum = 1.0}, good, "momentum is 1, expected less than 1");
  ExpectRefused({.momentum = -0.5}, good, "momentum is -0.5");
  ExpectRefused({.weight_decay = -1}, good, "weight_decay is -1");
  ExpectRefused({.coefficients = nullptr}, good, "no Newton-Schulz coefficients");
  const NewtonSchulzCoefficients none = {.name = "none", .steps = {}, .restarts_after = {}};
  ExpectRefused({.coefficients = &none}, good, "'none': found no step");
}

TEST_F(Errors, NoWeightsIsFine) {
  ThreadPool pool(2);
  EXPECT_TRUE(MuonStep<float>({}, {}, pool).ok());
  EXPECT_TRUE(MuonStepReference<float>({}, {}).ok());
}

}  // namespace
}  // namespace headwise
