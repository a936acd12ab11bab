// Mutants of a layout: every change of one entry of its plan, for tests of the checker.
//
//   LayoutChecker checker(layout.mesh, layout.plan);
//   TypePass(config, {}, checker);                       // accepted
//   for (const Mutant& mutant : MutantsOf(checker)) {
//     LayoutPlan plan = layout.plan;
//     plan.Apply(mutant.edit);
//     ...                                                // refused, or the same gradients
//   }
#ifndef HEADWISE_MODEL_TEST_MUTANTS_H_
#define HEADWISE_MODEL_TEST_MUTANTS_H_

#include <string>
#include <vector>

#include "core/parallel/layout_checker.h"
#include "core/parallel/layout_plan.h"

namespace headwise {

enum class MutantKind {
  kLeafType,       // a leaf is R, I, V or P where it was another of these
  kLeafUnsharded,  // a leaf is R, I, V or P where it was S
  kLeafSharded,    // a leaf is S along a dimension along which it was not
  kLeafOrder,      // two axes that shard one dimension, in the other order
  kStepDropped,
  kStepReplaced,  // by every other one that the table of core/parallel/step.h knows
  kStepRepeated,
  kStepAdded,          // at a boundary that takes none
  kStepsSwapped,       // two steps that follow each other
  kBackwardForgotten,  // a boundary's backward takes no step
  kReductionSkipped,   // on one axis
  kReductionTwice,     // on one axis
  kReductionAdded,     // on an axis where the gradient is no sum
  kReductionType,      // to I
};

// "leaf type", ...
const char* Name(MutantKind kind);

struct Mutant {
  MutantKind kind;
  PlanEntry edit;
};

// All mutants of the plan of a pass that was accepted: of every entry that the pass asked for,
// whether or not the plan has it. Steps are those of the boundary forward and, where it follows
// from them, backward. Entries of layers are changed in all layers alike.
std::vector<Mutant> MutantsOf(const LayoutChecker& accepted);

}  // namespace headwise

#endif  // HEADWISE_MODEL_TEST_MUTANTS_H_
