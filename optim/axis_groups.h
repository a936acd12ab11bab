// AxisGroups: the groups of ranks that differ on some mesh axes only, made once each.
//
//   AxisGroups groups(ranks);
//   HW_ASSIGN_OR_RETURN(Communicator * comm, groups.Of(MeshView::kDense, {0, 1}));
//
// A rank's number in a group is its place in Mesh::Group(view, axes, rank), axes ascending. Every
// rank of a group asks for it (nothing is sent).
#ifndef HEADWISE_OPTIM_AXIS_GROUPS_H_
#define HEADWISE_OPTIM_AXIS_GROUPS_H_

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/status_macros.h"
#include "core/parallel/comm/communicator.h"
#include "core/parallel/comm/tensor_steps.h"
#include "core/parallel/mesh.h"

namespace headwise {

class AxisGroups {
 public:
  explicit AxisGroups(const MeshRanks& ranks) : ranks_(&ranks) {}

  const MeshRanks& ranks() const { return *ranks_; }

  // axes: ascending, at least one. Owned by this object or the ranks.
  absl::StatusOr<Communicator*> Of(MeshView view, const std::vector<int>& axes) {
    if (axes.size() == 1) return &ranks_->Axis(view, axes[0]);
    std::unique_ptr<Communicator>& group = groups_[{view, axes}];
    if (group == nullptr) {
      HW_ASSIGN_OR_RETURN(
          group, ranks_->world().Subgroup(ranks_->mesh().Group(view, axes, ranks_->rank())));
    }
    return group.get();
  }

 private:
  const MeshRanks* ranks_;  // not owned
  std::map<std::pair<MeshView, std::vector<int>>, std::unique_ptr<Communicator>> groups_;
};

}  // namespace headwise

#endif  // HEADWISE_OPTIM_AXIS_GROUPS_H_
