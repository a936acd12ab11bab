// Layout rules of linear layers, RMS norms, the elementwise operations of a decoder and the
// embedding: forward, and every line of the hand-written backwards.
//
// Each is a composition of primitive rules (core/parallel/index_rule.h, op_rules.h) that computes
// what the kernel computes, so its types are derived and not stated. Operands that are undefined
// give undefined results; an optional operand (bias, weight) is a null pointer where there is none.
// Results have the dtype of the first operand unless one is passed. Errors: layout_error.h.
//
// Shapes are global and factored: x [T, K], weight [N, K], bias [N], table [V, N], tokens [T].
//
//   // dx = dy W, dW = dy^T x, db = sum of dy's rows:
//   HW_ASSIGN_OR_RETURN(const LayoutType y, rules::Linear(x, w, &b));
//   HW_ASSIGN_OR_RETURN(const LayoutType dx, rules::LinearBackwardInput(dy, w));
#ifndef HEADWISE_CORE_PARALLEL_RULES_LAYER_RULES_H_
#define HEADWISE_CORE_PARALLEL_RULES_LAYER_RULES_H_

#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/dtype/dtype.h"
#include "core/parallel/layout_type.h"

namespace headwise::rules {

// --- linear: y = x W^T + bias ---

absl::StatusOr<LayoutType> Linear(const LayoutType& x, const LayoutType& weight,
                                  const LayoutType* bias, std::optional<DType> dtype = {});
absl::StatusOr<LayoutType> LinearBackwardInput(const LayoutType& dy, const LayoutType& weight);
absl::StatusOr<LayoutType> LinearBackwardWeight(const LayoutType& dy, const LayoutType& x,
                                                DType dtype);
absl::StatusOr<LayoutType> LinearBackwardBias(const LayoutType& dy, DType dtype);

// --- linear layers that communicate while they multiply ---
// By their signatures: where a kernel overlaps the two, its types are those of the step and the
// product one after the other, and the overlap is its own affair. On `axis`, of sequence parallelism:

// y = all_gather(x) W^T + bias: x S(T), weight S(N) -> y S(N).
absl::StatusOr<LayoutType> AllGatherLinear(const LayoutType& x, const LayoutType& weight,
                                           const LayoutType* bias, absl::string_view axis);
// dx = reduce_scatter(dy W), its backward; and the forward y = reduce_scatter(x W^T) of a weight that
// is S(K) by LinearReduceScatter: x S(K) -> y S(T). Sums are made in `reduce_in`.
absl::StatusOr<LayoutType> AllGatherLinearBackwardInput(const LayoutType& dy,
                                                        const LayoutType& weight,
                                                        absl::string_view axis, DType reduce_in);
absl::StatusOr<LayoutType> LinearReduceScatter(const LayoutType& x, const LayoutType& weight,
                                               absl::string_view axis, DType reduce_in);

// --- RMS norm over the last dimension, which must be whole ---
// y = x r(x) w, r(x) = 1 / rms(x). x [T, N], or [T, heads, D] for the norm of heads, weight [D].
// Where the weight scales the input instead, the types are the same.

absl::StatusOr<LayoutType> RmsNorm(const LayoutType& x, const LayoutType* weight);
struct NormGradients {
  LayoutType x;
  LayoutType weight;  // undefined without a weight
};
absl::StatusOr<NormGradients> RmsNormBackward(const LayoutType& x, const LayoutType* weight,
                                              const LayoutType& dy, DType weight_dtype);

// --- elementwise ---

// Any function of x, element by element: logits that are multiplied and capped.
absl::StatusOr<LayoutType> Map(const LayoutType& x);
// a + b.
absl::StatusOr<LayoutType> Add(const LayoutType& a, const LayoutType& b);
// x times a number that is typed: 1 / (tokens of the step). Not for literals, which take part in a
// product without a type.
absl::StatusOr<LayoutType> Scale(const LayoutType& x, const LayoutType& number);
// x f(gate): a sigmoid gate, and SwiGLU with x = up.
absl::StatusOr<LayoutType> Gate(const LayoutType& x, const LayoutType& gate);
struct GateGradients {
  LayoutType x, gate;
};
absl::StatusOr<GateGradients> GateBackward(const LayoutType& x, const LayoutType& gate,
                                           const LayoutType& dout);
// alpha(gate) h + beta(gate) branch, gate [N].
absl::StatusOr<LayoutType> GatedResidual(const LayoutType& h, const LayoutType& branch,
                                         const LayoutType& gate);
struct ResidualGradients {
  LayoutType h, branch, gate;
};
absl::StatusOr<ResidualGradients> GatedResidualBackward(const LayoutType& h,
                                                        const LayoutType& branch,
                                                        const LayoutType& gate,
                                                        const LayoutType& dout);

// --- embedding: row tokens[t] of the table ---

// Over a table that is sharded by rows, a masked lookup: P.
absl::StatusOr<LayoutType> Embedding(const LayoutType& tokens, const LayoutType& table, DType dtype,
                                     bool masked = true);
absl::StatusOr<LayoutType> EmbeddingBackward(const LayoutType& tokens, const LayoutType& table,
                                             const LayoutType& dout);

}  // namespace headwise::rules

#endif  // HEADWISE_CORE_PARALLEL_RULES_LAYER_RULES_H_
