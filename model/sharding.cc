#include "model/sharding.h"

#include <utility>

#include "core/base/check.h"
#include "core/parallel/op_rules.h"
#include "core/parallel/tensor_layout.h"

namespace headwise {
namespace {

LayoutType ByExpert(const LayoutType& rows) {
  return rows.defined() ? SplitDim(rows, 0, {"E"}) : rows;
}

LayoutType Together(const LayoutType& rows) {
  return rows.defined() ? MergeDims(rows, 0, 2) : rows;
}

}  // namespace

Tensor UnknownTensor(Device device) { return Tensor::Empty({0, 0}, DType::kF32, device); }

void Sharding::Fail(const absl::Status& status) {
  if (status_.ok()) status_ = status;
}

void Sharding::SetTokens(std::int64_t groups, std::int64_t length) {
  if (groups == groups_ && length == length_) return;
  groups_ = groups;
  length_ = length;
  const std::vector<Dim> tokens = {{Factor::Batch("B", groups), {"L", length}}};
  inputs_ = {.tokens = checker_->Input("tokens", tokens, DType::kI32),
             .positions = checker_->Input("positions", tokens, DType::kI64),
             .targets = checker_->Input("targets", tokens, DType::kI32),
             .loss_scale = checker_->Input("loss_scale", {}, DType::kF64)};
}

std::int64_t Sharding::local_tokens() const {
  return inputs_.tokens.defined() ? inputs_.tokens.LocalShape(rank_)[0] : 0;
}

bool Sharding::Communicates(absl::string_view boundary) const {
  for (const Step& step : checker_->plan().Forward(checker_->Path(boundary))) {
    if (step.kind == StepKind::kReinterpretMesh) return true;
    const auto axes = checker_->mesh().Find(MeshView::kDense, step.axis);
    if (!axes.ok() || !axes->empty()) return true;
  }
  return false;
}

Tensor Sharding::Take(const std::vector<LayoutChecker::Taken>& steps, const LayoutType& result,
                      const Tensor& x, const Exchange* exchange) {
  if (!result.defined() || !status_.ok()) return UnknownTensor(x.device());
  const LayoutType attached = exchange == nullptr ? result : Together(result);
  if (steps.empty()) return TensorLayout::Attach(x, attached);
  if (ranks_ == nullptr && x.device() != Device::kMeta) {
    HW_CHECK_EQ(checker_->mesh().size(), 1) << "ranks that are not there";
    return TensorLayout::Attach(x, attached);
  }
  if (ranks_ == nullptr) {
    const LayoutType& from = steps.front().from;
    const std::vector<std::int64_t> before =
        (exchange == nullptr ? from : Together(from)).LocalShape(rank_);
    Shape shape = attached.LocalShape(rank_);
    // Shares of rows of experts are estimates: where the steps leave them alone, x knows better.
    for (std::size_t d = 0; d < shape.size(); ++d) {
      if (shape[d] == before[d]) shape[d] = x.dim(static_cast<int>(d));
    }
    return TensorLayout::Attach(Tensor::Empty(shape, attached.dtype(), x.device()), attached);
  }
  Tensor local = x;
  for (const LayoutChecker::Taken& one : steps) {
    absl::StatusOr<Tensor> next = local;
    if (exchange == nullptr) {
      next = RunStep(*ranks_, one.step, one.from, local);
    } else if (one.step.kind == StepKind::kAllToAll) {
      next = (*exchange)(one.step, local);
    } else if (one.step.kind != StepKind::kReinterpretMesh) {
      // Rows have the shape of a matrix, whatever the plan sees.
      next = RunStep(*ranks_, one.step, Together(one.from), local);
    }
    if (!next.ok()) {
      Fail(next.status());
      return UnknownTensor(x.device());
    }
    local = *std::move(next);
  }
  return TensorLayout::Attach(std::move(local), attached);
}

Tensor Sharding::Cross(absl::string_view boundary, const Tensor& x) {
  std::vector<LayoutChecker::Taken> steps;
  const LayoutType result = checker_->Cross(boundary, LayoutOf(x), &steps);
  return Take(steps, result, x, nullptr);
}

Tensor Sharding::CrossBackward(absl::string_view boundary, const Tensor& gradient) {
  std::vector<LayoutChecker::Taken> steps;
  const LayoutType result = checker_->CrossBackward(boundary, LayoutOf(gradient), &steps);
  return Take(steps, result, gradient, nullptr);
}

Tensor Sharding::CrossRows(absl::string_view boundary, const Tensor& rows,
                           const Exchange& exchange) {
  std::vector<LayoutChecker::Taken> steps;
  const LayoutType result = checker_->Cross(boundary, ByExpert(LayoutOf(rows)), &steps);
  return Take(steps, result, rows, &exchange);
}

Tensor Sharding::CrossRowsBackward(absl::string_view boundary, const Tensor& gradient,
                                   const Exchange& exchange) {
  std::vector<LayoutChecker::Taken> steps;
  const LayoutType result = checker_->CrossBackward(boundary, ByExpert(LayoutOf(gradient)), &steps);
  return Take(steps, result, gradient, &exchange);
}

}  // namespace headwise
