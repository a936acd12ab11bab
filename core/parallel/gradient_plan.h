// GradientPlan: what happens to every parameter's gradient between the backward pass and the
// optimizer.
//
// The gradient of a parameter that is R on an axis is P there: it must be reduced on that axis,
// exactly once. On axes where it is I or S nothing is to be done, and doing something would
// multiply it by the number of ranks or mix shares. The optimizer never sees a P.
//
//   HW_ASSIGN_OR_RETURN(const std::vector<Step> steps, DeriveReduction(gradient));
//   // {"all_reduce@dp -> R", "all_reduce@tp -> R"} for a norm's weight under sequence parallelism
//   HW_RETURN_IF_ERROR(CheckReduction("final_norm", gradient, steps).status());
//
// With ZeRO a rank keeps the optimizer's state for a share of each parameter: the reduction ends in
// reduce_scatter over that axis, and the new weights are gathered afterwards.
//
// Axes are reduced one after another, in the order of the mesh, and counted so; bits as docs/numerics.md,
// section 11. Gradients are F32 or F64 here, so their reductions need not name a dtype.
#ifndef HEADWISE_CORE_PARALLEL_GRADIENT_PLAN_H_
#define HEADWISE_CORE_PARALLEL_GRADIENT_PLAN_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/parallel/layout_type.h"
#include "core/parallel/step.h"

namespace headwise {

// The reduction that a gradient needs: all_reduce to R on every axis where it is P.
// kFailedPrecondition if it is V somewhere: nothing says what its sum is.
absl::StatusOr<std::vector<Step>> DeriveReduction(const LayoutType& gradient);

// The gradient after `steps`. kFailedPrecondition, naming the parameter and the axis: a step that
// is impossible (twice reduced, reduced where it is I, R or S), or an axis where it is still P.
absl::StatusOr<LayoutType> CheckReduction(absl::string_view parameter, const LayoutType& gradient,
                                          absl::Span<const Step> steps);

// The square of a gradient's norm on one rank, as a scalar: P on the axes that shard the gradient
// or on which it varies (each rank adds its part), I or R where every rank has it all (it counts
// once). kFailedPrecondition for a P: a square is not linear. The sum of all parameters' squares
// then is all_reduced over the axes on which any is P; parameters of different types are summed
// apart, which is what NormGroups() says.
absl::StatusOr<LayoutType> SquaredNorm(const LayoutType& gradient);

// One parameter as a plan lists it.
struct PlannedGradient {
  std::string parameter;
  LayoutType gradient;          // as the backward leaves it
  std::vector<Step> steps;      // its reduction
  LayoutType reduced;           // what the optimizer sees
  std::int64_t bytes_sent = 0;  // by each rank
};

// All gradients of a model, in the order of its parameters.
class GradientPlan {
 public:
  // kFailedPrecondition as CheckReduction; also for a parameter that comes twice.
  absl::Status Add(absl::string_view parameter, const LayoutType& gradient,
                   absl::Span<const Step> steps);

  // Without a check, and `reduced` undefined (LayoutChecker::set_relaxed).
  void AddRelaxed(absl::string_view parameter, const LayoutType& gradient,
                  absl::Span<const Step> steps);

  const std::vector<PlannedGradient>& gradients() const { return gradients_; }
  // The axes over which squared norms are summed, by parameter: parameters with equal types form a
  // group whose squares are added on each rank and all_reduced together. "tp: 12 parameters".
  std::string NormGroups() const;
  // One line per parameter: name, gradient, steps, bytes.
  std::string ToString() const;

 private:
  std::vector<PlannedGradient> gradients_;
  std::set<std::string> names_;
};

}  // namespace headwise

#endif  // HEADWISE_CORE_PARALLEL_GRADIENT_PLAN_H_
