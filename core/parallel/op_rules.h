// Rules of operations that rearrange a tensor: views, concatenations, one-hot rows, top-k, rows
// grouped by expert, token order, random numbers. With DeriveIndexed() (index_rule.h) these are all
// that a layer's layouts are derived from; none communicates.
//
// Errors are as in layout_error.h; an undefined operand gives an undefined result. `op` is what
// messages call the operation. A dimension that does not exist, a factor or term that is not there,
// or one of the wrong kind is a programmer's error.
#ifndef HEADWISE_CORE_PARALLEL_OP_RULES_H_
#define HEADWISE_CORE_PARALLEL_OP_RULES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/parallel/layout_error.h"
#include "core/parallel/layout_type.h"

namespace headwise {

// x in another dtype: linear if it widens, else nonlinear (the rounded parts of a sum are not the
// parts of the rounded sum).
absl::StatusOr<LayoutType> Cast(const LayoutType& x, DType dtype);

// --- views: the factors stay as they are, sharded or not ---

// Dimension `dim` becomes two: its leading factors that are called one of `leading` (none may be),
// and the rest. [T, G M D] split at 1 by {"G"}: [T, G, M D].
LayoutType SplitDim(const LayoutType& x, int dim, absl::Span<const absl::string_view> leading);
// Dimensions [first, first + count) become one.
LayoutType MergeDims(const LayoutType& x, int first, int count);

// --- sum factors ---

// The part of x that is `term` of the sum factor that is dimension `dim`. Copies nothing across
// ranks: a sum factor is never sharded.
absl::StatusOr<LayoutType> TakeTerm(absl::string_view op, const LayoutType& x, int dim,
                                    absl::string_view term);
// The inverse: parts, in the order of the terms of `sum`, laid end to end along `dim`. Linear.
// Refused if a part is sharded along `dim`, or if the parts do not join.
absl::StatusOr<LayoutType> ConcatTerms(absl::string_view op, absl::Span<const Operand> parts,
                                       int dim, const Factor& sum);

// --- indexing ---

// [T, V]: row t is 1 at tokens[t]. V is the first dimension of `table`, and is sharded as it is
// there. Where it is sharded, a rank's rows are 0 for ids that it does not hold: refused unless the
// lookup is `masked`.
absl::StatusOr<LayoutType> OneHot(absl::string_view op, const Operand& tokens, const Operand& table,
                                  bool masked = true);
// The best few along the last dimension, which becomes `chosen`. Nonlinear; that dimension whole.
absl::StatusOr<LayoutType> TopK(absl::string_view op, const Operand& x, const Factor& chosen);
// Some of the elements along `dim`, which becomes `kept`. Refused along a sharded dimension: which
// rank holds them depends on the numbers.
absl::StatusOr<LayoutType> TakeRange(absl::string_view op, const Operand& x, int dim,
                                     const Factor& kept);

// --- rows of experts ---

// Of tokens x [T, ...], the copies that are sent to experts, sorted by expert: [E R, ...] where E =
// `experts` is not sharded and R, the rows of an expert, is ragged and sharded as T was. Linear.
// chosen: experts of a token.
absl::StatusOr<LayoutType> GroupRows(absl::string_view op, const Operand& x, const Factor& experts,
                                     std::int64_t chosen);
// The same of one number for each choice: weights [T, k] -> [E R].
absl::StatusOr<LayoutType> GroupChoices(absl::string_view op, const Operand& weights,
                                        const Factor& experts);
// The inverses: rows [E R, ...] back to the tokens of `like` [T, ...], copies added up; and rows
// [E R] back to `like`'s [T, k]. Refused while the rows are sharded by expert, and unless R is
// sharded as like's tokens are.
absl::StatusOr<LayoutType> UngroupRows(absl::string_view op, const Operand& rows,
                                       const Operand& like);
absl::StatusOr<LayoutType> UngroupChoices(absl::string_view op, const Operand& rows,
                                          const Operand& like);

// --- tags ---

// The tokens of x in another order, named `order` ("" is the order of the data); its factor
// `factor` carries the name from then on, and meets tensors of the same order only. Before the
// split: refused where the factor is sharded.
absl::StatusOr<LayoutType> ReorderTokens(absl::string_view op, const Operand& x, int dim,
                                         absl::string_view factor, absl::string_view order);

// Random numbers of x's shape, each rank's stream seeded with its place on the axes `folded`.
// Refused unless these are the axes on which x differs from rank to rank (S and V): on R and I all
// ranks must draw the same numbers, on S and V each its own. On P axes the numbers are R.
absl::StatusOr<LayoutType> RandomLike(absl::string_view op, const Operand& x,
                                      absl::Span<const std::string> folded);

}  // namespace headwise

#endif  // HEADWISE_CORE_PARALLEL_OP_RULES_H_
