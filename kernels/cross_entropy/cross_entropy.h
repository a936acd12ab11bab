// cross_entropy: the loss of next-token prediction, with a multiplier and a soft cap on the logits,
// and its gradient, in one pass over the head's output.
//
//   l = cap * tanh(multiplier * z / cap)      (cap == 0: l = multiplier * z)
//   loss[t] = logsumexp(l[t]) - l[t][target]
//   dz = loss_scale * dloss/dz
//
//   CrossEntropy<BFloat16>({.cap = 20.0}, z, targets, 1.0 / tokens, losses, dz, pool);
//   double mean = SumLosses(losses) / tokens;
//
// T tokens, V vocabulary. Logits are fp32 (double for storage double); the gradient comes out in
// storage T: float, BFloat16 or double, one rounding. Row spans of any stride and alignment, not
// owned.
//
// Order of operations for a row, C = float (or double). In double, rounded once to C:
//
//   cap > 0:   k = multiplier / cap           cap == 0:   k = multiplier
//   g = loss_scale * multiplier
//
// then, each operation rounded once; Exp, Log, Tanh of kernels/common/math.h:
//
//   h = Tanh(z * k), l = cap * h              l = z * k
//   m = max l                                 NaN takes no part here, but makes the sum NaN
//   e = Exp(l - m)
//   s = sum of e: 64 chains; element i is added to chain i mod 64, ascending, from +0; then
//       p[c] + p[c + n], n = 32, 16, 8, 4, 2, 1
//   loss = Log(s) - (l[target] - m)
//   p = e * (1 / s)                           p[target] = p[target] - 1
//   dz = (p * g) * fma(-h, h, 1)              dz = p * g
//
// A row's bits depend on that row alone. A NaN among its logits, or without a cap +infinity, makes
// the row's loss and gradient NaN; without a cap -infinity is a probability of zero.
#ifndef HEADWISE_KERNELS_CROSS_ENTROPY_CROSS_ENTROPY_H_
#define HEADWISE_KERNELS_CROSS_ENTROPY_CROSS_ENTROPY_H_

#include <cstdint>

#include "absl/types/span.h"
#include "core/dtype/dtype.h"
#include "core/tensor/row_span.h"
#include "kernels/common/thread_pool.h"

namespace headwise {

// Bumped whenever the order of operations, and so some output bit, changes.
inline constexpr int kCrossEntropyContractVersion = 1;

struct LogitTransform {
  double multiplier = 1.0;
  double cap = 0.0;  // 0: none; never negative
};

inline constexpr std::int32_t kIgnoredTarget = -1;

// z (in) [T, V], the head's raw output; targets (in) [T], in [0, V) or kIgnoredTarget (loss and
// gradient are +0). losses (out) [T] in natural logarithms, not scaled; dz (out) [T, V], or
// data == nullptr for the loss alone; dz may be z itself. A target out of range fails an HW_CHECK
// that names it and its index, as do shapes that do not agree.
template <typename T>
void CrossEntropy(const LogitTransform& op, RowSpan<const Compute<T>> z,
                  absl::Span<const std::int32_t> targets, double loss_scale,
                  absl::Span<Compute<T>> losses, RowSpan<T> dz, ThreadPool& pool);

// The transform alone, for sampling: logits (out) [T, V] = l, the bits of the loss's l; may be z
// itself.
void TransformLogits(const LogitTransform& op, RowSpan<const float> z, RowSpan<float> logits,
                     ThreadPool& pool);

// sum(losses) by an adjacent-pair tree in double (kernels/common/reductions.h): independent of
// threads.
double SumLosses(absl::Span<const float> losses);

}  // namespace headwise

#endif  // HEADWISE_KERNELS_CROSS_ENTROPY_CROSS_ENTROPY_H_
