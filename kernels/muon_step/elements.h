// The element-wise halves of a Muon step, on a run of consecutive elements. Internal to this family:
// the fast path applies them block by block, parts.h to any part of a weight.
#ifndef HEADWISE_KERNELS_MUON_STEP_ELEMENTS_H_
#define HEADWISE_KERNELS_MUON_STEP_ELEMENTS_H_

#include <cmath>
#include <cstdint>

#include "kernels/common/simd.h"
#include "kernels/muon_step/arguments.h"

namespace headwise::muon_step {

// m and u from the gradient and m. V is F16 or float.
template <typename V>
[[gnu::always_inline]] inline void UpdateMomentum(const Constants& k, V gradient, V& m, V& u) {
  const V g = gradient * V(k.gradient_scale);
  m = Fma(V(k.one_minus_beta), g - m, m);
  u = k.nesterov ? Fma(V(k.beta), m - g, g) : m;
}

// m[i] <- ..., u[i], for 0 <= i < length.
template <typename G>
[[gnu::always_inline]] inline void MomentumRun(const Constants& k, const G* g, float* m, float* u,
                                               std::int64_t length) {
  std::int64_t i = 0;
  for (; i + kLanes <= length; i += kLanes) {
    F16 new_m = headwise::Load(m + i), new_u;
    UpdateMomentum(k, LoadWiden(g + i), new_m, new_u);
    headwise::Store(m + i, new_m);
    headwise::Store(u + i, new_u);
  }
  for (; i < length; ++i) UpdateMomentum(k, Widen(g[i]), m[i], u[i]);
}

// w[i] <- w[i] decay + minus_p o[i].
[[gnu::always_inline]] inline void WeightRun(const Constants& k, float minus_p, const float* o,
                                             float* w, std::int64_t length) {
  std::int64_t i = 0;
  for (; i + kLanes <= length; i += kLanes) {
    const F16 decayed = headwise::Load(w + i) * F16(k.decay);
    headwise::Store(w + i, Fma(F16(minus_p), headwise::Load(o + i), decayed));
  }
  for (; i < length; ++i) w[i] = std::fma(minus_p, o[i], w[i] * k.decay);
}

}  // namespace headwise::muon_step

#endif  // HEADWISE_KERNELS_MUON_STEP_ELEMENTS_H_
