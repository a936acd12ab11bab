#include "kernels/muon_step/parts.h"

#include "core/base/check.h"
#include "kernels/muon_step/arguments.h"
#include "kernels/muon_step/elements.h"

namespace headwise {

void MuonMomentum(const MuonHyperparameters& hyper, RowSpan<float> momentum,
                  RowSpan<const float> gradient, RowSpan<float> u) {
  HW_CHECK(gradient.rows == momentum.rows && gradient.width == momentum.width &&
           u.rows == momentum.rows && u.width == momentum.width)
      << momentum.rows << " x " << momentum.width;
  const muon_step::Constants constants(hyper);
  for (std::int64_t r = 0; r < momentum.rows; ++r) {
    muon_step::MomentumRun(constants, gradient.row(r), momentum.row(r), u.row(r), momentum.width);
  }
}

void MuonWrite(const MuonHyperparameters& hyper, std::int64_t block_rows, std::int64_t block_cols,
               RowSpan<const float> o, RowSpan<float> weight) {
  HW_CHECK(o.rows == weight.rows && o.width == weight.width) << o.rows << " x " << o.width;
  const muon_step::Constants constants(hyper);
  const float minus_p =
      -muon_step::StepSize(hyper, /*transposed_storage=*/false, block_rows, block_cols);
  for (std::int64_t r = 0; r < weight.rows; ++r) {
    muon_step::WeightRun(constants, minus_p, o.row(r), weight.row(r), weight.width);
  }
}

}  // namespace headwise
