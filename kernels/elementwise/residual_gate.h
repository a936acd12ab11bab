// residual_gate: adds a branch to the residual stream by a learned gate of each channel.
//
//   w = gate / temperature                                      gate [N]
//   beta = sigmoid(w), alpha = sqrt(max((1 - beta) (1 + beta), epsilon))
//   out = alpha * residual + beta * branch                      [T, N]
//
// So alpha^2 + beta^2 = 1 until the clamp: the sum of two independent signals of equal variance
// keeps that variance. MuseSparkResidualGate of transformers' modeling_muse_spark.py.
//
//   const ResidualGate op = {.temperature = 4};
//   ResidualGateForward<float>(op, residual, branch, gate, residual, pool);  // in place
//
// T tokens, N channels. Storage T is float, BFloat16 or double; the gate and all arithmetic are in
// C, fp32 (double for double), with one rounding to storage. Matrices are row spans of any stride
// and alignment, not owned. Nothing is saved between forward and backward.
//
// Order of operations, each rounded once to C (same bits for any number of threads and any
// instruction set; Sigmoid is that of kernels/common/math.h, Sqrt is correctly rounded). alpha and
// beta are computed once per call:
//
//   w = gate / C(temperature), beta = Sigmoid(w), t = Sigmoid(-w)   t is 1 - beta, uncancelled
//   p = t * (1 + beta)
//   alpha = sqrt(p < C(epsilon) ? C(epsilon) : p)                   NaN stays
//   forward    out = (alpha * residual) + (beta * branch)
//   backward   dresidual = dout * alpha
//              dbranch = dout * beta
//              dalpha = sum over tokens of dout * residual
//              dbeta = sum over tokens of dout * branch
//              d = dbeta where p < C(epsilon), else fma(-dalpha, beta / alpha, dbeta)
//              dgate = (d * (beta * t)) / C(temperature)
//
// where d alpha / d beta is -beta / alpha, and 0 under the clamp. Sums over tokens: tiles of 64, in
// each acc = fma(dout, x, acc) from +0, tokens ascending; then an adjacent-pair tree over tiles
// (kernels/common/reductions.h). A NaN in the gate makes its channel NaN. Shapes that do not agree,
// and options that are not positive, fail an HW_CHECK.
#ifndef HEADWISE_KERNELS_ELEMENTWISE_RESIDUAL_GATE_H_
#define HEADWISE_KERNELS_ELEMENTWISE_RESIDUAL_GATE_H_

#include "absl/types/span.h"
#include "core/dtype/dtype.h"
#include "core/tensor/row_span.h"
#include "kernels/common/thread_pool.h"

namespace headwise {

struct ResidualGate {
  double temperature = 1.0;  // > 0
  double epsilon = 1e-3;     // > 0; alpha is at least its root
};

// residual, branch (in) [T, N]; gate (in) [N]; out (out) [T, N] may be residual or branch.
template <typename T>
void ResidualGateForward(const ResidualGate& op, RowSpan<const T> residual, RowSpan<const T> branch,
                         absl::Span<const Compute<T>> gate, RowSpan<T> out, ThreadPool& pool);

// residual, branch, dout (in) [T, N]; gate (in) [N]. dresidual, dbranch (out) [T, N]: each may be
// any one of the inputs. dgate (out) [N], overwritten; +0 where T = 0 and the gate is not NaN.
template <typename T>
void ResidualGateBackward(const ResidualGate& op, RowSpan<const T> residual,
                          RowSpan<const T> branch, absl::Span<const Compute<T>> gate,
                          RowSpan<const T> dout, RowSpan<T> dresidual, RowSpan<T> dbranch,
                          absl::Span<Compute<T>> dgate, ThreadPool& pool);

}  // namespace headwise

#endif  // HEADWISE_KERNELS_ELEMENTWISE_RESIDUAL_GATE_H_
