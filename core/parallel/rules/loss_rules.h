// Layout rules of the loss: cross-entropy over logits that may be sharded along the vocabulary, the
// sum over tokens, and what may be handed to a backward pass. Conventions as in layer_rules.h.
//
// The cross-entropy of a sharded vocabulary is one operation with two small reductions inside (the
// sum of exponentials and the target's logit, [T] each, P -> I); its backward has none. Labels must
// be I where the vocabulary is sharded: they and the losses then are one computation. A maximum is
// subtracted first, which changes no type.
#ifndef HEADWISE_CORE_PARALLEL_RULES_LOSS_RULES_H_
#define HEADWISE_CORE_PARALLEL_RULES_LOSS_RULES_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/dtype/dtype.h"
#include "core/parallel/layout_type.h"

namespace headwise::rules {

// losses [T] from logits z [T, V] and targets [T] (integers).
absl::StatusOr<LayoutType> CrossEntropy(const LayoutType& z, const LayoutType& targets,
                                        DType dtype);
// dz [T, V]: (softmax(z) - onehot) scale, where scale is typed (Scale() of a layer) or, as null, a
// literal.
absl::StatusOr<LayoutType> CrossEntropyBackward(const LayoutType& z, const LayoutType& targets,
                                                const LayoutType* scale, DType dtype);
// The sum over tokens: a scalar.
absl::StatusOr<LayoutType> SumLosses(const LayoutType& losses);

// A loss may be differentiated if it counts once: I or P on every axis. R would be differentiated
// once per rank, V and S are not one number. kFailedPrecondition names the axis.
absl::Status CheckLoss(const LayoutType& loss);

}  // namespace headwise::rules

#endif  // HEADWISE_CORE_PARALLEL_RULES_LOSS_RULES_H_
