#include "optim/gathered_muon.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/types/span.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/heads/head_blocks.h"
#include "kernels/muon_step/parts.h"
#include "kernels/newton_schulz/newton_schulz.h"

namespace headwise {
namespace {

template <typename T>
RowSpan<T> InShare(const RowSpan<T>& share, const BlockPiece& piece) {
  return RowSpan<T>(share.row(piece.share_row) + piece.share_column, piece.rows, piece.columns,
                    share.stride);
}

template <typename T>
RowSpan<T> InBlock(const RowSpan<T>& block, const BlockPiece& piece) {
  return RowSpan<T>(block.row(piece.row) + piece.column, piece.rows, piece.columns, block.stride);
}

void CopyRows(const RowSpan<const float>& from, const RowSpan<float>& to) {
  for (std::int64_t r = 0; r < from.rows; ++r) {
    std::copy_n(from.row(r), from.width, to.row(r));
  }
}

// A piece of a block, packed or to be packed.
struct PackedPiece {
  const CutBlock* block;
  const BlockPiece* piece;
  RowSpan<float> packed;
};

// What one rank exchanges in a round: runs of pieces, one after the other, a run for each member.
struct PieceBuffer {
  std::vector<float> data;
  std::vector<std::int64_t> counts;  // by member
  std::vector<PackedPiece> pieces;

  // Run `other` of `count`: the pieces of `holder(other)` of each block for which wanted(block,
  // other).
  template <typename Holder, typename Wanted>
  PieceBuffer(absl::Span<const CutBlock> blocks, std::size_t members, Holder holder, Wanted wanted)
      : counts(members, 0) {
    std::int64_t total = 0;
    for (std::size_t other = 0; other < members; ++other) {
      for (const CutBlock& block : blocks) {
        if (wanted(block, other)) counts[other] += block.ElementsOf(holder(other));
      }
      total += counts[other];
    }
    data.resize(static_cast<std::size_t>(total));
    float* at = data.data();
    for (std::size_t other = 0; other < members; ++other) {
      for (const CutBlock& block : blocks) {
        if (!wanted(block, other)) continue;
        for (const BlockPiece& piece : block.pieces[holder(other)]) {
          pieces.push_back({&block, &piece, RowSpan<float>(at, piece.rows, piece.columns)});
          at += piece.size();
        }
      }
    }
  }
};

}  // namespace

absl::StatusOr<GatheredMuon> GatheredMuon::Create(const MuonHyperparameters& hyper,
                                                  std::vector<GatheredParameter> parameters,
                                                  std::vector<CutGroup> groups, AxisGroups& axes) {
  GatheredMuon muon;
  muon.hyper_ = hyper;
  muon.parameters_ = std::move(parameters);
  muon.momentum_.resize(muon.parameters_.size());
  muon.groups_ = std::move(groups);
  for (const CutGroup& group : muon.groups_) {
    HW_ASSIGN_OR_RETURN(Communicator * comm, axes.Of(group.view, group.axes));
    HW_CHECK(comm->rank() == static_cast<int>(group.self) &&
             comm->size() == static_cast<int>(group.members.size()));
    muon.comms_.push_back(comm);
    for (const CutBlock& block : group.blocks) {
      Tensor& momentum = muon.momentum_[block.parameter];
      const RowSpan<float>& value = muon.parameters_[block.parameter].value;
      if (momentum.defined()) continue;
      momentum = Tensor::Zeros({value.rows, value.width}, DType::kF32, Device::kCpu);
    }
  }
  return muon;
}

absl::Status GatheredMuon::Step(ThreadPool& pool, double learning_rate_factor,
                                double gradient_scale) {
  MuonHyperparameters hyper = hyper_;
  hyper.learning_rate *= learning_rate_factor;
  hyper.gradient_scale = gradient_scale;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const CutGroup& group = groups_[g];
    auto begin = group.blocks.begin();
    for (std::int64_t round = 0; round < group.rounds; ++round) {
      const auto end = std::find_if(begin, group.blocks.end(),
                                    [&](const CutBlock& block) { return block.round != round; });
      HW_RETURN_IF_ERROR(Round(hyper, group,
                               absl::MakeConstSpan(&*begin, static_cast<std::size_t>(end - begin)),
                               *comms_[g], pool));
      begin = end;
    }
  }
  return absl::OkStatus();
}

