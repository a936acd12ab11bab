#include "core/parallel/rules/loss_rules.h"

#include <string>

#include "absl/strings/string_view.h"
#include "core/base/status_macros.h"
#include "core/parallel/index_rule.h"
#include "core/parallel/op_rules.h"
#include "core/parallel/step.h"

namespace headwise::rules {
namespace {

std::string AxisName(const LayoutType& x, int axis) {
  return x.mesh().Axes(x.view())[static_cast<std::size_t>(axis)].name;
}

// The mesh axes that shard the vocabulary.
std::vector<int> VocabularyAxes(const LayoutType& z) {
  return z.defined() ? z.AxesOf(1) : std::vector<int>();
}

// x on the vocabulary's axes taken through a step: the reductions and conversions inside of the
// operation.
absl::StatusOr<LayoutType> OnVocabularyAxes(const LayoutType& z, StepKind kind, AxisType to,
                                            LayoutType x) {
  for (const int axis : VocabularyAxes(z)) {
    const Step step = {.kind = kind, .axis = AxisName(z, axis), .to = to, .reduce_in = DType::kF32};
    HW_ASSIGN_OR_RETURN(x, Apply(step, x));
  }
  return x;
}

absl::Status CheckTargets(absl::string_view op, const LayoutType& z, const LayoutType& targets) {
  if (!targets.defined()) return absl::OkStatus();
  for (const int axis : VocabularyAxes(z)) {
    if (targets.axis_type(axis) == AxisType::kInvariant) continue;
    return LayoutError(op, AxisName(z, axis), {{"logits", z}, {"targets", targets}},
                       "where the vocabulary is sharded, all its ranks compute the one loss of a "
                       "token together, so the targets must be I");
  }
  return absl::OkStatus();
}

// Masks of the targets, [T, V].
absl::StatusOr<LayoutType> Targets(absl::string_view op, const LayoutType& z,
                                   const LayoutType& targets) {
  // Integers have no gradient, so nothing is lost by using an I as R.
  HW_ASSIGN_OR_RETURN(const LayoutType ids,
                      OnVocabularyAxes(z, StepKind::kConvert, AxisType::kReplicate, targets));
  return DeriveIndexed({.op = op, .letters = "t,tv->tv", .kind = OpKind::kNonlinear},
                       {{"targets", ids}, {"logits", z}});
}

}  // namespace

absl::StatusOr<LayoutType> CrossEntropy(const LayoutType& z, const LayoutType& targets,
                                        DType dtype) {
  constexpr absl::string_view kOp = "cross_entropy";
  HW_RETURN_IF_ERROR(CheckTargets(kOp, z, targets));
  HW_ASSIGN_OR_RETURN(const LayoutType e,
                      DeriveElementwise(kOp, OpKind::kNonlinear, {{"logits", z}}));
  HW_ASSIGN_OR_RETURN(LayoutType sum, DeriveIndexed({.op = kOp, .letters = "tv->t", .dtype = dtype},
                                                    {{"logits", e}}));
  HW_ASSIGN_OR_RETURN(
      sum, OnVocabularyAxes(z, StepKind::kAllReduce, AxisType::kInvariant, std::move(sum)));
  HW_ASSIGN_OR_RETURN(const LayoutType hot, Targets(kOp, z, targets));
  HW_ASSIGN_OR_RETURN(
      LayoutType target,
      DeriveIndexed(
          {.op = kOp, .letters = "tv,tv->t", .kind = OpKind::kMultilinear, .dtype = dtype},
          {{"logits", z}, {"targets", hot}}));
  HW_ASSIGN_OR_RETURN(
      target, OnVocabularyAxes(z, StepKind::kAllReduce, AxisType::kInvariant, std::move(target)));
  // log(sum) - target, 0 where there is no target.
  return DeriveIndexed(
      {.op = kOp, .letters = "t,t,t->t", .kind = OpKind::kNonlinear},
      {{"sum of exponentials", sum}, {"target's logit", target}, {"targets", targets}});
}

absl::StatusOr<LayoutType> CrossEntropyBackward(const LayoutType& z, const LayoutType& targets,
                                                const LayoutType* scale, DType dtype) {
  constexpr absl::string_view kOp = "cross_entropy backward";
  // log(sum of exponentials) as the forward leaves it: used by every rank for its share.
  HW_ASSIGN_OR_RETURN(const LayoutType losses, CrossEntropy(z, targets, DType::kF32));
  HW_ASSIGN_OR_RETURN(const LayoutType lse,
                      OnVocabularyAxes(z, StepKind::kConvert, AxisType::kReplicate, losses));
  HW_ASSIGN_OR_RETURN(const LayoutType hot, Targets(kOp, z, targets));
  HW_ASSIGN_OR_RETURN(
      const LayoutType dz,
      DeriveIndexed(
          {.op = kOp, .letters = "tv,t,tv->tv", .kind = OpKind::kNonlinear, .dtype = dtype},
          {{"logits", z}, {"log_sum_exp", lse}, {"targets", hot}}));
  if (scale == nullptr) return dz;
  HW_ASSIGN_OR_RETURN(const LayoutType factor,
                      OnVocabularyAxes(z, StepKind::kConvert, AxisType::kReplicate, *scale));
  return DeriveIndexed({.op = kOp, .letters = "tv,->tv", .kind = OpKind::kMultilinear},
                       {{"dlogits", dz}, {"scale", factor}});
}

absl::StatusOr<LayoutType> SumLosses(const LayoutType& losses) {
  return DeriveIndexed({.op = "sum of losses", .letters = "t->"}, {{"losses", losses}});
}

absl::Status CheckLoss(const LayoutType& loss) {
  if (!loss.defined()) return absl::OkStatus();
  for (int axis = 0; axis < static_cast<int>(loss.axis_types().size()); ++axis) {
    const AxisType type = loss.axis_type(axis);
    if (type == AxisType::kInvariant || type == AxisType::kPartial) continue;
    return LayoutError("loss", AxisName(loss, axis), {{"loss", loss}},
                       type == AxisType::kReplicate
                           ? "as R every rank has a loss of its own, and each would be "
                             "differentiated: gradients come out multiplied by the number of ranks"
                           : "the ranks have different numbers, which make no one loss: a sum over "
                             "the tokens would be P");
  }
  return absl::OkStatus();
}

}  // namespace headwise::rules
