#include "optim/shard_norm.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"

namespace headwise {
namespace {

// Rows [begin, begin + count) of a parameter's share.
struct RowRun {
  std::size_t parameter;
  std::int64_t begin, count;
};

// Part `part` of `parts` of the rows of several shares, one below the other.
std::vector<RowRun> PartOf(absl::Span<const std::size_t> parameters,
                           absl::Span<const RowSquares> rows, std::int64_t part,
                           std::int64_t parts) {
  std::int64_t total = 0;
  for (const std::size_t p : parameters) total += rows[p].gradient.rows;
  const std::int64_t begin = total * part / parts, end = total * (part + 1) / parts;
  std::vector<RowRun> runs;
  std::int64_t at = 0;
  for (const std::size_t p : parameters) {
    const std::int64_t from = std::max(begin, at), to = std::min(end, at + rows[p].gradient.rows);
    if (from < to) runs.push_back({p, from - at, to - from});
    at += rows[p].gradient.rows;
  }
  return runs;
}

std::vector<double> SumsOf(absl::Span<const RowRun> runs, absl::Span<const RowSquares> rows) {
  std::vector<double> sums;
  for (const RowRun& run : runs) {
    const auto first = rows[run.parameter].sums.begin() + run.begin;
    sums.insert(sums.end(), first, first + run.count);
  }
  return sums;
}

}  // namespace

std::int64_t RowsHere(const ParameterShare& share, std::int64_t rank) {
  const ShareBox box = share.Of(rank);
  return box[kBatch].size * box[kRows].size;
}

std::int64_t RowsGiven(const ParameterShare& share, std::int64_t rank) {
  return share.Of(rank)[kColumns].end() == share.extent(kColumns) ? RowsHere(share, rank) : 0;
}

NormPlan PlanNorm(absl::Span<const ParameterShare* const> shares, std::int64_t rank) {
  using ChainKey = std::tuple<MeshView, std::vector<int>, std::vector<std::size_t>>;
  std::map<ChainKey, NormChain> chains;
  std::map<std::pair<MeshView, std::vector<int>>, NormGather> gathers;
  for (std::size_t p = 0; p < shares.size(); ++p) {
    const ParameterShare& share = *shares[p];
    const std::vector<int> all = share.Axes();
    if (all.empty()) continue;
    NormGather& gather = gathers[{share.view(), all}];
    gather.view = share.view();
    gather.axes = all;
    gather.members = share.mesh().Group(share.view(), all, rank);
    gather.parameters.push_back(p);

    std::vector<int> axes = share.AxesOf(kColumns);
    if (axes.empty()) continue;
    std::sort(axes.begin(), axes.end());
    const std::vector<std::int64_t> ranks = share.mesh().Group(share.view(), axes, rank);
    std::vector<std::size_t> order(ranks.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return share.Of(ranks[a])[kColumns].begin < share.Of(ranks[b])[kColumns].begin;
    });
    NormChain& chain = chains[{share.view(), axes, order}];
    chain.view = share.view();
    chain.axes = axes;
    chain.members = order;
    chain.place = static_cast<std::size_t>(
        std::find_if(order.begin(), order.end(), [&](std::size_t m) { return ranks[m] == rank; }) -
        order.begin());
    chain.parameters.push_back(p);
  }
  NormPlan plan;
  for (auto& [key, chain] : chains) plan.chains.push_back(std::move(chain));
  for (auto& [key, gather] : gathers) plan.gathers.push_back(std::move(gather));
  return plan;
}

