#include "core/parallel/comm/tensor_steps.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"

namespace headwise {
namespace {

using Sizes = std::vector<std::int64_t>;

// A local tensor by its factors: an axis cuts one of them, so every step is a matter of
// [outer, factor, inner] blocks.
struct Block {
  std::int64_t outer = 1, size = 1, inner = 1;  // inner in bytes

  std::int64_t bytes() const { return outer * size * inner; }
};

std::vector<const ShardedFactor*> FactorsOf(const LayoutType& type) {
  std::vector<const ShardedFactor*> factors;
  for (const ShardedDim& dim : type.dims()) {
    for (const ShardedFactor& f : dim) factors.push_back(&f);
  }
  return factors;
}

// Whether a rank's shape is an estimate.
bool Ragged(const LayoutType& type) {
  const auto factors = FactorsOf(type);
  return std::any_of(factors.begin(), factors.end(),
                     [](const ShardedFactor* f) { return f->factor.kind == FactorKind::kRagged; });
}

std::int64_t LocalSize(const LayoutType& type, const ShardedFactor& f, std::int64_t rank) {
  if (f.sizes.empty()) return f.Share(type.mesh(), type.view());
  return f.sizes[static_cast<std::size_t>(type.mesh().Coordinate(type.view(), f.axes[0], rank))];
}

// Where the axis cuts: the index of the factor, -1 if none.
int FactorCutBy(const LayoutType& type, int axis) {
  const auto factors = FactorsOf(type);
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const std::vector<int>& axes = factors[i]->axes;
    if (std::find(axes.begin(), axes.end(), axis) != axes.end()) return static_cast<int>(i);
  }
  return -1;
}

// A local tensor around one of its factors.
Block BlockOf(const LayoutType& type, int factor, std::int64_t rank) {
  const auto factors = FactorsOf(type);
  Block block = {.inner = SizeOf(type.dtype())};
  for (int i = 0; i < static_cast<int>(factors.size()); ++i) {
    const std::int64_t size = LocalSize(type, *factors[static_cast<std::size_t>(i)], rank);
    (i < factor ? block.outer : i == factor ? block.size : block.inner) *= size;
  }
  return block;
}

// Elements [begin, begin + count) of the factor, packed.
void Pack(const std::byte* from, const Block& block, std::int64_t begin, std::int64_t count,
          std::byte* to) {
  const auto run = static_cast<std::size_t>(count * block.inner);
  for (std::int64_t o = 0; run > 0 && o < block.outer; ++o) {
    std::memcpy(to + o * count * block.inner, from + (o * block.size + begin) * block.inner, run);
  }
}

// The inverse.
void Unpack(const std::byte* from, std::int64_t begin, std::int64_t count, std::byte* to,
            const Block& block) {
  const auto run = static_cast<std::size_t>(count * block.inner);
  for (std::int64_t o = 0; run > 0 && o < block.outer; ++o) {
    std::memcpy(to + (o * block.size + begin) * block.inner, from + o * count * block.inner, run);
  }
}

// What each rank of the axis has of the part of a factor that they share: the factor's table, or
// equal shares.
Sizes SharesOf(const LayoutType& type, int factor, int axis, std::int64_t ranks) {
  const ShardedFactor& f = *FactorsOf(type)[static_cast<std::size_t>(factor)];
  if (!f.sizes.empty() && f.axes[0] == axis) return f.sizes;
  return Sizes(static_cast<std::size_t>(ranks), f.Share(type.mesh(), type.view()));
}

std::byte* Data(const Tensor& tensor) { return static_cast<std::byte*>(tensor.raw_data()); }

Tensor Local(const LayoutType& type, std::int64_t rank) {
  return Tensor::Zeros(type.LocalShape(rank), type.dtype(), Device::kCpu);
}

// One step on one axis.
class AxisStep {
 public:
  AxisStep(const MeshRanks& ranks, const Step& step, int axis, const LayoutType& from,
           const LayoutType& to)
      : comm_(ranks.Axis(from.view(), axis)),
        step_(step),
        rank_(ranks.rank()),
        place_(ranks.mesh().Coordinate(from.view(), axis, ranks.rank())),
        from_(from),
        to_(to),
        // The factor that the axis cuts before and after the step; both types have the same
        // factors.
        cut_(FactorCutBy(from, axis)),
        new_cut_(FactorCutBy(to, axis)) {
    if (cut_ >= 0) shares_ = SharesOf(from, cut_, axis, comm_.size());
    if (new_cut_ >= 0) new_shares_ = SharesOf(to, new_cut_, axis, comm_.size());
  }

