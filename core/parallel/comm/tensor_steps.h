// Steps on data: what core/parallel/step.h does to types, done to the tensors of ranks.
//
//   HW_ASSIGN_OR_RETURN(MeshRanks ranks, MeshRanks::Create(mesh, world));
//   Tensor w = LocalShare(w_type, ranks.rank(), global);           // this rank's part
//   HW_ASSIGN_OR_RETURN(const Tensor y, RunStep(ranks, step, x_type, x));
//   // y is what Apply(step, x_type) says.
//
// Tensors are local, contiguous and on Device::kCpu; their shape is the type's LocalShape(), and
// dtypes must be equal to the type's. All ranks of an axis take the same step. Sums have the order
// of core/parallel/comm/communicator.h. A kRagged factor has no fixed share, and x may have any
// number of its elements: steps that cut or join one are refused here; the rows of experts are
// exchanged with tables of counts (row_exchange.h).
#ifndef HEADWISE_CORE_PARALLEL_COMM_TENSOR_STEPS_H_
#define HEADWISE_CORE_PARALLEL_COMM_TENSOR_STEPS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "core/parallel/comm/communicator.h"
#include "core/parallel/layout_type.h"
#include "core/parallel/mesh.h"
#include "core/parallel/step.h"
#include "core/tensor/tensor.h"

namespace headwise {

// This rank's place on a mesh, with the group of ranks of every axis. `world` must outlive it.
class MeshRanks {
 public:
  // kInvalidArgument unless the world has as many ranks as the mesh.
  static absl::StatusOr<MeshRanks> Create(const Mesh& mesh, Communicator& world);

  const Mesh& mesh() const { return mesh_; }
  std::int64_t rank() const { return world_->rank(); }
  Communicator& world() const { return *world_; }
  // The ranks that differ from this one in their place on one axis only, in the order of the axis.
  Communicator& Axis(MeshView view, int axis) const;

 private:
  MeshRanks(const Mesh& mesh, Communicator& world) : mesh_(mesh), world_(&world) {}
  Mesh mesh_;
  Communicator* world_;  // not owned
  std::map<std::pair<MeshView, int>, std::unique_ptr<Communicator>> axes_;
};

// A rank's part of a global tensor: the share of what is sharded, all of what is R or I. Not for
// types with P or V (a programmer's error).
Tensor LocalShare(const LayoutType& type, std::int64_t rank, const Tensor& global);

// The step on this rank's x, whose type is `type`. Errors: Apply()'s, and the communicator's.
absl::StatusOr<Tensor> RunStep(const MeshRanks& ranks, const Step& step, const LayoutType& type,
                               const Tensor& x);

// The global tensor, on every rank: all shares gathered and all sums made. kFailedPrecondition for
// V.
absl::StatusOr<Tensor> Assemble(const MeshRanks& ranks, const LayoutType& type,
                                const Tensor& local);

}  // namespace headwise

#endif  // HEADWISE_CORE_PARALLEL_COMM_TENSOR_STEPS_H_
