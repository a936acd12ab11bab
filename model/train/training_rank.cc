#include "model/train/training_rank.h"

#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/parallel/tensor_layout.h"
#include "model/rank_pass.h"

namespace headwise {
namespace {

// The dense axis of this name, -1 if it has one rank.
int FindAxis(const Mesh& mesh, absl::string_view name) {
  const auto axes = mesh.Find(MeshView::kDense, name);
  return axes.ok() && axes->size() == 1 ? axes->front() : -1;
}

std::int64_t SizeOfAxis(const Mesh& mesh, int axis) {
  return axis < 0 ? 1 : mesh.Axes(MeshView::kDense)[static_cast<std::size_t>(axis)].size;
}

// One rank has the momentum of experts [E, out, in] as [E out, in].
Shape OneRankShape(const NamedTensor& state, Shape whole) {
  if (absl::StartsWith(state.name, "momentum/") && whole.size() == 3) {
    return {whole[0] * whole[1], whole[2]};
  }
  return whole;
}

void CopyShare(const LayoutType& layout, std::int64_t rank, const Tensor& whole,
               const Tensor& share) {
  const Tensor local = LocalShare(layout, rank, whole.View(layout.GlobalShape()));
  std::memcpy(share.raw_data(), local.raw_data(), static_cast<std::size_t>(share.bytes()));
}

}  // namespace

absl::Status TrainingRank::Check(const RunConfig& config, const Mesh& mesh) {
  const std::int64_t groups = SizeOfAxis(mesh, FindAxis(mesh, "dp"));
  const TrainingConfig& t = config.training();
  if (t.micro_batches() % groups != 0) {
    // Micro-batches are a power of two that divides the batch.
    const bool possible = (groups & (groups - 1)) == 0 && t.batch_size() % groups == 0;
    return absl::InvalidArgumentError(absl::StrCat(
        "mesh: dp=", groups, " ranks share out training.micro_batches, found ", t.micro_batches(),
        "; expected a multiple of ", groups,
        possible
            ? absl::StrCat("; try --set training.micro_batches=", groups,
                           " in a new run, or a dp that divides ", t.micro_batches())
            : absl::StrCat("; try a dp that is a power of two and divides training.batch_size = ",
                           t.batch_size())));
  }
  return absl::OkStatus();
}

TrainingRank::TrainingRank(const ShardedLayout& layout, MeshRanks ranks)
    : ranks_(std::move(ranks)),
      checker_(std::make_unique<LayoutChecker>(layout.mesh, layout.plan)),
      sharding_(std::make_unique<Sharding>(*checker_, ranks_)) {
  const int axis = FindAxis(layout.mesh, "dp");
  groups_ = SizeOfAxis(layout.mesh, axis);
  if (axis >= 0) group_ = layout.mesh.Coordinate(MeshView::kDense, axis, ranks_.rank());
}

absl::StatusOr<std::unique_ptr<TrainingRank>> TrainingRank::Create(const RunConfig& config,
                                                                   const ShardedLayout& layout,
                                                                   Communicator& world) {
  HW_RETURN_IF_ERROR(Check(config, layout.mesh));
  HW_ASSIGN_OR_RETURN(MeshRanks ranks, MeshRanks::Create(layout.mesh, world));
  std::unique_ptr<TrainingRank> rank(new TrainingRank(layout, std::move(ranks)));
  const TrainingConfig& t = config.training();
  rank->sharding_->SetTokens(rank->groups_,
                             t.batch_size() / t.micro_batches() * t.sequence_length());
  HW_RETURN_IF_ERROR(rank->checker_->status());
  return rank;
}

TokenBatch TrainingRank::ShareOfGroup(const TokenBatch& group) const {
  return headwise::ShareOfGroup(group, *sharding_);
}

absl::StatusOr<std::vector<double>> TrainingRank::SumsOfAllGroups(
    const std::vector<double>& own) const {
  const int data_axis = FindAxis(ranks_.mesh(), "dp");
  std::vector<double> sums = own;
  const std::vector<int> axes = sharding_->inputs().tokens.AxesOf(0);
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    Communicator& comm = ranks_.Axis(MeshView::kDense, *axis);
    if (*axis != data_axis) {
      HW_RETURN_IF_ERROR(comm.AllReduce(absl::Span<const double>(sums), absl::MakeSpan(sums)));
      continue;
    }
    std::vector<double> all(sums.size() * static_cast<std::size_t>(comm.size()));
    HW_RETURN_IF_ERROR(comm.AllGather(absl::Span<const double>(sums), absl::MakeSpan(all)));
    sums = std::move(all);
  }
  return sums;
}

