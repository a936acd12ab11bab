#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "kernels/adamw/cuda.h"
#include "kernels/common/memory_overlap.h"

namespace headwise {

using adamw::kBlockElements;
using adamw::TableEntry;

namespace {

// A parameter's tensors, the last of which is only read.
constexpr const char* kTensors[] = {"weight", "m", "v", "gradient"};

// kInvalidArgument if one of the tensors that are written shares memory with another.
absl::Status CheckMemory(absl::Span<const AdamWTensors> parameters) {
  std::vector<MemoryUse> uses;  // in the order of kTensors, of one parameter after another
  for (const AdamWTensors& p : parameters) {
    for (const absl::Span<float> tensor : {p.weight, p.m, p.v}) {
      uses.push_back({MemoryOf(tensor), /*written=*/true});
    }
    uses.push_back({MemoryOf(p.gradient)});
  }
  const std::optional<std::pair<std::size_t, std::size_t>> pair = FindOverlap(uses);
  if (!pair.has_value()) return absl::OkStatus();
  const auto name = [](std::size_t use) {
    return absl::StrCat("the ", kTensors[use % 4], " of parameter ", use / 4);
  };
  return absl::InvalidArgumentError(
      absl::StrCat("AdamW: ", name(pair->first), " and ", name(pair->second), " share memory"));
}

}  // namespace

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
    const auto error = [&](const char* subject, const char* wrong) {
      return absl::InvalidArgumentError(absl::StrCat(
          "parameter ", i, " of AdamW has ", p.weight.size(), " elements: ", subject, wrong));
    };
    const TableEntry entry = {.weight = reinterpret_cast<std::uintptr_t>(p.weight.data()),
                              .m = reinterpret_cast<std::uintptr_t>(p.m.data()),
                              .v = reinterpret_cast<std::uintptr_t>(p.v.data()),
                              .gradient = reinterpret_cast<std::uintptr_t>(p.gradient.data()),
                              .size = static_cast<std::int64_t>(p.weight.size()),
                              .first_block = plan.blocks_};
    const std::uintptr_t addresses[] = {entry.weight, entry.m, entry.v, entry.gradient};
    for (int t = 0; t < 4; ++t) {
      if (addresses[t] == 0) return error(kTensors[t], " is a null pointer");
      if (addresses[t] % sizeof(float) != 0) {
        return error(kTensors[t], " is at no multiple of 4 bytes");
      }
    }
    entries.push_back(entry);
    plan.blocks_ += (entry.size - 1) / kBlockElements + 1;
    if (plan.blocks_ > kMost) {
      return error("the parameters", " up to it have more elements than a grid has blocks for");
    }
  }
  HW_RETURN_IF_ERROR(CheckMemory(parameters));
  plan.parameters_ = static_cast<std::int64_t>(entries.size());
  plan.table_.resize(entries.size() * sizeof(TableEntry));
  if (!entries.empty()) std::memcpy(plan.table_.data(), entries.data(), plan.table_.size());
  return plan;
}

}  // namespace headwise
