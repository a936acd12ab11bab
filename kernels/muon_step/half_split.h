// How fp32 matrices become fp16 operands of tensor cores without losing fp32's accuracy: the
// arithmetic of MuonMode::kTensorCore (cuda.h), apart from any kernel.
//
// A float x, |x| < 2^15, is split in two halves (fp16 numbers):
//
//   high = half(x);  low = half((x - high) 2^11);  x ~ high + 2^-11 low
//
// The difference is exact in fp32, and the factor keeps `low` from underflowing with it. The error
// is at most max(2^-22 |x|, 2^-36): kSplitRelative, kSplitAbsolute. A product of two matrices takes
// three products of halves, each exact in fp32 but for its sum:
//
//   a b ~ high_a high_b + 2^-11 (high_a low_b + low_a high_b)
//
// What is left out, 2^-22 low_a low_b, is at most 2^-22 |a| |b|. With sums in fp32, in any order, each
// addition rounded or chopped, a dot product of `terms` terms is wrong by at most
// SplitDotBound(terms) times sum |a| |b|, as long as no |x| is below kSplitFloor = 2^-14, below which
// kSplitAbsolute takes over. A power of two (HalfScale) first brings a matrix's largest magnitude
// into [2^14, 2^15), so that only what is below 2^-28 of it loses digits.
//
// Where one half is enough (X, whose errors are not amplified by the chain's powers), x ~ half(x) with
// an error of at most max(2^-11 |x|, 2^-25).
//
// After H. Ootomo and R. Yokota, "Recovering single precision accuracy from Tensor Cores while
// surpassing the FP32 theoretical peak performance" (arXiv:2203.03341).
//
//   const float scale = HalfScale(largest);
//   const HalfPair p = SplitHalf(x * scale);    // exact: a power of two
#ifndef HEADWISE_KERNELS_MUON_STEP_HALF_SPLIT_H_
#define HEADWISE_KERNELS_MUON_STEP_HALF_SPLIT_H_

#include <bit>
#include <cstdint>

#include "absl/types/span.h"
#include "core/base/check.h"
#include "core/dtype/fp16.h"

namespace headwise::muon_step {

inline constexpr float kLowScale = 0x1p11f;
inline constexpr float kSplitRelative = 0x1p-22f;
inline constexpr float kSplitAbsolute = 0x1p-36f;
inline constexpr float kSplitFloor = 0x1p-14f;

// Bits of two fp16 numbers.
struct HalfPair {
  std::uint16_t high, low;
};

constexpr HalfPair SplitHalf(float x) {
  const std::uint16_t high = RoundToFloat16(x);
  return {high, RoundToFloat16((x - Float16ToFloat(high)) * kLowScale)};
}

// The number that a pair stands for; a double holds it exactly.
constexpr double Value(HalfPair p) {
  return double{Float16ToFloat(p.high)} + double{Float16ToFloat(p.low)} / double{kLowScale};
}

// The power of two that brings a finite magnitude > 0, not subnormal, into [2^14, 2^15). Multiplying
// by it is exact for every float that does not become subnormal.
constexpr float HalfScale(float largest) {
  const int exponent = static_cast<int>(std::bit_cast<std::uint32_t>(largest) >> 23 & 0xffu) - 127;
  const int scale = exponent < 14 - 127 ? 127 : 14 - exponent;
  return std::bit_cast<float>(static_cast<std::uint32_t>(scale + 127) << 23);
}

// See above: for sums of `terms` terms.
constexpr double SplitDotBound(std::int64_t terms) {
  return 3.01 * 0x1p-22 + static_cast<double>(terms + 2) * 0x1p-23;
}

// What the three products of halves add up to, as a tensor core's serial sums in fp32 would.
inline float SplitDot(absl::Span<const float> a, absl::Span<const float> b) {
  HW_CHECK_EQ(a.size(), b.size());
  float main = 0.0f, cross = 0.0f;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const HalfPair x = SplitHalf(a[i]), y = SplitHalf(b[i]);
    main += Float16ToFloat(x.high) * Float16ToFloat(y.high);
    cross += Float16ToFloat(x.high) * Float16ToFloat(y.low);
    cross += Float16ToFloat(x.low) * Float16ToFloat(y.high);
  }
  return main + cross / kLowScale;
}

}  // namespace headwise::muon_step

#endif  // HEADWISE_KERNELS_MUON_STEP_HALF_SPLIT_H_
