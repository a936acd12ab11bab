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

}  // namespace

TokenBatch ShareOfBatch(const TokenBatch& batch, const Sharding& sharding) {
  const LayoutType& tokens = sharding.inputs().tokens;
  HW_CHECK(tokens.defined()) << "the plan's tokens";
  const std::vector<std::int64_t> global = tokens.GlobalShape();
  HW_CHECK_EQ(static_cast<std::int64_t>(batch.inputs.size()), global[0]) << "tokens of all ranks";
  const std::int64_t begin = ShareBegin(tokens, 0, sharding.rank());
  const std::int64_t count = tokens.LocalShape(sharding.rank())[0];
  // Keys are those of whole groups of documents.
  const std::int64_t group = sharding.group_tokens();
  const std::int64_t keys = begin / group * group;

  TokenBatch share = {.inputs = Range(batch.inputs, begin, count),
                      .targets = Range(batch.targets, begin, count),
                      .positions = Range(batch.positions, begin, count),
                      .segments = {}};
  for (const AttentionSegment& whole : batch.segments) {
    const std::int64_t first = std::max(whole.query_begin, begin);
    const std::int64_t end = std::min(whole.query_begin + whole.num_queries, begin + count);
    if (first >= end) continue;
    HW_CHECK_GE(whole.key_begin, keys) << "a document lies in one group";
    AttentionSegment part = whole;
    part.query_begin = first - begin;
    part.num_queries = end - first;
    part.query_position += first - whole.query_begin;
    part.key_begin -= keys;
    // No query sees what comes after it.
    part.num_keys =
        std::min(part.num_keys, whole.num_keys - (whole.num_queries - (end - whole.query_begin)));
    share.segments.push_back(part);
  }
  return share;
}

absl::Status ReduceGradients(Sharding& sharding, const std::vector<Parameter*>& parameters) {
  HW_RETURN_IF_ERROR(sharding.status());
  std::map<std::string, Parameter*, std::less<>> by_name;
  for (Parameter* parameter : parameters) by_name[parameter->name] = parameter;
  for (const PlannedGradient& planned : sharding.checker().gradient_plan().gradients()) {
    const auto found = by_name.find(planned.parameter);
    HW_CHECK(found != by_name.end()) << planned.parameter;
    const Tensor& gradient = found->second->gradient;
    Tensor reduced = gradient;
    LayoutType type = planned.gradient;
    for (const Step& step : planned.steps) {
      HW_ASSIGN_OR_RETURN(LayoutType next, sharding.checker().relaxed() ? ApplyRelaxed(step, type)
                                                                        : Apply(step, type));
      HW_ASSIGN_OR_RETURN(reduced, RunStep(*sharding.ranks(), step, type, reduced));
      type = std::move(next);
    }
    if (reduced.shape() != gradient.shape()) {
      return absl::FailedPreconditionError(
          absl::StrCat(planned.parameter, ": its reduction leaves ", type.ToString(),
                       ", a share; expected the gradient as the parameter is; try a plan without "
                       "reduce_scatter in reductions"));
    }
    if (reduced.raw_data() == gradient.raw_data()) continue;
    std::memcpy(gradient.raw_data(), reduced.raw_data(),
                static_cast<std::size_t>(gradient.bytes()));
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
