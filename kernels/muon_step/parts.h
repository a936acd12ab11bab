// The Muon step taken apart, for a weight of which this process holds a part only: momentum and
// write are element by element, so each part makes its own; what Newton-Schulz needs whole is u.
//
//   MuonMomentum(hyper, momentum, gradient, u);            // on every part
//   ... the parts of u are brought together; O = NewtonSchulz(u); O is taken apart again ...
//   MuonWrite(hyper, rows, cols, o, weight);               // on every part
//
// Together they are MuonStep() (muon_step.h), with the same bits, however the weight is cut.
#ifndef HEADWISE_KERNELS_MUON_STEP_PARTS_H_
#define HEADWISE_KERNELS_MUON_STEP_PARTS_H_

#include <cstdint>

#include "core/tensor/row_span.h"
#include "kernels/muon_step/muon_step.h"

namespace headwise {

//   g  = gradient * gradient_scale
//   m <- m + (1 - beta) (g - m)
//   u  = g + beta (m - g)             Nesterov; without it u = m
//
// All of one shape (checked); rows may be strided; no two overlap. Gradients as in muon_step.h.
void MuonMomentum(const MuonHyperparameters& hyper, RowSpan<float> momentum,
                  RowSpan<const float> gradient, RowSpan<float> u);

//   w <- w (1 - lr wd) - (lr scale) O
//
// o and weight: of one shape (checked). block_rows, block_cols: of the whole block of which o is a
// part, as out_features x in_features; the scale is that of the whole.
void MuonWrite(const MuonHyperparameters& hyper, std::int64_t block_rows, std::int64_t block_cols,
               RowSpan<const float> o, RowSpan<float> weight);

}  // namespace headwise

#endif  // HEADWISE_KERNELS_MUON_STEP_PARTS_H_