  absl::StatusOr<Tensor> Run(const Tensor& x) const {
    for (const int factor : {cut_, new_cut_}) {
      if (factor < 0) continue;
      const Factor& f = FactorsOf(from_)[static_cast<std::size_t>(factor)]->factor;
      if (f.kind == FactorKind::kRagged) {
        return comm_.Fail(absl::UnimplementedError(
            absl::StrCat(step_.ToString(), ": ", f.ToString(),
                         " has no fixed share; exchange its rows with tables of counts")));
      }
    }
    switch (step_.kind) {
      case StepKind::kAllReduce:
        return AllReduce(x);
      case StepKind::kAllGather:
        return AllGather(x);
      case StepKind::kReduceScatter:
        return ReduceScatter(x);
      case StepKind::kAllToAll:
        return AllToAll(x);
      case StepKind::kConvert:
        if (to_.axis_types() == from_.axis_types()) return x;
        if (new_cut_ >= 0) return Slice(x);
        if (cut_ >= 0) return Pad(x);
        // R -> P keeps the first rank's; I -> R keeps everybody's.
        return step_.to == AxisType::kPartial && place_ > 0
                   ? Tensor::Zeros(x.shape(), x.dtype(), Device::kCpu)
                   : x;
      default:
        return x;
    }
  }

 private:
  DType AddIn() const { return step_.reduce_in.value_or(DType::kF32); }

  ConstElements All(const Tensor& x) const { return {x.raw_data(), x.size(), x.dtype()}; }

  absl::StatusOr<Tensor> AllReduce(const Tensor& x) const {
    const Tensor sum = Tensor::Zeros(x.shape(), x.dtype(), Device::kCpu);
    HW_RETURN_IF_ERROR(
        comm_.AllReduce(All(x), Elements(sum.raw_data(), sum.size(), sum.dtype()), AddIn()));
    return sum;
  }

  // Elements that a share of one of `count` has in all, per rank.
  Sizes Counts(const Sizes& shares, const Block& block) const {
    Sizes counts;
    for (const std::int64_t share : shares) {
      counts.push_back(block.outer * share * block.inner / SizeOf(from_.dtype()));
    }
    return counts;
  }

  // x's shares of a factor, one after another.
  std::vector<std::byte> PackAll(const Tensor& x, const Block& block, const Sizes& shares) const {
    std::vector<std::byte> packed(static_cast<std::size_t>(x.bytes()));
    std::int64_t begin = 0;
    for (const std::int64_t share : shares) {
      Pack(Data(x), block, begin, share, packed.data() + block.outer * begin * block.inner);
      begin += share;
    }
    return packed;
  }

  Tensor UnpackAll(const std::vector<std::byte>& packed, const Sizes& shares) const {
    Tensor result = Local(to_, rank_);
    const Block block = BlockOf(to_, cut_, rank_);
    std::int64_t begin = 0;
    for (const std::int64_t share : shares) {
      Unpack(packed.data() + block.outer * begin * block.inner, begin, share, Data(result), block);
      begin += share;
    }
    return result;
  }

  absl::StatusOr<Tensor> AllGather(const Tensor& x) const {
    const Sizes counts = Counts(shares_, BlockOf(to_, cut_, rank_));
    const std::int64_t total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    std::vector<std::byte> packed(static_cast<std::size_t>(total * SizeOf(x.dtype())));
    HW_RETURN_IF_ERROR(comm_.AllGather(All(x), Elements(packed.data(), total, x.dtype()), counts));
    return UnpackAll(packed, shares_);
  }

