#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "kernels/adamw/cuda.h"

namespace headwise {

using adamw::kBlockElements;
using adamw::TableEntry;

absl::StatusOr<AdamWPlan> AdamWPlan::Create(absl::Span<const AdamWTensors> parameters) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();  // blocks of a grid
  AdamWPlan plan;
  std::vector<TableEntry> entries;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const AdamWTensors& p = parameters[i];
    HW_CHECK_EQ(p.m.size(), p.weight.size()) << "parameter " << i;
    HW_CHECK_EQ(p.v.size(), p.weight.size()) << "parameter " << i;
    HW_CHECK_EQ(p.gradient.size(), p.weight.size()) << "parameter " << i;
    if (p.weight.empty()) continue;
    const auto error = [&](const char* wrong) {
      return absl::InvalidArgumentError(
          absl::StrCat("parameter ", i, " of AdamW has ", p.weight.size(), " elements", wrong));
    };
    const TableEntry entry = {.weight = reinterpret_cast<std::uintptr_t>(p.weight.data()),
                              .m = reinterpret_cast<std::uintptr_t>(p.m.data()),
                              .v = reinterpret_cast<std::uintptr_t>(p.v.data()),
                              .gradient = reinterpret_cast<std::uintptr_t>(p.gradient.data()),
                              .size = static_cast<std::int64_t>(p.weight.size()),
                              .first_block = plan.blocks_};
    if (entry.weight == 0 || entry.m == 0 || entry.v == 0 || entry.gradient == 0) {
      return error(" at a null pointer");
    }
    entries.push_back(entry);
    plan.blocks_ += (entry.size - 1) / kBlockElements + 1;
    if (plan.blocks_ > kMost) {
      return error(": the parameters up to it have more elements than a grid has blocks for");
    }
  }
  plan.parameters_ = static_cast<std::int64_t>(entries.size());
  plan.table_.resize(entries.size() * sizeof(TableEntry));
  if (!entries.empty()) std::memcpy(plan.table_.data(), entries.data(), plan.table_.size());
  return plan;
}

}  // namespace headwise
