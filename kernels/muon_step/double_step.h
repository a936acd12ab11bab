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

// |O - O*| / |O*| of a block, Frobenius; O from the weights, O* from gradient and momentum before.
// |O| if O* is 0.
template <typename G>
double UpdateError(const MuonHyperparameters& hyper, const TestWeight<G>& before,
                   const TestWeight<G>& after, const HeadBlock& block) {
  const std::int64_t rows = before.weight.rows(), cols = before.weight.width();
  const float beta = static_cast<float>(hyper.momentum);
  const auto u = [&](std::int64_t i, std::int64_t j) {
    const double g = Widen(before.gradient.at(i, j));
    const double m = before.momentum.at(i, j);
    const double next = m + double{1.0f - beta} * (g - m);
    return hyper.nesterov ? g + double{beta} * (next - g) : next;
  };
  const auto o = [&](std::int64_t i, std::int64_t j) { return -double{after.weight.at(i, j)}; };
  const DoubleMatrix update = BlockOf(before.blocks, block, rows, cols, o);
  const DoubleMatrix exact = BlockOf(before.blocks, block, rows, cols, u);
  double largest = 0;
  for (const double v : exact.elements) largest = std::max(largest, std::abs(v));
  if (largest == 0) {
    DoubleMatrix one{1, 1, {1}}, sum{1, 1, {1}};
    for (const double v : update.elements) sum.elements[0] += std::abs(v);
    return RelativeDifference(sum, one);
  }
  return RelativeDifference(update, StandardForm(*hyper.coefficients, exact));
}

}  // namespace headwise

#endif  // HEADWISE_KERNELS_MUON_STEP_DOUBLE_STEP_H_