absl::StatusOr<bool> TrainingRank::FromFirst(bool value) const {
  std::int32_t word = value ? 1 : 0;
  HW_RETURN_IF_ERROR(ranks_.world().Broadcast(0, absl::Span<std::int32_t>(&word, 1)));
  return word != 0;
}

absl::Status TrainingRank::Agree(const absl::Status& status) const {
  return status.ok() ? ranks_.world().Barrier() : ranks_.world().Fail(status);
}

absl::Status TrainingRank::LoadParameters(
    const std::vector<Parameter*>& shares,
    const std::function<absl::Status(const std::vector<Parameter*>&)>& load) const {
  std::vector<Parameter> whole;
  for (const Parameter* share : shares) {
    whole.push_back({.name = share->name,
                     .role = share->role,
                     .value = Tensor::Empty(LayoutOf(share->value).GlobalShape(),
                                            share->value.dtype(), Device::kCpu)});
  }
  std::vector<Parameter*> pointers;
  for (Parameter& parameter : whole) pointers.push_back(&parameter);
  HW_RETURN_IF_ERROR(Agree(load(pointers)));
  for (std::size_t i = 0; i < shares.size(); ++i) {
    CopyShare(LayoutOf(shares[i]->value), ranks_.rank(), whole[i].value, shares[i]->value);
  }
  return absl::OkStatus();
}

absl::Status TrainingRank::LoadState(
    const std::vector<NamedTensor>& shares,
    const std::function<absl::Status(const std::vector<NamedTensor>&)>& load) const {
  std::vector<NamedTensor> whole;
  for (const NamedTensor& share : shares) {
    const LayoutType layout = LayoutOf(share.tensor);
    whole.push_back({share.name, layout.defined()
                                     ? Tensor::Empty(OneRankShape(share, layout.GlobalShape()),
                                                     share.tensor.dtype(), Device::kCpu)
                                     : share.tensor});
  }
  HW_RETURN_IF_ERROR(Agree(load(whole)));
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const LayoutType layout = LayoutOf(shares[i].tensor);
    if (layout.defined()) {
      CopyShare(layout, ranks_.rank(), whole[i].tensor, shares[i].tensor);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<NamedTensor>> TrainingRank::WholeState(
    const std::vector<NamedTensor>& shares) const {
  std::vector<NamedTensor> whole;
  for (const NamedTensor& share : shares) {
    const LayoutType layout = LayoutOf(share.tensor);
    Tensor tensor = share.tensor;
    if (layout.defined()) {
      HW_ASSIGN_OR_RETURN(tensor, Assemble(ranks_, layout, share.tensor));
      tensor = tensor.View(OneRankShape(share, tensor.shape()));
    }
    if (first()) whole.push_back({share.name, std::move(tensor)});
  }
  return whole;
}

absl::StatusOr<std::vector<Parameter>> TrainingRank::WholeParameters(
    const std::vector<Parameter*>& shares) const {
  std::vector<Parameter> whole;
  for (const Parameter* share : shares) {
    HW_ASSIGN_OR_RETURN(Tensor value, Assemble(ranks_, LayoutOf(share->value), share->value));
    if (first()) {
      whole.push_back({.name = share->name, .role = share->role, .value = std::move(value)});
    }
  }
  return whole;
}

}  // namespace headwise
