#include "kernels/adamw/adamw.h"

#include <cmath>
#include <tuple>

#include "core/base/check.h"
#include "core/tensor/row_span.h"
#include "kernels/common/row_loops.h"
#include "kernels/common/simd.h"

namespace headwise {
namespace {

// base^exponent by repeated squaring: unlike std::pow, the same bits everywhere.
double Power(double base, std::int64_t exponent) {
  double power = 1;
  for (; exponent > 0; exponent >>= 1) {
    if (exponent & 1) power *= base;
    base *= base;
  }
  return power;
}

}  // namespace

template <typename C>
AdamWFactors<C> MakeAdamWFactors(const AdamWHyperparameters& hyper, std::int64_t step,
                                 double gradient_scale) {
  HW_CHECK_GE(step, 1);
  return {.a = static_cast<C>(1 - hyper.beta1),
          .b = static_cast<C>(1 - hyper.beta2),
          .decay = static_cast<C>(1 - hyper.learning_rate * hyper.weight_decay),
          .epsilon = static_cast<C>(hyper.epsilon),
          .p = static_cast<C>(hyper.learning_rate / (1 - Power(hyper.beta1, step))),
          .q = static_cast<C>(1 / std::sqrt(1 - Power(hyper.beta2, step))),
          .gradient_scale = static_cast<C>(gradient_scale)};
}

template <typename C>
void AdamWStep(const AdamWHyperparameters& hyper, std::int64_t step, double gradient_scale,
               absl::Span<C> weight, absl::Span<C> m, absl::Span<C> v, absl::Span<const C> gradient,
               ThreadPool& pool) {
  using V = Vec16<C>;
  const AdamWFactors<C> factors = MakeAdamWFactors<C>(hyper, step, gradient_scale);
  HW_CHECK_EQ(m.size(), weight.size());
  HW_CHECK_EQ(v.size(), weight.size());
  HW_CHECK_EQ(gradient.size(), weight.size());
  const V a = factors.a, b = factors.b, decay = factors.decay;
  const V epsilon = factors.epsilon, p = factors.p, q = factors.q;
  const auto update = [&](V w, V m, V v, V g) HW_ALWAYS_INLINE {
    m = Fma(a, g - m, m);
    v = Fma(b, Fma(g, g, -v), v);
    return std::tuple(Fma(-p, m / Fma(Sqrt(v), q, epsilon), w * decay), m, v);
  };
  const auto row = [](auto span) {
    return RowSpan(span.data(), 1, static_cast<std::int64_t>(span.size()));
  };
  const std::tuple state(row(weight), row(m), row(v));
  const auto inputs = std::tuple_cat(state, std::tuple(row(gradient)));
  if (gradient_scale == 1) {
    MapElements(state, inputs, pool, update);
  } else {
    const V scale = factors.gradient_scale;
    MapElements(state, inputs, pool,
                [&](V w, V m, V v, V g) HW_ALWAYS_INLINE { return update(w, m, v, g * scale); });
  }
}

#define HEADWISE_INSTANTIATE(C)                                                                 \
  template AdamWFactors<C> MakeAdamWFactors(const AdamWHyperparameters&, std::int64_t, double); \
  template void AdamWStep<C>(const AdamWHyperparameters&, std::int64_t, double, absl::Span<C>,  \
                             absl::Span<C>, absl::Span<C>, absl::Span<const C>, ThreadPool&);
HEADWISE_INSTANTIATE(float)
HEADWISE_INSTANTIATE(double)
#undef HEADWISE_INSTANTIATE

}  // namespace headwise
