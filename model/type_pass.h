// TypePass: one forward and backward pass of a model over layouts, without ranks, data and memory.
//
//   LayoutChecker checker(layout.mesh, layout.plan);
//   HW_ASSIGN_OR_RETURN(const TypePassReport report, TypePass(config, {}, checker));
//   if (!checker.status().ok()) ...    // what is wrong with the layout
//
// The pass is the decoder's own (model/decoder.h), on Device::kMeta.
#ifndef HEADWISE_MODEL_TYPE_PASS_H_
#define HEADWISE_MODEL_TYPE_PASS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/dtype/dtype.h"
#include "core/parallel/layout_checker.h"
#include "core/parallel/layout_type.h"
#include "core/proto/config.pb.h"
#include "optim/parameter.h"

namespace headwise {

struct TypePassOptions {
  DType compute = DType::kBF16;
  std::int64_t groups = 0;     // of documents, over all ranks; 0: one per dp rank
  std::int64_t length = 4096;  // tokens of a group
  std::int64_t rank = 0;       // whose shares tensors have
};

struct TypePassReport {
  // In the model's order.
  struct OneParameter {
    std::string name;
    ParameterRole role;
    LayoutType layout;
    std::int64_t bytes = 0;  // of this rank's share
  };
  std::vector<OneParameter> parameters;
  std::int64_t weight_copy_bytes = 0;  // low-precision weights that products read
  std::int64_t activation_bytes = 0;   // the most that was in use at once
};

// kInvalidArgument as Decoder::Create(). Mistakes of the plan are the checker's.
absl::StatusOr<TypePassReport> TypePass(const ModelConfig& config, const TypePassOptions& options,
                                        LayoutChecker& checker);

// One rank of each kind: ranks are of one kind if their shares of every leaf have the same shapes.
// {0} unless a plan has size tables. For after a pass.
std::vector<std::int64_t> RankKinds(const LayoutChecker& checker);

}  // namespace headwise

#endif  // HEADWISE_MODEL_TYPE_PASS_H_
