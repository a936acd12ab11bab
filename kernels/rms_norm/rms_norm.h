// rms_norm: root-mean-square normalisation of rows (arXiv:1910.07467), in four styles.
//
//   r(x) = 1 / sqrt(mean(x^2) + epsilon)
//   kWeighted       y = (x r(x)) w
//   kGainCentered   y = (x r(x)) (centre + w)               w usually starts at zero
//   kScaleless      y = x r(x)
//   kInputScaled    y = u r(u),  u = x (centre + w)         the gain sets proportions, not the size
//
// kInputScaled is MuseSparkTextInputScaledRMSNorm of transformers' modeling_muse_spark.py, whose u
// is rounded to storage before it is normalised, as here.
//
//   RmsNorm norm{.style = RmsNormStyle::kWeighted, .epsilon = 1e-5f};
//   RmsNormForward<BFloat16>(norm, x, weight, y, pool);
//
// T tokens, N the width normalised over. Storage T is float, BFloat16 or double; the arithmetic is
// in fp32 (double for double), with one rounding to storage. Matrices are row spans with any stride
// and alignment, not owned; rows may not overlap. Nothing is saved between forward and backward:
// the backward recomputes r.
//
// Order of operations, each rounded once (same bits for any number of threads and any instruction
// set; a row's bits depend on that row alone):
//
//   Sum over a row: 64 chains; element i belongs to chain i mod 64; a chain starts from +0 and
//   takes its elements ascending, one fma each; then p[c] + p[c + h], h = 32, 16, 8, 4, 2, 1.
//
//   forward    u = x                              kInputScaled: u = x * w', rounded to storage
//              v = S(u, u) / N + epsilon
//              r = float(1 / sqrt(double(v)))     the correctly rounded reciprocal square root
//              y = (u * r) * w'                   w' = w, or centre + w; y = u * r for kScaleless
//                                                 and kInputScaled
//   backward   uh = u * r
//              h = dy * w'                        h = dy for kScaleless and kInputScaled
//              c = S(h, uh) / N
//              du = r * fma(-uh, c, h)
//              dx = du                            kInputScaled: dx = du * w'
//              dw: tiles of 64 tokens, in each acc = fma(dy, uh, acc) from +0, tokens ascending
//              (kInputScaled: acc = fma(du, x, acc)); then an adjacent-pair tree over tiles
//              (kernels/common/reductions.h)
//
// The rounding of u passes gradients as they are; du is not rounded to storage. A row of zeros
// gives zeros (r = 1 / sqrt(epsilon)); with an infinity in u, r is 0 and 0 * infinity makes that
// element NaN; a NaN makes the row NaN. Shapes that do not agree fail an HW_CHECK.
#ifndef HEADWISE_KERNELS_RMS_NORM_RMS_NORM_H_
#define HEADWISE_KERNELS_RMS_NORM_RMS_NORM_H_

#include "absl/types/span.h"
#include "core/dtype/dtype.h"
#include "core/tensor/row_span.h"
#include "kernels/common/thread_pool.h"

namespace headwise {

// Bumped whenever the order of operations, and so some output bit, changes.
inline constexpr int kRmsNormContractVersion = 1;

enum class RmsNormStyle { kWeighted, kGainCentered, kScaleless, kInputScaled };

struct RmsNorm {
  RmsNormStyle style = RmsNormStyle::kWeighted;
  float epsilon = 1e-6f;
  float centre = 1.0f;  // kGainCentered and kInputScaled
};

// x (in), y (out) [T, N], y may be x itself; weight (in) [N], empty for kScaleless.
template <typename T>
void RmsNormForward(const RmsNorm& op, RowSpan<const T> x, absl::Span<const Compute<T>> weight,
                    RowSpan<T> y, ThreadPool& pool);

// x, dy (in) [T, N]; weight (in) [N], empty for kScaleless. dx (out) [T, N] may be dy itself, not
// x; dweight (out) [N], overwritten, empty for kScaleless; exact +0 where T = 0.
template <typename T>
void RmsNormBackward(const RmsNorm& op, RowSpan<const T> x, absl::Span<const Compute<T>> weight,
                     RowSpan<const T> dy, RowSpan<T> dx, absl::Span<Compute<T>> dweight,
                     ThreadPool& pool);

}  // namespace headwise

#endif  // HEADWISE_KERNELS_RMS_NORM_RMS_NORM_H_