absl::StatusOr<ShardNorm> ShardNorm::Create(std::vector<NamedGradient> gradients,
                                            std::vector<ParameterShare> shares, AxisGroups& axes) {
  HW_CHECK_EQ(gradients.size(), shares.size());
  ShardNorm norm(axes);
  std::vector<std::size_t> order(gradients.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return gradients[a].name < gradients[b].name; });
  std::vector<const ParameterShare*> views;
  for (const std::size_t p : order) {
    norm.gradients_.push_back(std::move(gradients[p]));
    norm.shares_.push_back(std::move(shares[p]));
  }
  for (const ParameterShare& share : norm.shares_) views.push_back(&share);
  norm.plan_ = PlanNorm(views, axes.ranks().rank());
  for (const NormChain& chain : norm.plan_.chains) {
    HW_RETURN_IF_ERROR(axes.Of(chain.view, chain.axes).status());
  }
  for (const NormGather& gather : norm.plan_.gathers) {
    HW_RETURN_IF_ERROR(axes.Of(gather.view, gather.axes).status());
  }
  return norm;
}

absl::Status ShardNorm::RunChain(const NormChain& chain, absl::Span<RowSquares> rows,
                                 ThreadPool& pool) {
  HW_ASSIGN_OR_RETURN(Communicator * comm, axes_->Of(chain.view, chain.axes));
  const auto ranks = static_cast<std::int64_t>(chain.members.size());
  const auto place = static_cast<std::int64_t>(chain.place);
  const auto part = [&](std::int64_t number) {
    return number < 0 || number >= ranks ? std::vector<RowRun>()
                                         : PartOf(chain.parameters, rows, number, ranks);
  };
  // At step s the rank in place c adds to part s - c and passes it on.
  for (std::int64_t step = 0; step < 2 * ranks - 1; ++step) {
    const std::vector<RowRun> now = part(step - place);
    std::vector<RowSquares> pieces;
    for (const RowRun& run : now) {
      RowSquares& piece =
          pieces.emplace_back(rows[run.parameter].gradient.Rows(run.begin, run.count));
      std::copy_n(rows[run.parameter].sums.begin() + run.begin, run.count, piece.sums.begin());
    }
    AddRowSquares(absl::MakeSpan(pieces), pool);
    for (std::size_t i = 0; i < now.size(); ++i) {
      RowSquares& whole = rows[now[i].parameter];
      std::copy(pieces[i].sums.begin(), pieces[i].sums.end(), whole.sums.begin() + now[i].begin);
      whole.unusable |= pieces[i].unusable;
    }
    if (step == 2 * ranks - 2) break;

    std::vector<std::int64_t> send(chain.members.size()), receive(chain.members.size());
    std::vector<double> out;
    if (place + 1 < ranks) {
      out = SumsOf(now, rows);
      send[chain.members[chain.place + 1]] = static_cast<std::int64_t>(out.size());
    }
    const std::vector<RowRun> next = place > 0 ? part(step + 1 - place) : std::vector<RowRun>();
    std::int64_t expected = 0;
    for (const RowRun& run : next) expected += run.count;
    if (place > 0) receive[chain.members[chain.place - 1]] = expected;
    std::vector<double> in(static_cast<std::size_t>(expected));
    HW_RETURN_IF_ERROR(comm->AllToAll(out, send, absl::MakeSpan(in), receive));
    auto from = in.begin();
    for (const RowRun& run : next) {
      std::copy_n(from, run.count, rows[run.parameter].sums.begin() + run.begin);
      from += run.count;
    }
  }
  return absl::OkStatus();
}

