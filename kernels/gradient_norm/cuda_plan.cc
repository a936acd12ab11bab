#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "kernels/gradient_norm/cuda.h"

namespace headwise {

using gradient_norm::kGroupRows;
using gradient_norm::TableEntry;

absl::StatusOr<GradientNormPlan> GradientNormPlan::Create(
    absl::Span<const RowSpan<const float>> gradients) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();  // blocks of a grid
  GradientNormPlan plan;
  std::vector<TableEntry> entries;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const RowSpan<const float>& g = gradients[i];
    const auto error = [&](const char* wrong) {
      return absl::InvalidArgumentError(
          absl::StrCat("gradient ", i, " of the norm is [", g.rows, ", ", g.width, "]", wrong));
    };
    if (g.rows < 0 || g.width < 0) return error(": a negative extent");
    if (g.data == nullptr && g.size() > 0) return error(" at a null pointer");
    entries.push_back({.data = reinterpret_cast<std::uintptr_t>(g.data),
                       .stride = g.stride,
                       .rows = g.rows,
                       .width = g.width,
                       .first_group = plan.groups_});
    plan.groups_ += (g.rows + kGroupRows - 1) / kGroupRows;
    if (plan.groups_ > kMost || static_cast<std::int64_t>(i) >= kMost) {
      return error(": the gradients up to it have more rows than a grid has blocks for");
    }
  }
  plan.gradients_ = static_cast<std::int64_t>(entries.size());
  plan.table_.resize(entries.size() * sizeof(TableEntry));
  if (!entries.empty()) std::memcpy(plan.table_.data(), entries.data(), plan.table_.size());
  return plan;
}

std::int64_t GradientNormPlan::scratch_bytes() const {
  return gradient_norm::LayoutOf(*this).bytes;
}

gradient_norm::ScratchLayout gradient_norm::LayoutOf(const GradientNormPlan& plan) {
  ScratchLayout layout = {};
  const auto take = [&](std::int64_t bytes) {
    const std::int64_t begin = layout.bytes;
    layout.bytes += (bytes + 15) / 16 * 16;
    return begin;
  };
  constexpr std::int64_t kSum = sizeof(double), kFlag = sizeof(std::uint32_t);
  layout.row_sums = take(plan.groups() * kGroupRows * kSum);
  layout.parameter_sums = take(plan.gradients() * kSum);
  layout.group_unusable = take(plan.groups() * kFlag);
  layout.unusable = take(plan.gradients() * kFlag);
  return layout;
}

}  // namespace headwise
