#include "optim/weight_memory.h"

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/common/memory_overlap.h"

namespace headwise {

absl::Status CheckWeightMemory(absl::Span<const WeightMemory> weights) {
  std::vector<MemoryUse> uses;  // a value, its gradient, the next value, ...
  for (const WeightMemory& w : weights) {
    uses.push_back({MemoryOf(w.value), /*written=*/true});
    uses.push_back({MemoryOf(w.gradient)});
  }
  const std::optional<std::pair<std::size_t, std::size_t>> pair = FindOverlap(uses);
  if (!pair.has_value()) return absl::OkStatus();
  auto [value, other] = *pair;
  if (!uses[value].written) std::swap(value, other);
  const std::string &name = weights[value / 2].name, &other_name = weights[other / 2].name;
  return absl::InvalidArgumentError(
      uses[other].written
          ? absl::StrCat("weights ", name, " and ", other_name, " share memory")
          : absl::StrCat("the value of weight ", name, " and the gradient of weight ", other_name,
                         " share memory"));
}

}  // namespace headwise
