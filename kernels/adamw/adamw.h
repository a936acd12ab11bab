// adamw: one AdamW update with decoupled weight decay and bias correction (arXiv:1711.05101), on
// fp32 master weights.
//
//   m <- b1 m + (1 - b1) g,   v <- b2 v + (1 - b2) g^2
//   w <- w (1 - lr wd) - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + epsilon)
//
//   AdamWStep<float>(hyper, step, clip, weight, m, v, gradient, pool);
//
// Order of operations. In double, rounded once to C:
//
//   a = 1 - b1,  b = 1 - b2,  decay = 1 - lr wd,  e = epsilon,  s = gradient_scale
//   p = lr / (1 - b1^t),  q = 1 / sqrt(1 - b2^t)      powers by repeated squaring, lowest bit first
//
// then for each element in C, each operation rounded once:
//
//   g = gradient * s                    no multiply where gradient_scale is 1
//   m = fma(a, g - m, m)
//   v = fma(b, fma(g, g, -v), v)        never negative: fma(g, g, -v) >= -v
//   w = fma(-p, m / fma(sqrt(v), q, e), w * decay)
//
// One pass: gradient, weight, m and v are read once and the last three written once, 28 bytes an
// element. Same bits for any number of threads and any instruction set. Nothing looks for NaN or
// infinite gradients: the caller's guard skips the whole step.
#ifndef HEADWISE_KERNELS_ADAMW_ADAMW_H_
#define HEADWISE_KERNELS_ADAMW_ADAMW_H_

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/common/thread_pool.h"

namespace headwise {

// Bumped whenever the order of operations, and so some output bit, changes.
inline constexpr int kAdamWContractVersion = 1;

struct AdamWHyperparameters {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.0;
};

// The constants of one step's element, in the letters above, each formed in double and rounded
// once.
template <typename C>
struct AdamWFactors {
  C a, b, decay, epsilon, p, q;
  C gradient_scale;  // 1: none
  // For a GPU, which decides it itself (cuda.h). Not zero: the step writes nothing, as a gradient
  // was not finite.
  std::uint32_t skip = 0;
};
// step < 1 fails an HW_CHECK.
template <typename C>
AdamWFactors<C> MakeAdamWFactors(const AdamWHyperparameters& hyper, std::int64_t step,
                                 double gradient_scale);

// weight, m, v (in and out) and gradient (in): of one length, no two overlapping. step counts from
// 1; before it m and v are zeros. gradient_scale multiplies the gradient first (clipping). C is
// float, or double for tests. step < 1 or unequal lengths fail an HW_CHECK.
template <typename C>
void AdamWStep(const AdamWHyperparameters& hyper, std::int64_t step, double gradient_scale,
               absl::Span<C> weight, absl::Span<C> m, absl::Span<C> v, absl::Span<const C> gradient,
               ThreadPool& pool);

}  // namespace headwise

#endif  // HEADWISE_KERNELS_ADAMW_ADAMW_H_