  absl::StatusOr<Tensor> ReduceScatter(const Tensor& x) const {
    const Block block = BlockOf(from_, new_cut_, rank_);
    const std::vector<std::byte> packed = PackAll(x, block, new_shares_);
    Tensor share = Local(to_, rank_);
    HW_RETURN_IF_ERROR(comm_.ReduceScatter(ConstElements(packed.data(), x.size(), x.dtype()),
                                           Elements(share.raw_data(), share.size(), share.dtype()),
                                           Counts(new_shares_, block), AddIn()));
    return share;
  }

  absl::StatusOr<Tensor> AllToAll(const Tensor& x) const {
    const Block block = BlockOf(from_, new_cut_, rank_);
    const std::vector<std::byte> packed = PackAll(x, block, new_shares_);
    const Sizes receive = Counts(shares_, BlockOf(to_, cut_, rank_));
    const std::int64_t total = std::accumulate(receive.begin(), receive.end(), std::int64_t{0});
    std::vector<std::byte> received(static_cast<std::size_t>(total * SizeOf(x.dtype())));
    HW_RETURN_IF_ERROR(comm_.AllToAll(ConstElements(packed.data(), x.size(), x.dtype()),
                                      Counts(new_shares_, block),
                                      Elements(received.data(), total, x.dtype()), receive));
    return UnpackAll(received, shares_);
  }

  std::int64_t Begin(const Sizes& shares) const {
    return std::accumulate(shares.begin(), shares.begin() + place_, std::int64_t{0});
  }

  Tensor Slice(const Tensor& x) const {
    Tensor share = Local(to_, rank_);
    Pack(Data(x), BlockOf(from_, new_cut_, rank_), Begin(new_shares_),
         new_shares_[static_cast<std::size_t>(place_)], Data(share));
    return share;
  }

  Tensor Pad(const Tensor& x) const {
    Tensor whole = Local(to_, rank_);
    Unpack(Data(x), Begin(shares_), shares_[static_cast<std::size_t>(place_)], Data(whole),
           BlockOf(to_, cut_, rank_));
    return whole;
  }

  Communicator& comm_;
  const Step& step_;
  std::int64_t rank_;
  std::int64_t place_;  // on the axis
  const LayoutType& from_;
  const LayoutType& to_;
  int cut_, new_cut_;
  Sizes shares_, new_shares_;
};

std::string AxisName(const LayoutType& type, int axis) {
  return type.mesh().Axes(type.view())[static_cast<std::size_t>(axis)].name;
}

}  // namespace

absl::StatusOr<MeshRanks> MeshRanks::Create(const Mesh& mesh, Communicator& world) {
  if (mesh.size() != world.size()) {
    return world.Fail(absl::InvalidArgumentError(absl::StrCat(
        "mesh ", mesh.ToString(), " has ", mesh.size(), " ranks, the run ", world.size())));
  }
  MeshRanks ranks(mesh, world);
  for (const MeshView view : {MeshView::kDense, MeshView::kExpert}) {
    for (int axis = 0; axis < static_cast<int>(mesh.Axes(view).size()); ++axis) {
      HW_ASSIGN_OR_RETURN(ranks.axes_[std::pair(view, axis)],
                          world.Subgroup(mesh.Group(view, std::vector<int>{axis}, world.rank())));
    }
  }
  return ranks;
}

Communicator& MeshRanks::Axis(MeshView view, int axis) const {
  return *axes_.at(std::pair(view, axis));
}

