#include "model/rank_pass.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/parallel/relaxed.h"
#include "core/parallel/step.h"
#include "core/parallel/tensor_layout.h"
#include "kernels/prepare_qkv/prepare_qkv.h"

namespace headwise {
namespace {

template <typename T>
std::vector<T> Range(const std::vector<T>& whole, std::int64_t begin, std::int64_t count) {
  return std::vector<T>(whole.begin() + begin, whole.begin() + begin + count);
}

absl::StatusOr<double> SumOver(const Sharding& sharding, const std::vector<int>& axes,
                               double value) {
  // The innermost axis first: neighbours are added before others.
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    double sum = 0;
    HW_RETURN_IF_ERROR(
        sharding.ranks()
            ->Axis(MeshView::kDense, *axis)
            .AllReduce(absl::Span<const double>(&value, 1), absl::Span<double>(&sum, 1)));
    value = sum;
  }
  return value;
}

// Takes `tensor` through the steps that `wanted` says, in place.
template <typename Wanted>
absl::Status TakeSteps(Sharding& sharding, const PlannedGradient& planned, LayoutType type,
                       const Tensor& tensor, const Wanted& wanted) {
  Tensor reduced = tensor;
  for (const Step& step : planned.steps) {
    if (!wanted(step)) continue;
    HW_ASSIGN_OR_RETURN(LayoutType next, sharding.checker().relaxed() ? ApplyRelaxed(step, type)
                                                                      : Apply(step, type));
    HW_ASSIGN_OR_RETURN(reduced, RunStep(*sharding.ranks(), step, type, reduced));
    type = std::move(next);
  }
  if (reduced.shape() != tensor.shape()) {
    return absl::FailedPreconditionError(absl::StrCat(
        planned.parameter, ": its reduction leaves ", type.ToString(),
        ", a share; expected the gradient as the parameter is; try a plan without reduce_scatter "
        "in reductions"));
  }
  if (reduced.raw_data() != tensor.raw_data()) {
    std::memcpy(tensor.raw_data(), reduced.raw_data(), static_cast<std::size_t>(tensor.bytes()));
  }
  return absl::OkStatus();
}

void SumOverGroups(const Parameter& parameter) {
  const auto sum = [&]<typename C>(C) {
    headwise::ReduceHeadNormGradient<C>(
        parameter.per_group_gradient.Rows<C>(),
        absl::Span<C>(parameter.gradient.data<C>(),
                      static_cast<std::size_t>(parameter.gradient.size())));
  };
  parameter.gradient.dtype() == DType::kF64 ? sum(0.0) : sum(0.0F);
}

absl::Status ReduceGradient(Sharding& sharding, const PlannedGradient& planned,
                            const Parameter& parameter) {
  const LayoutType groups = LayoutOf(parameter.per_group_gradient);
  const auto all = [](const Step&) { return true; };
  if (!groups.defined() || sharding.checker().relaxed()) {
    return TakeSteps(sharding, planned, planned.gradient, parameter.gradient, all);
  }
  // Of a head norm: the sum over tokens' ranks first, for each kv group; then over the groups.
  const auto of_tokens = [&](const Step& step) {
    const auto axes = groups.mesh().Find(groups.view(), step.axis);
    return axes.ok() && !axes->empty() && !sharding.inputs().tokens.AxesOf(0).empty() &&
           groups.axis_type(axes->front()) == AxisType::kPartial &&
           sharding.inputs().tokens.axis_type(axes->front()) == AxisType::kShard;
  };
  HW_RETURN_IF_ERROR(TakeSteps(sharding, planned, groups, parameter.per_group_gradient, of_tokens));
  SumOverGroups(parameter);
  return TakeSteps(sharding, planned, planned.gradient, parameter.gradient,
                   [&](const Step& step) { return !of_tokens(step); });
}

}  // namespace

TokenBatch ShareOfGroup(const TokenBatch& group, const Sharding& sharding) {
  const LayoutType& tokens = sharding.inputs().tokens;
  HW_CHECK(tokens.defined()) << "the plan's tokens";
  HW_CHECK_EQ(static_cast<std::int64_t>(group.inputs.size()), sharding.group_tokens());
  const std::int64_t begin = ShareBegin(tokens, 0, sharding.rank()) % sharding.group_tokens();
  const std::int64_t count = tokens.LocalShape(sharding.rank())[0];
  HW_CHECK_LE(begin + count, sharding.group_tokens()) << "a rank has tokens of one group";

  TokenBatch share = {.inputs = Range(group.inputs, begin, count),
                      .targets = Range(group.targets, begin, count),
                      .positions = Range(group.positions, begin, count),
                      .segments = {}};
  for (const AttentionSegment& whole : group.segments) {
    const std::int64_t first = std::max(whole.query_begin, begin);
    const std::int64_t end = std::min(whole.query_begin + whole.num_queries, begin + count);
    if (first >= end) continue;
    AttentionSegment part = whole;
    part.query_begin = first - begin;
    part.num_queries = end - first;
    part.query_position += first - whole.query_begin;
    // No query sees what comes after it.
    part.num_keys -= whole.query_begin + whole.num_queries - end;
    share.segments.push_back(part);
  }
  return share;
}

TokenBatch ShareOfBatch(const TokenBatch& batch, const Sharding& sharding) {
  const LayoutType& tokens = sharding.inputs().tokens;
  HW_CHECK(tokens.defined()) << "the plan's tokens";
  const std::int64_t size = sharding.group_tokens();
  const std::int64_t begin = ShareBegin(tokens, 0, sharding.rank()) / size * size;
  TokenBatch group = {.inputs = Range(batch.inputs, begin, size),
                      .targets = Range(batch.targets, begin, size),
                      .positions = Range(batch.positions, begin, size),
                      .segments = {}};
  for (AttentionSegment segment : batch.segments) {
    if (segment.query_begin < begin || segment.query_begin >= begin + size) continue;
    HW_CHECK_LE(segment.query_begin + segment.num_queries, begin + size)
        << "a document lies in one group";
    segment.query_begin -= begin;
    segment.key_begin -= begin;
    group.segments.push_back(segment);
  }
  return ShareOfGroup(group, sharding);
}

absl::Status ReduceGradients(Sharding& sharding, const std::vector<Parameter*>& parameters) {
  HW_RETURN_IF_ERROR(sharding.status());
  std::map<std::string, Parameter*, std::less<>> by_name;
  for (Parameter* parameter : parameters) by_name[parameter->name] = parameter;
  for (const PlannedGradient& planned : sharding.checker().gradient_plan().gradients()) {
    const auto found = by_name.find(planned.parameter);
    HW_CHECK(found != by_name.end()) << planned.parameter;
    HW_RETURN_IF_ERROR(ReduceGradient(sharding, planned, *found->second));
  }
  return absl::OkStatus();
}

absl::StatusOr<double> SumOverTokens(const Sharding& sharding, double value) {
  return SumOver(sharding, sharding.inputs().tokens.AxesOf(0), value);
}

absl::StatusOr<double> SumOverRanks(const Sharding& sharding, double value) {
  std::vector<int> axes;
  const auto count = sharding.checker().mesh().Axes(MeshView::kDense).size();
  for (int axis = 0; axis < static_cast<int>(count); ++axis) axes.push_back(axis);
  return SumOver(sharding, axes, value);
}

}  // namespace headwise
