// Whether pieces of memory overlap: of two, and of many of which some are written.
//
//   const MemoryUse uses[] = {{MemoryOf(weight), /*written=*/true}, {MemoryOf(gradient)}};
//   if (const auto pair = FindOverlap(uses)) ...  // uses[pair->first] and uses[pair->second]
//
// Only addresses are looked at, so that memory may be a device's.
#ifndef HEADWISE_KERNELS_COMMON_MEMORY_OVERLAP_H_
#define HEADWISE_KERNELS_COMMON_MEMORY_OVERLAP_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/types/span.h"
#include "core/tensor/row_span.h"

namespace headwise {

// Rows of `width` bytes that lie `stride` bytes apart.
struct MemoryRows {
  std::uintptr_t begin = 0;
  std::int64_t rows = 0;
  std::uintptr_t width = 0, stride = 0;

  bool empty() const { return begin == 0 || rows == 0 || width == 0; }
  std::uintptr_t end() const {
    return begin + static_cast<std::uintptr_t>(rows - 1) * stride + width;
  }
};

template <typename T>
MemoryRows MemoryOf(const RowSpan<T>& span) {
  return {.begin = reinterpret_cast<std::uintptr_t>(span.data),
          .rows = span.rows,
          .width = static_cast<std::uintptr_t>(span.width) * sizeof(T),
          .stride = static_cast<std::uintptr_t>(span.stride) * sizeof(T)};
}
template <typename T>
MemoryRows MemoryOf(absl::Span<T> elements) {
  return MemoryOf(RowSpan<T>(elements.data(), 1, static_cast<std::int64_t>(elements.size())));
}

// Columns of one buffer (equal strides) are told apart; of rows with different strides, whether the
// memory from first to last byte meets.
bool Overlap(const MemoryRows& a, const MemoryRows& b);

template <typename A, typename B>
bool Overlap(const RowSpan<A>& a, const RowSpan<B>& b) {
  return Overlap(MemoryOf(a), MemoryOf(b));
}

struct MemoryUse {
  MemoryRows memory;
  bool written = false;
};

// Two of `uses` that overlap and of which one is written, by their places, ascending; which two,
// where there are several, is up to the addresses. O(n log n) where no two share their range of
// addresses as columns of one buffer do.
std::optional<std::pair<std::size_t, std::size_t>> FindOverlap(absl::Span<const MemoryUse> uses);

}  // namespace headwise

#endif  // HEADWISE_KERNELS_COMMON_MEMORY_OVERLAP_H_
