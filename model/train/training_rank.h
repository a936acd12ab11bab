// TrainingRank: what a training run does with other ranks: which micro-batches are its own, what is
// summed up when, and the whole tensors of which it holds shares. A run on one rank has none.
//
//   HW_ASSIGN_OR_RETURN(auto rank, TrainingRank::Create(config, layout, communicator));
//   HW_ASSIGN_OR_RETURN(auto run, TrainingRun::Create(config, directory, resume, pool, {},
//                                                     rank.get()));
//   run->Run(...);
//
// Every rank calls everything in the same order. The first rank (0) alone reads and writes the run
// directory, reports and is stopped by signals; the others follow. An error on one rank is every
// rank's.
//
// Micro-batches are shared out over dp in their order, as docs/numerics.md has it: data parallelism
// changes no bit of a run.
#ifndef HEADWISE_MODEL_TRAIN_TRAINING_RANK_H_
#define HEADWISE_MODEL_TRAIN_TRAINING_RANK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/parallel/comm/communicator.h"
#include "core/parallel/comm/tensor_steps.h"
#include "core/parallel/layout_checker.h"
#include "core/proto/config.pb.h"
#include "model/decoder.h"
#include "model/sharding.h"
#include "model/standard_layout.h"
#include "optim/named_tensor.h"
#include "optim/parameter.h"

namespace headwise {

class TrainingRank {
 public:
  // The layout must be one that a type pass accepts. `world` has as many ranks as its mesh and must
  // outlive this. kInvalidArgument: training.micro_batches cannot be shared out over dp, or a
  // micro-batch's tokens over cp.
  static absl::StatusOr<std::unique_ptr<TrainingRank>> Create(const RunConfig& config,
                                                              const ShardedLayout& layout,
                                                              Communicator& world);
  // The same check of a configuration, before there are ranks.
  static absl::Status Check(const RunConfig& config, const Mesh& mesh);

  bool first() const { return ranks_.rank() == 0; }
  Sharding& sharding() { return *sharding_; }
  const MeshRanks& ranks() const { return ranks_; }
  // Data-parallel ranks, and this one's place among them.
  std::int64_t groups() const { return groups_; }
  std::int64_t group() const { return group_; }

  // The group's tokens: this rank's share of them.
  TokenBatch ShareOfGroup(const TokenBatch& group) const;

  // Sums over this rank's tokens, one per batch of its group: the sums over all tokens, of the
  // batches of all groups, those of group 0 first.
  absl::StatusOr<std::vector<double>> SumsOfAllGroups(const std::vector<double>& own) const;
  // What the first rank says.
  absl::StatusOr<bool> FromFirst(bool value) const;
  // OK if every rank is: an error of one is that of all.
  absl::Status Agree(const absl::Status& status) const;

  // Fills shares from whole tensors, which `load` fills: once on every rank. Whole tensors are
  // those of a run on one rank.
  absl::Status LoadParameters(
      const std::vector<Parameter*>& shares,
      const std::function<absl::Status(const std::vector<Parameter*>&)>& load) const;
  absl::Status LoadState(
      const std::vector<NamedTensor>& shares,
      const std::function<absl::Status(const std::vector<NamedTensor>&)>& load) const;
  // The whole of every share; on other ranks than the first, nothing.
  absl::StatusOr<std::vector<NamedTensor>> WholeState(const std::vector<NamedTensor>& shares) const;
  absl::StatusOr<std::vector<Parameter>> WholeParameters(
      const std::vector<Parameter*>& shares) const;

 private:
  TrainingRank(const ShardedLayout& layout, MeshRanks ranks);

  MeshRanks ranks_;
  std::unique_ptr<LayoutChecker> checker_;
  std::unique_ptr<Sharding> sharding_;
  std::int64_t groups_ = 1, group_ = 0;
};

}  // namespace headwise

#endif  // HEADWISE_MODEL_TRAIN_TRAINING_RANK_H_
