// GatheredMuon: Muon for matrices that ranks share (optim/cut_blocks.h says which, and who owns
// what).
//
// A step, for each group of ranks, round by round:
//   1. Every rank moves the momentum of its share on (kernels/muon_step/parts.h) and sends its
//      pieces of u to the blocks' owners: one all_to_all.
//   2. The owners orthogonalise their blocks.
//   3. The pieces of O go back: one all_to_all. Every rank updates its share of the weights; the
//      scale is that of the whole block.
//
// A block is put together in the order of its rows and columns, so the result is that of one rank,
// bit for bit. Memory beside the momentum: the blocks of a round and their pieces, twice.
#ifndef HEADWISE_OPTIM_GATHERED_MUON_H_
#define HEADWISE_OPTIM_GATHERED_MUON_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/parallel/comm/communicator.h"
#include "core/tensor/row_span.h"
#include "core/tensor/tensor.h"
#include "kernels/common/thread_pool.h"
#include "kernels/muon_step/muon_step.h"
#include "optim/axis_groups.h"
#include "optim/cut_blocks.h"
#include "optim/named_tensor.h"

namespace headwise {

// This rank's share of a parameter, as [batch rows, columns]. Not owned.
struct GatheredParameter {
  std::string name;
  RowSpan<float> value;
  RowSpan<const float> gradient;
};

// Owns the momentum of the shares. Not thread-safe; movable.
class GatheredMuon {
 public:
  // `parameters`: as many as the plan was made for; those that are not cut are not touched.
  // `axes` must outlive it. hyper is valid (ValidateMuonHyperparameters). Errors: the
  // communicator's.
  static absl::StatusOr<GatheredMuon> Create(const MuonHyperparameters& hyper,
                                             std::vector<GatheredParameter> parameters,
                                             std::vector<CutGroup> groups, AxisGroups& axes);

  // As Muon::StepUnguarded(), on all ranks together. After an error shares may have been written in
  // part: the run is over.
  absl::Status Step(ThreadPool& pool, double learning_rate_factor, double gradient_scale);

  // "momentum/<name>" [batch rows, columns] of the parameters that are cut, in the order given.
  std::vector<NamedTensor> State() const;

 private:
  GatheredMuon() = default;
  absl::Status Round(const MuonHyperparameters& hyper, const CutGroup& group,
                     absl::Span<const CutBlock> blocks, Communicator& comm, ThreadPool& pool);

  MuonHyperparameters hyper_;
  std::vector<GatheredParameter> parameters_;
  std::vector<Tensor> momentum_;  // by parameter; undefined where it is not cut
  std::vector<CutGroup> groups_;
  std::vector<Communicator*> comms_;  // by group; not owned
};

}  // namespace headwise

#endif  // HEADWISE_OPTIM_GATHERED_MUON_H_
