// gradient_norm: one pass over all gradients that finds their global norm and whether any element
// is unusable.
//
//   norm = sqrt(sum of g^2 over all elements of all parameters)
//
// The order of the additions is a contract (docs/numerics.md, section 8): squares in double
// (exact), a serial sum along each row, an adjacent-pair tree over a parameter's rows, an
// adjacent-pair tree over the parameters in name order. The number of threads does not enter. The
// order in which the caller lists the parameters does not either.
//
// The guard: an element that is NaN or whose magnitude is 2^96 or more is unusable. Below it every
// square fits and Newton-Schulz cannot overflow.
#ifndef HEADWISE_KERNELS_GRADIENT_NORM_GRADIENT_NORM_H_
#define HEADWISE_KERNELS_GRADIENT_NORM_GRADIENT_NORM_H_

#include <string>

#include "absl/types/span.h"
#include "core/tensor/row_span.h"
#include "kernels/common/thread_pool.h"

namespace headwise {

struct NamedGradient {
  std::string name;               // unique
  RowSpan<const float> gradient;  // [rows, width]; a one-dimensional parameter is one row
};

struct GradientSummary {
  // Infinite or NaN only if an element is.
  double norm = 0;
  // The first parameter, in name order, with an unusable element; empty if there is none.
  std::string non_finite;
};

// Does not write to the gradients. Uses 8 bytes per row.
GradientSummary SummarizeGradients(absl::Span<const NamedGradient> gradients, ThreadPool& pool);

// What the gradients are multiplied by so that their norm is at most clip_norm: min(1, clip_norm /
// norm), exactly 1 where nothing is to be clipped. clip_norm 0 means no clipping.
double ClipFactor(double norm, double clip_norm);

}  // namespace headwise

#endif  // HEADWISE_KERNELS_GRADIENT_NORM_GRADIENT_NORM_H_
