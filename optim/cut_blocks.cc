#include "optim/cut_blocks.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "core/base/check.h"

namespace headwise {
namespace {

Interval Intersect(const Interval& a, const Interval& b) {
  const std::int64_t begin = std::max(a.begin, b.begin), end = std::min(a.end(), b.end());
  return {begin, std::max<std::int64_t>(0, end - begin)};
}

// What the ranks that differ from `rank` on `axes` have of a dimension between them.
Interval UnionOf(const ParameterShare& share, ParameterDim dim, const std::vector<int>& axes,
                 std::int64_t rank) {
  Interval all = share.Of(rank)[dim];
  for (const std::int64_t other : share.mesh().Group(share.view(), axes, rank)) {
    const Interval part = share.Of(other)[dim];
    const std::int64_t end = std::max(all.end(), part.end());
    all.begin = std::min(all.begin, part.begin);
    all.size = end - all.begin;
  }
  return all;
}

bool IsBatch(const ParameterShare& share) { return share.extent(kBatch) > 1; }

ParameterDim BlockDim(const HeadBlocks& blocks) {
  return blocks.axis() == BlockAxis::kRows ? kRows : kColumns;
}

// Whether each block lies in one of the intervals that the coarsest `count` axes of the dimension
// cut it into, all equally long.
bool StaysWhole(const HeadBlocks& blocks, std::int64_t interval) {
  for (const HeadBlock& block : blocks.blocks()) {
    const std::int64_t at = block.ranges[0].begin / interval;
    for (const IndexRange& range : block.ranges) {
      if (range.begin / interval != at || (range.begin + range.size - 1) / interval != at) {
        return false;
      }
    }
  }
  return true;
}

// The axes that cut blocks of the parameter, ascending.
std::vector<int> CuttingAxes(const BlockedParameter& p) {
  const ParameterShare& share = *p.share;
  std::vector<int> axes;
  for (const ParameterDim dim : {kRows, kColumns}) {
    std::vector<int> of_dim = share.AxesOf(dim);
    if (!IsBatch(share) && dim == BlockDim(*p.blocks)) {
      // The coarsest axes may leave every block whole.
      std::int64_t interval = share.extent(dim);
      while (!of_dim.empty()) {
        interval /= share.mesh().Axes(share.view())[static_cast<std::size_t>(of_dim[0])].size;
        if (!StaysWhole(*p.blocks, interval)) break;
        of_dim.erase(of_dim.begin());
      }
    }
    axes.insert(axes.end(), of_dim.begin(), of_dim.end());
  }
  std::sort(axes.begin(), axes.end());
  return axes;
}

// Blocks that lie within [begin, end) of their dimension, counted from its begin.
HeadBlocks BlocksWithin(const HeadBlocks& whole, const Interval& part) {
  std::vector<HeadBlock> blocks;
  for (HeadBlock block : whole.blocks()) {
    if (Intersect({block.ranges[0].begin, block.ranges[0].size}, part).size == 0) continue;
    for (IndexRange& range : block.ranges) range.begin -= part.begin;
    blocks.push_back(std::move(block));
  }
  absl::StatusOr<HeadBlocks> result =
      HeadBlocks::Create(part.size, std::move(blocks), whole.axis());
  HW_CHECK(result.ok()) << result.status();
  return *std::move(result);
}

HeadBlocks LocalBlocks(const BlockedParameter& p, std::int64_t rank) {
  if (p.share->Axes().empty()) return *p.blocks;
  const ShareBox box = p.share->Of(rank);
  if (!IsBatch(*p.share)) return BlocksWithin(*p.blocks, box[BlockDim(*p.blocks)]);
  // Matrices of a batch are whole here, or they would be cut.
  const std::int64_t rows = p.share->extent(kRows);
  return BlocksWithin(*p.blocks, {box[kBatch].begin * rows, box[kBatch].size * rows});
}

// The pieces of matrix `matrix` of a batch that lies in `box`.
std::vector<BlockPiece> PiecesOfMatrix(const ShareBox& box, std::int64_t matrix) {
  return {{.row = box[kRows].begin,
           .column = box[kColumns].begin,
           .share_row = (matrix - box[kBatch].begin) * box[kRows].size,
           .share_column = 0,
           .rows = box[kRows].size,
           .columns = box[kColumns].size}};
}

std::vector<BlockPiece> PiecesOfBlock(const ShareBox& box, const HeadBlock& block, BlockAxis axis) {
  std::vector<BlockPiece> pieces;
  std::int64_t at = 0;  // in the block
  for (const IndexRange& range : block.ranges) {
    const ParameterDim dim = axis == BlockAxis::kRows ? kRows : kColumns;
    const Interval here = Intersect({range.begin, range.size}, box[dim]);
    const std::int64_t in_block = at + here.begin - range.begin;
    const std::int64_t in_share = here.begin - box[dim].begin;
    at += range.size;
    if (here.size == 0) continue;
    if (dim == kRows) {
      pieces.push_back({.row = in_block,
                        .column = box[kColumns].begin,
                        .share_row = in_share,
                        .rows = here.size,
                        .columns = box[kColumns].size});
    } else {
      pieces.push_back({.row = box[kRows].begin,
                        .column = in_block,
                        .share_column = in_share,
                        .rows = box[kRows].size,
                        .columns = here.size});
    }
  }
  return pieces;
}

// The blocks of a parameter that this group shares, in stored order.
void AppendBlocks(const BlockedParameter& p, std::size_t index, std::int64_t rank,
                  CutGroup& group) {
  const ParameterShare& share = *p.share;
  std::vector<ShareBox> boxes;
  for (const std::int64_t member : group.members) boxes.push_back(share.Of(member));
  if (IsBatch(share)) {
    const Interval batch = share.Of(rank)[kBatch];
    for (std::int64_t matrix = batch.begin; matrix < batch.end(); ++matrix) {
      CutBlock& cut = group.blocks.emplace_back();
      cut.parameter = index;
      cut.rows = share.extent(kRows);
      cut.columns = share.extent(kColumns);
      for (const ShareBox& box : boxes) cut.pieces.push_back(PiecesOfMatrix(box, matrix));
    }
    return;
  }
  const ParameterDim dim = BlockDim(*p.blocks);
  const Interval scope = UnionOf(share, dim, group.axes, rank);
  for (const HeadBlock& block : p.blocks->blocks()) {
    if (Intersect({block.ranges[0].begin, block.ranges[0].size}, scope).size == 0) continue;
    CutBlock& cut = group.blocks.emplace_back();
    cut.parameter = index;
    cut.rows = dim == kRows ? block.size() : share.extent(kRows);
    cut.columns = dim == kColumns ? block.size() : share.extent(kColumns);
    for (const ShareBox& box : boxes) {
      cut.pieces.push_back(PiecesOfBlock(box, block, p.blocks->axis()));
    }
  }
}

double Cost(const CutBlock& block) {
  return static_cast<double>(block.rows) * static_cast<double>(block.columns) *
         static_cast<double>(std::min(block.rows, block.columns));
}

// Owners and rounds.
void DealOut(absl::Span<const BlockedParameter> parameters, std::int64_t round_elements,
             CutGroup& group) {
  std::stable_sort(group.blocks.begin(), group.blocks.end(),
                   [&](const CutBlock& a, const CutBlock& b) {
                     if (Cost(a) != Cost(b)) return Cost(a) > Cost(b);
                     return parameters[a.parameter].name < parameters[b.parameter].name;
                   });
  const std::size_t members = group.members.size();
  std::size_t next = 0;
  std::vector<std::int64_t> round(members, 0), filled(members, 0);
  for (CutBlock& block : group.blocks) {
    std::vector<std::size_t> holders;
    for (std::size_t m = 0; m < members; ++m) {
      if (block.ElementsOf(m) > 0) holders.push_back(m);
    }
    block.owner = holders.size() == 1 ? holders[0] : next++ % members;
    const std::int64_t size = block.rows * block.columns;
    if (filled[block.owner] > 0 && filled[block.owner] + size > round_elements) {
      ++round[block.owner];
      filled[block.owner] = 0;
    }
    filled[block.owner] += size;
    block.round = round[block.owner];
    group.rounds = std::max(group.rounds, block.round + 1);
  }
  std::stable_sort(group.blocks.begin(), group.blocks.end(),
                   [](const CutBlock& a, const CutBlock& b) {
                     return std::pair(a.round, a.owner) < std::pair(b.round, b.owner);
                   });
}

}  // namespace

std::int64_t CutBlock::ElementsOf(std::size_t member) const {
  std::int64_t elements = 0;
  for (const BlockPiece& piece : pieces[member]) elements += piece.size();
  return elements;
}

CutPlan PlanCutBlocks(absl::Span<const BlockedParameter> parameters, std::int64_t rank,
                      std::int64_t round_elements) {
  CutPlan plan;
  std::map<std::pair<MeshView, std::vector<int>>, CutGroup> groups;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const BlockedParameter& p = parameters[i];
    const std::vector<int> axes = CuttingAxes(p);
    if (axes.empty()) {
      plan.local.push_back(LocalBlocks(p, rank));
      continue;
    }
    plan.local.push_back(std::nullopt);
    CutGroup& group = groups[{p.share->view(), axes}];
    if (group.members.empty()) {
      group.view = p.share->view();
      group.axes = axes;
      group.members = p.share->mesh().Group(group.view, axes, rank);
      group.self = static_cast<std::size_t>(
          std::find(group.members.begin(), group.members.end(), rank) - group.members.begin());
    }
    AppendBlocks(p, i, rank, group);
  }
  for (auto& [key, group] : groups) {
    DealOut(parameters, round_elements, group);
    plan.groups.push_back(std::move(group));
  }
  return plan;
}

}  // namespace headwise
