// Check: a model's layout on a mesh, checked for every kind of rank.
//
//   HW_ASSIGN_OR_RETURN(const ShardedLayout layout, LayoutOf(request));
//   HW_ASSIGN_OR_RETURN(const CheckedModel checked, Check(request, layout));
//   if (!checked.mistakes.empty()) ...
//
// Nothing is run and nothing allocated: muse_spark over 4096 ranks takes 25 ms and 20 MiB.
#ifndef HEADWISE_TOOLS_TYPECHECK_CHECK_H_
#define HEADWISE_TOOLS_TYPECHECK_CHECK_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/dtype/dtype.h"
#include "core/parallel/layout_checker.h"
#include "core/parallel/layout_plan.h"
#include "core/parallel/mesh.h"
#include "core/proto/config.pb.h"
#include "model/standard_layout.h"
#include "model/type_pass.h"
#include "optim/optimizer_communication.h"

namespace headwise::typecheck {

struct CheckRequest {
  ModelConfig model;  // valid
  Mesh mesh = {};
  bool sequence_parallel = false;
  std::optional<LayoutPlan> plan = std::nullopt;  // in place of the standard one
  std::vector<PlanEntry> edits = {};              // on top of either, in order
  DType compute = DType::kBF16;
  std::int64_t sequences = 0;  // as TypePassOptions
  std::int64_t length = 4096;
  OptimizerConfig optimizer = {};
};

// The plan with its edits, and the mesh with the sub-axes of the standard layout. The error of
// StandardLayout(), where the request has no plan of its own.
absl::StatusOr<ShardedLayout> PlannedLayout(const CheckRequest& request);

// kInvalidArgument: a number of windows or tokens that no pass can have.
absl::Status CheckSizes(const CheckRequest& request);

struct CheckedModel {
  std::unique_ptr<LayoutChecker> checker;  // of rank 0
  struct Kind {
    std::int64_t rank = 0;  // the first of them
    TypePassReport pass;
  };
  std::vector<Kind> kinds;
  std::vector<LayoutMistake> mistakes;  // of rank 0; then those that other kinds add
  double seconds = 0;
};

// kInvalidArgument as Decoder::Create().
absl::StatusOr<CheckedModel> Check(const CheckRequest& request, const ShardedLayout& layout);

// What the optimizer sends and keeps on rank 0, of a layout that was accepted. Errors as
// AccountOptimizer(): not every layout that is right is one that the optimizer runs on.
absl::StatusOr<OptimizerAccount> CheckOptimizer(const CheckRequest& request,
                                                const ShardedLayout& layout);

// kInvalidArgument names the first edit, or entry of a plan of one's own, that is of nothing in the
// model, and the nearest name that there is. What a standard plan has for models of other parts may
// stay.
absl::Status CheckEditsApply(const CheckRequest& request, const LayoutChecker& checker);

}  // namespace headwise::typecheck

#endif  // HEADWISE_TOOLS_TYPECHECK_CHECK_H_
