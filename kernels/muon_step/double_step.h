// For tests: how far the update of a step is from the same update in double, block by block, by the
// standard form.
//
//   // Weights of 0, scale kUnit, learning rate 1, no decay: the weights are -O afterwards.
//   EXPECT_LE(UpdateError(hyper, before, after, block), 1e-5);
#ifndef HEADWISE_KERNELS_MUON_STEP_DOUBLE_STEP_H_
#define HEADWISE_KERNELS_MUON_STEP_DOUBLE_STEP_H_

#include <cmath>
#include <cstdint>
#include <vector>

#include "core/heads/head_blocks.h"
#include "kernels/muon_step/muon_step.h"
#include "kernels/muon_step/parity.h"
#include "kernels/newton_schulz/double_standard_form.h"

namespace headwise {

// A step whose weights, 0 before, are -O after it.
inline MuonHyperparameters OnlyTheUpdate(const NewtonSchulzCoefficients& coefficients,
                                         double momentum = 0.95) {
  return {.learning_rate = 1,
          .momentum = momentum,
          .scale = UpdateScale::kUnit,
          .coefficients = &coefficients};
}

template <typename T>
void SetZero(TestMatrix<T>& m) {
  for (std::int64_t r = 0; r < m.rows(); ++r) {
    for (std::int64_t c = 0; c < m.width(); ++c) m.at(r, c) = T(0.0f);
  }
}

// f(i, j) of the elements of a block of a weight of rows x cols.
template <typename F>
DoubleMatrix BlockOf(const HeadBlocks& blocks, const HeadBlock& block, std::int64_t rows,
                     std::int64_t cols, const F& f) {
  std::vector<std::int64_t> places;
  for (const IndexRange& range : block.ranges) {
    for (std::int64_t i = 0; i < range.size; ++i) places.push_back(range.begin + i);
  }
  const bool by_columns = blocks.axis() == BlockAxis::kColumns;
  DoubleMatrix m{by_columns ? rows : block.size(), by_columns ? block.size() : cols, {}};
  m.elements.resize(m.rows * m.cols);
  for (std::int64_t i = 0; i < m.rows; ++i) {
    for (std::int64_t j = 0; j < m.cols; ++j) {
      m.at(i, j) = by_columns ? f(i, places[j]) : f(places[i], j);
    }
  }
  return m;
}

// u of a block, from gradient and momentum before the step.
template <typename G>
DoubleMatrix UpdateInput(const MuonHyperparameters& hyper, const TestWeight<G>& before,
                         const HeadBlock& block) {
  const float beta = static_cast<float>(hyper.momentum);
  return BlockOf(before.blocks, block, before.weight.rows(), before.weight.width(),
                 [&](std::int64_t i, std::int64_t j) {
                   const double g = Widen(before.gradient.at(i, j));
                   const double m = before.momentum.at(i, j);
                   const double next = m + double{1.0f - beta} * (g - m);
                   return hyper.nesterov ? g + double{beta} * (next - g) : next;
                 });
}

// |O - O*| / |O*| of a block, Frobenius: O from the weights after the step, O* of u.
template <typename G>
double UpdateError(const MuonHyperparameters& hyper, const DoubleMatrix& u,
                   const TestWeight<G>& after, const HeadBlock& block) {
  const DoubleMatrix update =
      BlockOf(after.blocks, block, after.weight.rows(), after.weight.width(),
              [&](std::int64_t i, std::int64_t j) { return -double{after.weight.at(i, j)}; });
  return RelativeDifference(update, StandardForm(*hyper.coefficients, u));
}

// A of the bound in cuda.h: what a relative change of R before each step and of the product Q X become
// in O, to first order, over |O|; of the block's singular values.
double ErrorFactor(const NewtonSchulzCoefficients& coefficients,
                   std::vector<double> singular_values);

}  // namespace headwise

#endif  // HEADWISE_KERNELS_MUON_STEP_DOUBLE_STEP_H_
