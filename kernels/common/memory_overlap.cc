#include "kernels/common/memory_overlap.h"

#include <algorithm>
#include <vector>

namespace headwise {

bool Overlap(const MemoryRows& a, const MemoryRows& b) {
  if (a.empty() || b.empty()) return false;
  if (a.end() <= b.begin || b.end() <= a.begin) return false;
  if (a.rows == 1 && b.rows == 1) return true;
  if (a.stride != b.stride || a.stride < std::max(a.width, b.width)) return true;
  // How far b's rows begin behind a's, modulo the stride.
  const std::uintptr_t stride = a.stride;
  const std::uintptr_t shift = b.begin >= a.begin
                                   ? (b.begin - a.begin) % stride
                                   : (stride - (a.begin - b.begin) % stride) % stride;
  return shift < a.width || shift + b.width > stride;
}

std::optional<std::pair<std::size_t, std::size_t>> FindOverlap(absl::Span<const MemoryUse> uses) {
  std::vector<std::size_t> ascending;  // by address
  for (std::size_t i = 0; i < uses.size(); ++i) {
    if (!uses[i].memory.empty()) ascending.push_back(i);
  }
  std::sort(ascending.begin(), ascending.end(), [&](std::size_t i, std::size_t j) {
    return std::pair(uses[i].memory.begin, i) < std::pair(uses[j].memory.begin, j);
  });
  // Of those that begin no later, the ones that may reach what follows.
  std::vector<std::size_t> written, read;
  for (const std::size_t i : ascending) {
    const MemoryRows& memory = uses[i].memory;
    // Drops those that end before `memory`, for good.
    const auto find = [&](std::vector<std::size_t>& among) -> std::optional<std::size_t> {
      const auto ends = [&](std::size_t j) { return uses[j].memory.end() <= memory.begin; };
      among.erase(std::remove_if(among.begin(), among.end(), ends), among.end());
      for (const std::size_t j : among) {
        if (Overlap(uses[j].memory, memory)) return j;
      }
      return std::nullopt;
    };
    std::optional<std::size_t> other = find(written);
    if (!other.has_value() && uses[i].written) other = find(read);
    if (other.has_value()) return std::minmax(i, *other);
    (uses[i].written ? written : read).push_back(i);
  }
  return std::nullopt;
}

}  // namespace headwise