absl::Status GatheredMuon::Round(const MuonHyperparameters& hyper, const CutGroup& group,
                                 absl::Span<const CutBlock> blocks, Communicator& comm,
                                 ThreadPool& pool) {
  const std::size_t self = group.self, members = group.members.size();
  const auto me = [&](std::size_t) { return self; };
  const auto it = [](std::size_t other) { return other; };
  // This rank's pieces, by the owner of their block; and all pieces of this rank's blocks.
  PieceBuffer shares(blocks, members, me,
                     [](const CutBlock& block, std::size_t other) { return block.owner == other; });
  PieceBuffer owned(blocks, members, it,
                    [&](const CutBlock& block, std::size_t) { return block.owner == self; });

  pool.ParallelFor(static_cast<std::int64_t>(shares.pieces.size()), [&](std::int64_t i) {
    const PackedPiece& p = shares.pieces[static_cast<std::size_t>(i)];
    const std::size_t parameter = p.block->parameter;
    MuonMomentum(hyper, InShare(momentum_[parameter].Rows<float>(), *p.piece),
                 InShare(parameters_[parameter].gradient, *p.piece), p.packed);
  });
  HW_RETURN_IF_ERROR(
      comm.AllToAll(shares.data, shares.counts, absl::MakeSpan(owned.data), owned.counts));

  std::vector<const CutBlock*> mine;
  std::vector<std::vector<float>> whole;
  std::vector<HeadBlocks> one_block;
  for (const CutBlock& block : blocks) {
    if (block.owner != self) continue;
    mine.push_back(&block);
    whole.emplace_back(static_cast<std::size_t>(block.rows * block.columns));
    one_block.push_back(HeadBlocks::Whole(block.rows));
  }
  const auto whole_of = [&](const CutBlock* block) {
    const auto i =
        static_cast<std::size_t>(std::find(mine.begin(), mine.end(), block) - mine.begin());
    return RowSpan<float>(whole[i].data(), block->rows, block->columns);
  };
  for (const PackedPiece& p : owned.pieces) {
    CopyRows(p.packed, InBlock(whole_of(p.block), *p.piece));
  }
  std::vector<NewtonSchulzProblem> problems;
  for (std::size_t i = 0; i < mine.size(); ++i) {
    const RowSpan<float> matrix = whole_of(mine[i]);
    problems.push_back({.input = matrix, .output = matrix, .blocks = &one_block[i]});
  }
  const absl::Status status = NewtonSchulz(*hyper.coefficients, problems, pool);
  HW_CHECK(status.ok()) << status;  // blocks of floats, and coefficients that Create was given
  for (const PackedPiece& p : owned.pieces) {
    CopyRows(InBlock(whole_of(p.block), *p.piece), p.packed);
  }

  HW_RETURN_IF_ERROR(
      comm.AllToAll(owned.data, owned.counts, absl::MakeSpan(shares.data), shares.counts));
  pool.ParallelFor(static_cast<std::int64_t>(shares.pieces.size()), [&](std::int64_t i) {
    const PackedPiece& p = shares.pieces[static_cast<std::size_t>(i)];
    MuonWrite(hyper, p.block->rows, p.block->columns, p.packed,
              InShare(parameters_[p.block->parameter].value, *p.piece));
  });
  return absl::OkStatus();
}

std::vector<NamedTensor> GatheredMuon::State() const {
  std::vector<NamedTensor> state;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (momentum_[i].defined()) state.push_back({MomentumName(parameters_[i].name), momentum_[i]});
  }
  return state;
}

}  // namespace headwise