Tensor LocalShare(const LayoutType& type, std::int64_t rank, const Tensor& global) {
  HW_CHECK(global.shape() == type.GlobalShape() && global.dtype() == type.dtype())
      << ToString(global.shape()) << " of " << global.dtype() << " for " << type.ToString();
  // One factor after the other is cut down to the rank's share.
  Sizes sizes;
  const auto factors = FactorsOf(type);
  for (const ShardedFactor* f : factors) sizes.push_back(f->factor.size);
  std::vector<std::byte> data(Data(global), Data(global) + global.bytes());
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const ShardedFactor& f = *factors[i];
    HW_CHECK(f.factor.kind != FactorKind::kRagged) << type.ToString();
    const std::int64_t share = LocalSize(type, f, rank);
    std::int64_t place = 0;
    for (const int axis : f.axes) {
      place = place * type.mesh().Axes(type.view())[static_cast<std::size_t>(axis)].size +
              type.mesh().Coordinate(type.view(), axis, rank);
    }
    std::int64_t begin = place * share;
    if (!f.sizes.empty()) {
      begin = std::accumulate(f.sizes.begin(), f.sizes.begin() + place, std::int64_t{0});
    }
    Block block = {.inner = SizeOf(type.dtype())};
    for (std::size_t j = 0; j < sizes.size(); ++j) {
      (j < i ? block.outer : j == i ? block.size : block.inner) *= sizes[j];
    }
    std::vector<std::byte> cut(static_cast<std::size_t>(block.outer * share * block.inner));
    Pack(data.data(), block, begin, share, cut.data());
    data = std::move(cut);
    sizes[i] = share;
  }
  for (const AxisType axis : type.axis_types()) {
    HW_CHECK(axis != AxisType::kPartial && axis != AxisType::kVarying) << type.ToString();
  }
  Tensor local = Local(type, rank);
  if (!data.empty()) std::memcpy(local.raw_data(), data.data(), data.size());
  return local;
}

absl::StatusOr<Tensor> RunStep(const MeshRanks& ranks, const Step& step, const LayoutType& type,
                               const Tensor& x) {
  HW_CHECK((Ragged(type) || x.shape() == type.LocalShape(ranks.rank())) &&
           x.dtype() == type.dtype())
      << step.ToString() << ": " << ToString(x.shape()) << " of " << x.dtype() << " for "
      << type.ToString();
  const auto result = Apply(step, type);
  if (!result.ok()) return ranks.world().Fail(result.status());
  if (step.kind == StepKind::kReinterpretMesh) return x;
  HW_ASSIGN_OR_RETURN(const std::vector<int> axes, AxesOf(step, type));
  Tensor local = x;
  LayoutType from = type;
  for (const int axis : axes) {
    Step one = step;
    one.axis = AxisName(type, axis);
    HW_ASSIGN_OR_RETURN(const LayoutType to, Apply(one, from));
    HW_ASSIGN_OR_RETURN(local, AxisStep(ranks, one, axis, from, to).Run(local));
    from = to;
  }
  return local;
}

absl::StatusOr<Tensor> Assemble(const MeshRanks& ranks, const LayoutType& type,
                                const Tensor& local) {
  Tensor x = local;
  LayoutType at = type;
  const auto take = [&](const Step& step) -> absl::Status {
    HW_ASSIGN_OR_RETURN(x, RunStep(ranks, step, at, x));
    HW_ASSIGN_OR_RETURN(at, Apply(step, at));
    return absl::OkStatus();
  };
  for (int axis = 0; axis < static_cast<int>(type.axis_types().size()); ++axis) {
    if (type.axis_type(axis) == AxisType::kVarying) {
      return ranks.world().Fail(absl::FailedPreconditionError(
          absl::StrCat("on axis ", AxisName(type, axis), " nothing says how ", type.ToString(),
                       " makes a whole")));
    }
    if (type.axis_type(axis) != AxisType::kPartial) continue;
    HW_RETURN_IF_ERROR(take({.kind = StepKind::kAllReduce,
                             .axis = AxisName(type, axis),
                             .to = AxisType::kReplicate,
                             .reduce_in = DType::kF32}));
  }
  for (int dim = 0; dim < type.rank(); ++dim) {
    std::vector<int> axes = type.AxesOf(dim);
    for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
      HW_RETURN_IF_ERROR(take({.kind = StepKind::kAllGather,
                               .axis = AxisName(type, *axis),
                               .to = AxisType::kReplicate}));
    }
  }
  return x;
}

}  // namespace headwise
