// The steps that the whole and the sharded cross-entropy share: what is done to an element, by the
// order of operations of cross_entropy.h, and the checks of their arguments. Of this package only.
//
//   WithCap<float>(op, [&](auto steps) {
//     const auto [l, h] = steps.Logit(at.Load(z));          // V: a vector of lanes, or one
//     at.Store(dz, steps.Gradient(Exp(l - V(m)) * V(inverse), h, V(g)));
//   });
#ifndef HEADWISE_KERNELS_CROSS_ENTROPY_LOGIT_STEPS_H_
#define HEADWISE_KERNELS_CROSS_ENTROPY_LOGIT_STEPS_H_

#include <cstdint>

#include "absl/types/span.h"
#include "core/base/check.h"
#include "kernels/common/math.h"
#include "kernels/common/simd.h"
#include "kernels/cross_entropy/cross_entropy.h"

namespace headwise {

// The transform's constants, rounded once, and its use. C: float or double.
template <bool kCapped, typename C>
class LogitSteps {
 public:
  explicit LogitSteps(const LogitTransform& op)
      : k_(static_cast<C>(kCapped ? op.multiplier / op.cap : op.multiplier)),
        cap_(static_cast<C>(op.cap)) {}

  static constexpr bool capped() { return kCapped; }

  template <typename V>
  struct Values {
    V l;  // the logit
    V h;  // its tanh; l where there is no cap
  };
  // z (in): an element of the head's raw output.
  template <typename V>
  [[gnu::always_inline]] Values<V> Logit(V z) const {
    const V scaled = z * V(k_);
    if constexpr (kCapped) {
      const V h = Tanh(scaled);
      return {V(cap_) * h, h};
    } else {
      return {scaled, scaled};
    }
  }

  // dz. p (in): the probability, less 1 for the target; g (in): GradientScale().
  template <typename V>
  [[gnu::always_inline]] static V Gradient(V p, V h, V g) {
    const V scaled = p * g;
    if constexpr (kCapped) {
      return scaled * Fma(-h, h, V(C(1)));
    } else {
      return scaled;
    }
  }

 private:
  C k_;
  C cap_;
};

// f(LogitSteps<op has a cap, C>). A negative cap fails an HW_CHECK.
template <typename C, typename F>
void WithCap(const LogitTransform& op, const F& f) {
  HW_CHECK(op.cap >= 0) << "cap " << op.cap;
  if (op.cap > 0) {
    f(LogitSteps<true, C>(op));
  } else {
    f(LogitSteps<false, C>(op));
  }
}

template <typename C>
C GradientScale(const LogitTransform& op, double loss_scale) {
  return static_cast<C>(loss_scale * op.multiplier);
}

inline void CheckTargets(absl::Span<const std::int32_t> targets, std::int64_t rows,
                         std::int64_t vocabulary) {
  HW_CHECK_EQ(static_cast<std::int64_t>(targets.size()), rows);
  for (std::size_t t = 0; t < targets.size(); ++t) {
    HW_CHECK(targets[t] == kIgnoredTarget || (targets[t] >= 0 && targets[t] < vocabulary))
        << "target " << targets[t] << " at index " << t << ", vocabulary " << vocabulary;
  }
}

}  // namespace headwise

#endif  // HEADWISE_KERNELS_CROSS_ENTROPY_LOGIT_STEPS_H_
