#include "optim/parameter_share.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status_macros.h"
#include "core/parallel/tensor_layout.h"

namespace headwise {
namespace {

absl::Status Invalid(const Parameter& parameter, const std::string& wrong) {
  return absl::InvalidArgumentError(absl::StrCat("parameter ", parameter.name, ": ", wrong));
}

absl::Status CheckLayout(const Parameter& parameter, const LayoutType& layout, std::int64_t rank) {
  for (int axis = 0; axis < static_cast<int>(layout.axis_types().size()); ++axis) {
    const AxisType type = layout.axis_type(axis);
    if (type != AxisType::kPartial && type != AxisType::kVarying) continue;
    return Invalid(
        parameter,
        absl::StrCat("its value ", layout.ToString(), " is ", Name(type), " on axis ",
                     AxisNames(layout.mesh(), layout.view(), {axis}),
                     ", so that every rank would step something else; declare it R, I or S there"));
  }
  if (!layout.uniform()) {
    return Invalid(parameter, absl::StrCat("the ranks' shares of ", layout.ToString(),
                                           " differ in size; give every rank an equal share"));
  }
  if (layout.rank() > 3 && layout.LocalShape(rank) != layout.GlobalShape()) {
    return Invalid(parameter, absl::StrCat(layout.ToString(),
                                           " has more than three dimensions and is cut; let it be "
                                           "R or I, or view it as [batch, rows, columns]"));
  }
  if (parameter.value.shape() != layout.LocalShape(rank) ||
      parameter.value.dtype() != layout.dtype()) {
    return Invalid(parameter,
                   absl::StrCat("its value is ", Name(parameter.value.dtype()),
                                ToString(parameter.value.shape()), ", rank ", rank, "'s share of ",
                                layout.ToString(), " is ", Name(layout.dtype()),
                                ToString(layout.LocalShape(rank)), "; it must be the share"));
  }
  return absl::OkStatus();
}

// The innermost factor that is cut, and how many elements of the dimension an element of it is.
struct CutFactor {
  const ShardedFactor* factor = nullptr;  // null: nothing is cut
  std::int64_t unit = 1;
};

CutFactor InnermostCut(const ShardedDim& dim) {
  CutFactor cut;
  for (auto f = dim.rbegin(); f != dim.rend(); ++f) {
    if (!f->axes.empty()) {
      cut.factor = &*f;
      return cut;
    }
    cut.unit *= f->factor.size;
  }
  return cut;
}

// Heads stay whole if any cut of the factor would leave them so: boundaries lie at multiples of its
// unit only.
absl::Status CheckHeads(const Parameter& parameter, const ShardedDim& dim) {
  const HeadBlocks& heads = *parameter.head_blocks;
  const CutFactor cut = InnermostCut(dim);
  if (cut.factor == nullptr || heads.granularity() == Granularity::kWholeMatrix) {
    return absl::OkStatus();
  }
  if (heads.granularity() != Granularity::kHead) {
    return Invalid(parameter,
                   absl::StrCat("its blocks are of granularity ", Name(heads.granularity()),
                                ", and it is cut over ranks; declare a block per head"));
  }
  const char* const noun = heads.axis() == BlockAxis::kRows ? "rows" : "columns";
  for (const HeadBlock& head : heads.blocks()) {
    for (const IndexRange& range : head.ranges) {
      if (range.begin / cut.unit == (range.begin + range.size - 1) / cut.unit) continue;
      return Invalid(
          parameter,
          absl::StrCat("its layout cuts heads: factor ", cut.factor->factor.ToString(),
                       " is sharded in units of ", cut.unit, " ", noun, ", and ", Name(head.role),
                       " head ", head.head, " is ", noun, " ", range.begin, " to ",
                       range.begin + range.size - 1,
                       "; shard a factor that counts heads or kv groups, as in [G=2 M=4 D=64]"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::string AxisNames(const Mesh& mesh, MeshView view, const std::vector<int>& axes) {
  return absl::StrJoin(axes, ",", [&](std::string* out, int axis) {
    absl::StrAppend(out, mesh.Axes(view)[static_cast<std::size_t>(axis)].name);
  });
}

absl::StatusOr<ParameterShare> ParameterShare::Create(const Parameter& parameter,
                                                      std::int64_t rank) {
  ParameterShare share;
  const Tensor& value = parameter.value;
  if (!value.defined()) return Invalid(parameter, "it has no value");
  share.layout_ = LayoutOf(value);
  Shape shape = value.shape();
  if (share.layout_.defined()) {
    HW_RETURN_IF_ERROR(CheckLayout(parameter, share.layout_, rank));
    share.mesh_ = share.layout_.mesh();
    share.view_ = share.layout_.view();
    shape = share.layout_.GlobalShape();
  }
  share.tensor_rank_ = static_cast<int>(shape.size());
  for (int i = 0; i < share.tensor_rank_; ++i) {  // what leads the last three counts as batch
    share.extent_[static_cast<std::size_t>(std::max(0, i + 3 - share.tensor_rank_))] *=
        shape[static_cast<std::size_t>(i)];
  }
  if (parameter.head_blocks.has_value() && share.layout_.defined() && share.tensor_rank_ == 2) {
    const bool by_rows = parameter.head_blocks->axis() == BlockAxis::kRows;
    const std::int64_t extent = value.dim(by_rows ? 0 : 1);
    if (parameter.head_blocks->axis_size() != extent) {
      return Invalid(parameter,
                     absl::StrCat("its head blocks cover ", parameter.head_blocks->axis_size(),
                                  by_rows ? " rows" : " columns", ", this rank's share of ",
                                  share.layout_.ToString(), " has ", extent,
                                  "; declare the blocks of the share"));
    }
    HW_RETURN_IF_ERROR(CheckHeads(parameter, share.layout_.dims()[by_rows ? 0 : 1]));
  }
  return share;
}

std::vector<int> ParameterShare::AxesOf(ParameterDim dim) const {
  const int d = TensorDim(dim);
  if (!layout_.defined() || d < 0 || d >= layout_.rank()) return {};
  return layout_.AxesOf(d);
}

std::vector<int> ParameterShare::Axes() const {
  std::vector<int> axes;
  for (const ParameterDim dim : {kBatch, kRows, kColumns}) {
    const std::vector<int> more = AxesOf(dim);
    axes.insert(axes.end(), more.begin(), more.end());
  }
  std::sort(axes.begin(), axes.end());
  return axes;
}

ShareBox ParameterShare::Of(std::int64_t rank) const {
  ShareBox box;
  for (const ParameterDim dim : {kBatch, kRows, kColumns}) {
    box[dim] = {0, extent_[dim]};
    if (AxesOf(dim).empty()) continue;
    // An axis cuts the first factor of which more than one element is left, so shares are
    // consecutive.
    Interval& part = box[dim];
    part.size = 1;
    for (const ShardedFactor& f : layout_.dims()[static_cast<std::size_t>(TensorDim(dim))]) {
      std::int64_t place = 0;
      for (const int axis : f.axes) {
        place = place * mesh_.Axes(view_)[static_cast<std::size_t>(axis)].size +
                mesh_.Coordinate(view_, axis, rank);
      }
      const std::int64_t left = f.Share(mesh_, view_);
      part.begin = part.begin * f.factor.size + place * left;
      part.size *= left;
    }
  }
  return box;
}

absl::StatusOr<Parameter> ParameterShare::Whole(const Parameter& parameter) const {
  Parameter whole = {.name = parameter.name, .role = parameter.role};
  const Shape shape = layout_.defined() ? layout_.GlobalShape() : parameter.value.shape();
  whole.value = Tensor::Empty(shape, parameter.value.dtype(), Device::kMeta);
  whole.head_blocks = parameter.head_blocks;
  if (!parameter.head_blocks.has_value() || tensor_rank_ != 2) return whole;
  const HeadBlocks& heads = *parameter.head_blocks;
  const ParameterDim dim = heads.axis() == BlockAxis::kRows ? kRows : kColumns;
  if (AxesOf(dim).empty()) return whole;

  const std::int64_t local = heads.axis_size(), shares = extent(dim) / local;
  std::map<HeadRole, std::int64_t> heads_of_role;
  std::int64_t kv_groups_here = 0;
  for (const HeadBlock& head : heads.blocks()) {
    ++heads_of_role[head.role];
    kv_groups_here = std::max(kv_groups_here, head.kv_group + 1);
  }
  // Elements of a kv group, where the dimension counts kv groups.
  std::optional<std::int64_t> kv_group_size;
  for (const ShardedFactor& f : layout_.dims()[static_cast<std::size_t>(TensorDim(dim))]) {
    if (f.factor.name == "G") kv_group_size = extent(dim) / f.factor.size;
    // Query heads of a kv group, of which there is one if no factor counts them.
    if (f.factor.name == "M" && !kv_group_size.has_value()) kv_group_size = extent(dim);
  }
  std::vector<HeadBlock> blocks;
  for (std::int64_t share = 0; share < shares; ++share) {
    for (HeadBlock head : heads.blocks()) {
      for (IndexRange& range : head.ranges) range.begin += share * local;
      head.head += share * heads_of_role[head.role];
      head.kv_group = kv_group_size.has_value() ? head.ranges[0].begin / *kv_group_size
                                                : head.kv_group + share * kv_groups_here;
      blocks.push_back(std::move(head));
    }
  }
  HW_ASSIGN_OR_RETURN(whole.head_blocks,
                      HeadBlocks::Create(extent(dim), std::move(blocks), heads.axis()));
  if (heads.granularity() == Granularity::kWholeMatrix) {
    HW_ASSIGN_OR_RETURN(whole.head_blocks, whole.head_blocks->Coarsen(Granularity::kWholeMatrix));
  }
  return whole;
}

}  // namespace headwise
