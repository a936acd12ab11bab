// The join table: what an operation that does not communicate gives on one mesh axis, from the
// types of its operands there. Ordinary operations never communicate.
//
//   operands on the axis                                      result
//   all R                                                     R
//   all I                                                     I
//   R and V                                                   V
//   R and S (sharded along one and the same dimension)        S, or P if that dimension is summed
//   I with R, V, S or P                                       refused
//   P with V or S                                             refused
//   V with S                                                  refused
//   all P, linear                                             P
//   P with R or a literal scalar, linear                      refused: counted once per rank
//   one P, the others R or literal scalars, multilinear       P; so is P / R
//   two P, multilinear; P as a divisor                        refused
//   P, neither linear nor multilinear                         refused
//
// Literal scalars (a learning rate, an epsilon) are the same everywhere and take the type of
// whatever they meet; only next to a P in a linear operation they count.
#ifndef HEADWISE_CORE_PARALLEL_JOIN_H_
#define HEADWISE_CORE_PARALLEL_JOIN_H_

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/parallel/layout_type.h"

namespace headwise {

// How a result depends on the operands.
enum class OpKind {
  kLinear,       // add, sub, sum over a dimension, copies, views, widening casts
  kMultilinear,  // mul, products of matrices: linear in each operand alone
  kDivision,     // operand 0 / operand 1
  kNonlinear,    // norms, softmax, activations, narrowing casts, top-k
};

// "linear", ...
const char* Name(OpKind kind);

struct JoinResult {
  bool ok = false;
  AxisType type = AxisType::kReplicate;  // where ok
  absl::string_view why = {};            // where not ok: a literal
};

// At least one operand. `scalar`: a literal scalar takes part. Operands that are S must be sharded
// along the same dimension, which the caller has checked.
JoinResult JoinAxis(OpKind kind, absl::Span<const AxisType> operands, bool scalar = false);

}  // namespace headwise

#endif  // HEADWISE_CORE_PARALLEL_JOIN_H_
