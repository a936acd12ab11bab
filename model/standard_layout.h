// StandardLayout: how a model is sharded over a mesh unless somebody says otherwise, as a plan
// (core/parallel/layout_plan.h).
//
//   HW_ASSIGN_OR_RETURN(const Mesh mesh, Mesh::Parse("dp=4,cp=2,tp=8,ep=32"));
//   HW_ASSIGN_OR_RETURN(const ShardedLayout layout, StandardLayout(config, mesh, {}));
//   LayoutChecker checker(layout.mesh, layout.plan);
//
// Axes: dp windows of tokens, cp the tokens of a window, tp kv groups, hidden widths and the
// vocabulary. Between tp's products the residual stream is I on tp, or with sequence parallelism its
// tokens are S on tp. Keys and values are gathered over cp. With ep > 1 experts are S on ep and rows
// are exchanged; with ep = 1 an expert is S on tp along its hidden width.
//
// Where tp is a multiple of the number of kv groups, kv groups are replicated: tp is cut into
// (tp_kv, tp_rep), and what a group's ranks share out is its query heads.
//
// docs/sharded_layouts.md explains it; the checker, and not this file, says whether it is right.
#ifndef HEADWISE_MODEL_STANDARD_LAYOUT_H_
#define HEADWISE_MODEL_STANDARD_LAYOUT_H_

#include "absl/status/statusor.h"
#include "core/parallel/layout_plan.h"
#include "core/parallel/mesh.h"
#include "core/proto/config.pb.h"

namespace headwise {

struct LayoutOptions {
  bool sequence_parallel = false;
};

struct ShardedLayout {
  Mesh mesh;  // with sub-axes where the plan has them
  LayoutPlan plan;
};

// kInvalidArgument: tp neither divides the kv groups nor is a multiple of them by a number that
// divides the query heads of a group; the message says which tp would do. Other sizes that do not
// divide are for the checker to find.
absl::StatusOr<ShardedLayout> StandardLayout(const ModelConfig& config, const Mesh& mesh,
                                             const LayoutOptions& options);

}  // namespace headwise

#endif  // HEADWISE_MODEL_STANDARD_LAYOUT_H_
