// cross_entropy: the loss of next-token prediction, with a multiplier and a soft cap on the logits, and its gradient, in one
// pass over the head's output.
//
//   l = cap * tanh(multiplier * z / cap)      (cap == 0: l = multiplier * z)
//   loss[t] = logsumexp(l[t]) - l[t][target]
//   dz = loss_scale * dloss/dz
#ifndef HEADWISE_KERNELS_CROSS_ENTROPY_CROSS_ENTROPY_H_
#define HEADWISE_KERNELS_CROSS_ENTROPY_CROSS_ENTROPY_H_

#include <cstdint>

#include "absl/types/span.h"
#include "core/dtype/dtype.h"
#include "core/tensor/row_span.h"
#include "kernels/common/thread_pool.h"

namespace headwise {

struct LogitTransform {
  double multiplier = 1.0;
  double cap = 0.0;  // 0: none
};

inline constexpr std::int32_t kIgnoredTarget = -1;

// z [T, V] the head's raw output in fp32 (double for double); targets [T] in [0, V) or kIgnoredTarget (loss and gradient are
// +0); losses [T] in natural logarithms; dz [T, V] in the storage type, or data == nullptr for the loss alone.
template <typename T>
void CrossEntropy(const LogitTransform& op, RowSpan<const Compute<T>> z,
                  absl::Span<const std::int32_t> targets, double loss_scale,
                  absl::Span<Compute<T>> losses, RowSpan<T> dz, ThreadPool& pool);

// The transform alone, for sampling: logits [T, V] = l; may be z itself.
void TransformLogits(const LogitTransform& op, RowSpan<const float> z, RowSpan<float> logits,
                     ThreadPool& pool);

// sum(losses) by an adjacent-pair tree in double: independent of threads.
double SumLosses(absl::Span<const float> losses);
double SumLosses(absl::Span<const double> losses);

}  // namespace headwise

#endif  // HEADWISE_KERNELS_CROSS_ENTROPY_CROSS_ENTROPY_H_
