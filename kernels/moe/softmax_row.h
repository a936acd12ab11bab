// The softmax over all experts of one token, as router.h and balancing.h use it. Internal to
// kernels/moe.
//
//   p = Exp(z - m) / s;  m = the largest z, NaN taking no part;  s by the 64 chains of ReduceRow
#ifndef HEADWISE_KERNELS_MOE_SOFTMAX_ROW_H_
#define HEADWISE_KERNELS_MOE_SOFTMAX_ROW_H_

#include <cstdint>
#include <limits>

#include "kernels/common/math.h"
#include "kernels/common/row_loops.h"
#include "kernels/common/simd.h"

namespace headwise::moe {

// z, p [experts], any alignment; p may be z.
template <typename C>
void SoftmaxRow(const C* z, std::int64_t experts, C* p) {
  using V = Vec16<C>;
  constexpr C kLeast = -std::numeric_limits<C>::infinity();
  V largest = kLeast;
  ForEachLanes(0, experts, [&](auto at) HW_ALWAYS_INLINE {
    largest = Max(at.Load(z, kLeast), largest);  // NaN > x is false: largest stays
  });
  const V max = HorizontalMax(largest);
  // Lanes past the end load -infinity: probability zero, which leaves its chain as it is. Without a
  // finite maximum they add NaN, as the row's own elements do.
  const C sum = ReduceRow<C>(experts, [&](V chain, auto at) HW_ALWAYS_INLINE {
    const V e = Exp(at.Load(z, kLeast) - max);
    at.Store(p, e);
    return chain + e;
  });
  ForEachLanes(0, experts, [&](auto at) HW_ALWAYS_INLINE { at.Store(p, at.Load(p) / V(sum)); });
}

}  // namespace headwise::moe

#endif  // HEADWISE_KERNELS_MOE_SOFTMAX_ROW_H_
