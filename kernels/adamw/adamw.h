// adamw: one AdamW update with decoupled weight decay and bias correction (arXiv:1711.05101), on fp32 master weights.
//
//   m <- b1 m + (1 - b1) g,   v <- b2 v + (1 - b2) g^2
//   w <- w (1 - lr wd) - lr * (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + epsilon)
#ifndef HEADWISE_KERNELS_ADAMW_ADAMW_H_
#define HEADWISE_KERNELS_ADAMW_ADAMW_H_

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/common/thread_pool.h"

namespace headwise {

struct AdamWHyperparameters {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.0;
};

// In place; all spans of one length; step counts from 1. gradient_scale multiplies the gradient first (clipping); 1 means no
// multiply. C is float, or double for tests. Elementwise: same bits for any number of threads.
template <typename C>
void AdamWStep(const AdamWHyperparameters& hyper, std::int64_t step, double gradient_scale,
               absl::Span<C> weight, absl::Span<C> m, absl::Span<C> v, absl::Span<const C> gradient,
               ThreadPool& pool);

}  // namespace headwise

#endif  // HEADWISE_KERNELS_ADAMW_ADAMW_H_
