// The rule from which every operation's layout is derived: operands and result are described by one
// letter per dimension, as in Einstein's notation, and the kind of operation says the rest.
//
//   // y = x W^T: a matrix product, so multilinear; k is summed.
//   DeriveIndexed({.op = "linear", .letters = "tk,nk->tn", .kind = OpKind::kMultilinear},
//                 {{"x", x}, {"weight", w}});
//   // A norm over n: nonlinear, and n may not be sharded.
//   DeriveIndexed({.op = "rms_norm", .letters = "tn,n->tn", .kind = OpKind::kNonlinear,
//                  .whole = "n"}, {{"x", x}, {"weight", w}});
//
// A dimension that stands under one letter must be the same everywhere: factors, sizes, order of
// tokens. Then, axis by axis:
//   * Operands sharded by the axis must be so along one letter; two letters are refused: a rank
//     would see only the pairs of its own shares.
//   * Every operand that has this letter must be sharded alike. R goes with S only where it lacks
//     the letter (or has size 1 there); one-sided sharding is refused.
//   * A sharded letter under `whole` is refused: the operation needs all of it at once.
//   * A sharded letter that the result lacks is summed over: the result is P.
//   * Otherwise the join table says (core/parallel/join.h).
//
// Sharded axes must come in the same order. Nothing here communicates. An undefined operand gives
// an undefined result. Operations of this kind are what custom layers are written with too.
#ifndef HEADWISE_CORE_PARALLEL_INDEX_RULE_H_
#define HEADWISE_CORE_PARALLEL_INDEX_RULE_H_

#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/dtype/dtype.h"
#include "core/parallel/join.h"
#include "core/parallel/layout_error.h"
#include "core/parallel/layout_type.h"

namespace headwise {

struct IndexedOp {
  absl::string_view op;       // what messages call it
  absl::string_view letters;  // "tk,nk->tn"; a letter occurs at most once per tensor
  OpKind kind = OpKind::kLinear;
  // Letters that the operation looks at all at once: of a softmax, norm, mean, maximum. They may be
  // missing in the result; every other missing letter is summed over, which a kNonlinear or
  // kDivision operation cannot do (a programmer's error).
  absl::string_view whole = "";
  bool scalar = false;              // a literal scalar takes part
  std::optional<DType> dtype = {};  // of the result; by default the first operand's
};

// The result's type, or why there is none: kFailedPrecondition as LayoutError() makes it. A letter
// count that does not fit an operand's rank is a programmer's error.
absl::StatusOr<LayoutType> DeriveIndexed(const IndexedOp& op, absl::Span<const Operand> operands);

// All operands have the same dimensions.
absl::StatusOr<LayoutType> DeriveElementwise(absl::string_view op, OpKind kind,
                                             absl::Span<const Operand> operands);

}  // namespace headwise

#endif  // HEADWISE_CORE_PARALLEL_INDEX_RULE_H_
