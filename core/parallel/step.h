// Step: one collective or conversion, the only operations that change the type of a tensor on a
// mesh axis. A step is data: plans hold lists of them (core/parallel/layout_plan.h).
//
//   step            from -> to               backward, from the gradient's type
//   all_reduce      P -> R                   all_reduce P -> R
//   all_reduce      P -> I                   convert I -> R: nothing happens
//   all_gather      S -> R                   reduce_scatter P -> S
//   all_gather      S -> I                   convert I -> S: the local slice
//   reduce_scatter  P -> S                   all_gather S -> R
//   all_to_all      S(i) -> S(j)             all_to_all S(j) -> S(i)
//   convert         I -> R, no data moves    all_reduce P -> I
//   convert         R -> S, the local slice  convert S -> P: zeros elsewhere
//   convert         I -> S, the local slice  all_gather S -> I
//   convert         R -> P, rank 0 keeps it  convert R -> P
//   convert         S -> P, zeros elsewhere  convert R -> S
//   reinterpret     V -> P, no data moves    reinterpret R -> V, which BackwardOf() alone makes
//   reinterpret_mesh  dense <-> expert view  the inverse; no data moves
//
// Nothing else is possible. A P becomes a value by a reduction only; a V never becomes R or I
// because somebody says so; and an R never becomes a V, from which a P could be made that is the
// value once per rank. Only the innermost axis of a dimension may be gathered, scattered,
// sliced or exchanged, and a new axis becomes the innermost. A step on an axis with sub-axes goes
// over all of them in order (where it undoes shares: in reverse).
//
// Rows of experts (FactorKind::kRagged), whose number on a rank depends on the tokens, are neither
// cut nor joined: the one step that shards such a tensor otherwise is the all_to_all between the
// rows and the dimension before them, the experts.
//
// reinterpret_mesh: the axes of both views fall into the shortest groups that cover the same ranks,
// and on each group the type must be uniform: one type on all of its axes, and if it is S, along
// one factor, consecutively, in the order of the mesh.
//
//   HW_ASSIGN_OR_RETURN(const Step step, Step::Parse("reduce_scatter@tp -> S(0)"));
//   HW_ASSIGN_OR_RETURN(const LayoutType y, Apply(step, x));
//   HW_ASSIGN_OR_RETURN(const LayoutType dx, Apply(BackwardOf(step, x), dy));
#ifndef HEADWISE_CORE_PARALLEL_STEP_H_
#define HEADWISE_CORE_PARALLEL_STEP_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/dtype/dtype.h"
#include "core/parallel/layout_type.h"

namespace headwise {

enum class StepKind {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kConvert,
  kReinterpret,
  kReinterpretMesh,
};

// "all_reduce", ...
const char* Name(StepKind kind);

struct Step {
  StepKind kind = StepKind::kConvert;
  std::string axis = {};                 // not of kReinterpretMesh
  AxisType to = AxisType::kReplicate;    // not of kReinterpretMesh
  int dim = 0;                           // of to == kShard
  std::vector<std::int64_t> sizes = {};  // of to == kShard: shares that are not equal
  MeshView view = MeshView::kDense;      // of kReinterpretMesh: the view to go to
  // Of kReinterpret to V: the backward of V -> P, which has no text.
  bool of_backward = false;
  // In what dtype a reduction adds: the step, or its backward where that is the one that reduces.
  // A tensor whose dtype is narrower than F32 needs it said.
  std::optional<DType> reduce_in = {};

  // "all_gather@tp -> R", "reduce_scatter(F32)@tp -> S(0)", "reinterpret_mesh -> expert".
  // kInvalidArgument if it does not read.
  static absl::StatusOr<Step> Parse(absl::string_view text);
  std::string ToString() const;
  friend bool operator==(const Step&, const Step&) = default;
};

// The type after the step. kFailedPrecondition: not a row of the table, or not the innermost axis;
// kInvalidArgument: a share that does not divide; kNotFound: no such axis. On an axis of size 1
// nothing happens.
absl::StatusOr<LayoutType> Apply(const Step& step, const LayoutType& x);

// The axes of x's view that a step goes over, in its order: those that its axis stands for, outermost
// first; the innermost first where shares are undone. Not of kReinterpretMesh. kNotFound as Apply().
absl::StatusOr<std::vector<int>> AxesOf(const Step& step, const LayoutType& x);

// What the gradient of the step's result goes through to become that of its operand `x`. The step
// must be possible on x.
Step BackwardOf(const Step& step, const LayoutType& x);

// Bytes that each rank sends, by the cheapest algorithm for large messages: (n-1)/n of the tensor
// to scatter or exchange, n-1 times the share to gather, both for an all_reduce. Of rank 0 where
// ranks differ. 0 for steps that move no data. The step must be possible on x.
std::int64_t BytesSent(const Step& step, const LayoutType& x);

}  // namespace headwise

#endif  // HEADWISE_CORE_PARALLEL_STEP_H_
