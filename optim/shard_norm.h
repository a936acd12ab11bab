// ShardNorm: the gradient norm and the guard (kernels/gradient_norm/gradient_norm.h) where ranks hold shares.
//
// Each distinct element counts once, and the bits are those of a single rank, whatever the layouts:
//
//   columns cut (S on the last dimension)   a row's serial sum is passed on from rank to rank, in
//                                           the order of the columns; rows go in as many parts as
//                                           there are ranks, one step behind each other, so that
//                                           all work at once
//   rows or experts cut                     8 bytes per row are gathered, and every rank adds the
//                                           whole tree
//   R and I                                 every rank has all of it; nothing is sent
//
// At the end all ranks compare norm and guard: 16 bytes each. A gradient that is unusable on any
// rank is unusable on all, and replicas that have come apart are an error.
#ifndef HEADWISE_OPTIM_SHARD_NORM_H_
#define HEADWISE_OPTIM_SHARD_NORM_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/parallel/comm/communicator.h"
#include "core/parallel/mesh.h"
#include "kernels/common/thread_pool.h"
#include "kernels/gradient_norm/gradient_norm.h"
#include "kernels/gradient_norm/row_squares.h"
#include "optim/axis_groups.h"
#include "optim/parameter_share.h"

namespace headwise {

// Parameters whose columns the same axes cut in the same order.
struct NormChain {
  MeshView view = MeshView::kDense;
  std::vector<int> axes;             // ascending
  std::vector<std::size_t> members;  // numbers in the group, in the order of the columns
  std::size_t place = 0;             // of this rank among them
  std::vector<std::size_t> parameters;
};

// Parameters that the same axes cut.
struct NormGather {
  MeshView view = MeshView::kDense;
  std::vector<int> axes;              // ascending
  std::vector<std::int64_t> members;  // ranks, ascending
  std::vector<std::size_t> parameters;
};

// What is done for the norm: chains first, then gathers.
struct NormPlan {
  std::vector<NormChain> chains;
  std::vector<NormGather> gathers;
};

// shares: not owned, by parameter.
NormPlan PlanNorm(absl::Span<const ParameterShare* const> shares, std::int64_t rank);

// Rows of a rank's share, and how many sums it gives to a gather: none unless it ends the chain.
std::int64_t RowsHere(const ParameterShare& share, std::int64_t rank);
std::int64_t RowsGiven(const ParameterShare& share, std::int64_t rank);

class ShardNorm {
 public:
  // gradients: of this rank's shares, in any order, the same on every rank. `axes` must outlive it.
  static absl::StatusOr<ShardNorm> Create(std::vector<NamedGradient> gradients,
                                          std::vector<ParameterShare> shares, AxisGroups& axes);

  // The same on every rank. Errors: the communicator's; kDataLoss where ranks that should hold the
  // same gradients find different norms.
  absl::StatusOr<GradientSummary> Summarize(ThreadPool& pool);

 private:
  explicit ShardNorm(AxisGroups& axes) : axes_(&axes) {}
  absl::Status RunChain(const NormChain& chain, absl::Span<RowSquares> rows, ThreadPool& pool);
  // Replaces the sums of the shares' rows by those of the wholes'.
  absl::Status RunGather(const NormGather& gather, absl::Span<RowSquares> rows);
  absl::StatusOr<GradientSummary> Agree(double norm, std::int64_t unusable);

  AxisGroups* axes_;                      // not owned
  std::vector<NamedGradient> gradients_;  // sorted by name
  std::vector<ParameterShare> shares_;    // of the same
  NormPlan plan_;
};

}  // namespace headwise

#endif  // HEADWISE_OPTIM_SHARD_NORM_H_