absl::Status ShardNorm::RunGather(const NormGather& gather, absl::Span<RowSquares> rows) {
  HW_ASSIGN_OR_RETURN(Communicator * comm, axes_->Of(gather.view, gather.axes));
  const std::int64_t rank = axes_->ranks().rank();
  std::vector<double> mine;
  for (const std::size_t p : gather.parameters) {
    if (RowsGiven(shares_[p], rank) > 0) {
      mine.insert(mine.end(), rows[p].sums.begin(), rows[p].sums.end());
    }
  }
  std::vector<std::int64_t> counts;
  for (const std::int64_t member : gather.members) {
    std::int64_t& count = counts.emplace_back();
    for (const std::size_t p : gather.parameters) count += RowsGiven(shares_[p], member);
  }
  std::vector<double> all(
      static_cast<std::size_t>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0})));
  HW_RETURN_IF_ERROR(comm->AllGather(mine, absl::MakeSpan(all), counts));

  for (const std::size_t p : gather.parameters) {
    rows[p].sums.assign(
        static_cast<std::size_t>(shares_[p].extent(kBatch) * shares_[p].extent(kRows)), 0.0);
  }
  auto from = all.begin();
  for (const std::int64_t member : gather.members) {
    for (const std::size_t p : gather.parameters) {
      if (RowsGiven(shares_[p], member) == 0) continue;
      const ShareBox box = shares_[p].Of(member);
      for (std::int64_t b = box[kBatch].begin; b < box[kBatch].end(); ++b) {
        std::copy_n(from, box[kRows].size,
                    rows[p].sums.begin() + b * shares_[p].extent(kRows) + box[kRows].begin);
        from += box[kRows].size;
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<GradientSummary> ShardNorm::Summarize(ThreadPool& pool) {
  std::vector<RowSquares> rows;
  for (const NamedGradient& g : gradients_) rows.emplace_back(g.gradient);
  std::vector<RowSquares> at_once;  // what no chain has to wait for
  std::vector<std::size_t> which;
  for (std::size_t p = 0; p < rows.size(); ++p) {
    if (!shares_[p].AxesOf(kColumns).empty()) continue;
    at_once.push_back(std::move(rows[p]));
    which.push_back(p);
  }
  AddRowSquares(absl::MakeSpan(at_once), pool);
  for (std::size_t i = 0; i < which.size(); ++i) rows[which[i]] = std::move(at_once[i]);
  for (const NormChain& chain : plan_.chains) {
    HW_RETURN_IF_ERROR(RunChain(chain, absl::MakeSpan(rows), pool));
  }
  for (const NormGather& gather : plan_.gathers) {
    HW_RETURN_IF_ERROR(RunGather(gather, absl::MakeSpan(rows)));
  }
  std::vector<double> parameter_sums;
  auto unusable = static_cast<std::int64_t>(rows.size());
  for (std::size_t p = 0; p < rows.size(); ++p) {
    parameter_sums.push_back(AdjacentPairSum(absl::MakeSpan(rows[p].sums)));
    if (rows[p].unusable) unusable = std::min(unusable, static_cast<std::int64_t>(p));
  }
  return Agree(std::sqrt(AdjacentPairSum(absl::MakeSpan(parameter_sums))), unusable);
}

absl::StatusOr<GradientSummary> ShardNorm::Agree(double norm, std::int64_t unusable) {
  Communicator& world = axes_->ranks().world();
  const std::vector<std::int64_t> mine = {std::bit_cast<std::int64_t>(norm), unusable};
  std::vector<std::int64_t> all(2 * static_cast<std::size_t>(world.size()));
  HW_RETURN_IF_ERROR(world.AllGather(mine, absl::MakeSpan(all)));
  const auto usable = static_cast<std::int64_t>(gradients_.size());
  // The rank that found the first unusable parameter speaks for all.
  std::size_t speaker = 0, other = 0;
  for (std::size_t r = 0; r < all.size() / 2; ++r) {
    if (all[2 * r + 1] < all[2 * speaker + 1]) speaker = r;
    if (all[2 * r] != all[0]) other = r;
  }
  GradientSummary summary;
  summary.norm = std::bit_cast<double>(all[2 * speaker]);
  if (all[2 * speaker + 1] < usable) {
    summary.non_finite = gradients_[static_cast<std::size_t>(all[2 * speaker + 1])].name;
  } else if (other != 0) {
    return world.Fail(absl::DataLossError(absl::StrCat(
        "rank 0 has a gradient norm of ", std::bit_cast<double>(all[0]), ", rank ", other, " of ",
        std::bit_cast<double>(all[2 * other]),
        ": gradients that should be the same on several ranks are not; a reduction is missing")));
  }
  return summary;
}

}  // namespace headwise
