// Dim3: the extents of a grid or of a block, or a place in one.
#ifndef HEADWISE_KERNELS_EMULATION_DIM3_H_
#define HEADWISE_KERNELS_EMULATION_DIM3_H_

#include <cstdint>

namespace headwise::emulation {

struct Dim3 {
  unsigned x, y, z;

  // What is not given is 1; a plain number is a Dim3, as in a kernel launch.
  constexpr Dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1)  // NOLINT(google-explicit-*)
      : x(x), y(y), z(z) {}

  constexpr std::int64_t Count() const { return std::int64_t{x} * y * z; }
  friend bool operator==(const Dim3&, const Dim3&) = default;
};

// The i-th of extents.Count() places, x fastest.
constexpr Dim3 PlaceAt(std::int64_t i, const Dim3& extents) {
  return Dim3(static_cast<unsigned>(i % extents.x),
              static_cast<unsigned>(i / extents.x % extents.y),
              static_cast<unsigned>(i / extents.x / extents.y));
}

}  // namespace headwise::emulation

#endif  // HEADWISE_KERNELS_EMULATION_DIM3_H_
