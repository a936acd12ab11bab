// The specification of the Muon step: docs/numerics.md, "Momentum and the step", line by line.
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/base/status_macros.h"
#include "kernels/muon_step/arguments.h"
#include "kernels/muon_step/muon_step.h"
#include "kernels/newton_schulz/block_view.h"

namespace headwise {

template <typename G>
absl::Status MuonStepReference(const MuonHyperparameters& hyper,
                               absl::Span<const MuonWeight<G>> weights) {
  HW_RETURN_IF_ERROR(muon_step::CheckArguments(hyper, weights));
  const muon_step::Constants k(hyper);
  for (const MuonWeight<G>& w : weights) {
    const std::int64_t rows = w.weight.rows, cols = w.weight.width;
    std::vector<float> elements(rows * cols);
    const RowSpan<float> u(elements.data(), rows, cols);
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < cols; ++j) {
        const float g = Widen(w.gradient.row(i)[j]) * k.gradient_scale;
        float& m = w.momentum.row(i)[j];
        m = std::fma(k.one_minus_beta, g - m, m);
        u.row(i)[j] = k.nesterov ? std::fma(k.beta, m - g, g) : m;
      }
    }
    HW_RETURN_IF_ERROR(
        NewtonSchulzReference(*hyper.coefficients, {{{u, u, w.blocks, w.transposed_storage}}}));
    const RowSpan<const float> o = u;
    for (const HeadBlock& block : w.blocks->blocks()) {
      const newton_schulz::BlockView view(block, w.blocks->axis(), rows, cols);
      const float p = muon_step::StepSize(hyper, w.transposed_storage, view.rows(), view.cols());
      for (std::int64_t i = 0; i < view.rows(); ++i) {
        view.ForEachRun(i, 0, view.cols(), [&](auto row, auto col, auto length, auto) {
          for (std::int64_t j = col; j < col + length; ++j) {
            float& v = w.weight.row(row)[j];
            v = v * k.decay;
            v = std::fma(-p, o.row(row)[j], v);
          }
        });
      }
    }
  }
  return absl::OkStatus();
}

template absl::Status MuonStepReference<float>(const MuonHyperparameters&,
                                               absl::Span<const MuonWeight<float>>);
template absl::Status MuonStepReference<BFloat16>(const MuonHyperparameters&,
                                                  absl::Span<const MuonWeight<BFloat16>>);

}  // namespace headwise
