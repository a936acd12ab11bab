// rms_norm: root-mean-square normalisation of rows (arXiv:1910.07467), three styles.
//
//   r = 1 / sqrt(mean(x^2) + epsilon)
//   kWeighted       y = (x r) w
//   kGainCentered   y = (x r) (centre + w)      w starts at zero
//   kScaleless      y = x r
#ifndef HEADWISE_KERNELS_RMS_NORM_RMS_NORM_H_
#define HEADWISE_KERNELS_RMS_NORM_RMS_NORM_H_

#include "absl/types/span.h"
#include "core/dtype/dtype.h"
#include "core/tensor/row_span.h"
#include "kernels/common/thread_pool.h"

namespace headwise {

enum class RmsNormStyle { kWeighted, kGainCentered, kScaleless };

struct RmsNorm {
  RmsNormStyle style = RmsNormStyle::kWeighted;
  float epsilon = 1e-6f;
  float centre = 1.0f;  // kGainCentered only
};

// x, y [T, N]; weight [N] (empty for kScaleless); y may be x itself. T is float, BFloat16 or double. One rounding, to y.
template <typename T>
void RmsNormForward(const RmsNorm& op, RowSpan<const T> x, absl::Span<const Compute<T>> weight,
                    RowSpan<T> y, ThreadPool& pool);

// r is recomputed from x. dx [T, N] (may be dy itself), dweight [N] overwritten (empty for kScaleless); its sum over tokens:
// tiles of 64 tokens, serial inside, adjacent-pair tree over tiles.
template <typename T>
void RmsNormBackward(const RmsNorm& op, RowSpan<const T> x, absl::Span<const Compute<T>> weight,
                     RowSpan<const T> dy, RowSpan<T> dx, absl::Span<Compute<T>> dweight,
                     ThreadPool& pool);

}  // namespace headwise

#endif  // HEADWISE_KERNELS_RMS_NORM_RMS_NORM_H_
