#include "kernels/swiglu/swiglu.h"

#include <tuple>

#include "core/base/check.h"
#include "kernels/common/math.h"
#include "kernels/common/row_loops.h"
#include "kernels/common/simd.h"

namespace headwise {
namespace {

// The clamped form's constants, rounded once, and what both directions compute from an element.
template <typename C>
struct Clamped {
  using V = Vec16<C>;

  explicit Clamped(const Swiglu& op)
      : alpha(static_cast<C>(op.alpha)), limit(static_cast<C>(op.limit)) {
    HW_CHECK(op.limit > 0) << "limit " << op.limit;
  }
  // NaN stays.
  [[gnu::always_inline]] V Gate(V gate) const { return Min(limit, gate); }
  [[gnu::always_inline]] V UpPlusOne(V up) const { return Max(-limit, Min(limit, up)) + V(C{1}); }

  V alpha, limit;
};

}  // namespace

template <typename T>
void SwigluForward(const Swiglu& op, RowSpan<const T> gate, RowSpan<const T> up, RowSpan<T> out,
                   ThreadPool& pool) {
  using V = Vec16<Compute<T>>;
  if (!op.clamped) {
    MapElements(std::tuple(out), std::tuple(gate, up), pool,
                [](V g, V u) HW_ALWAYS_INLINE { return (g * Sigmoid(g)) * u; });
    return;
  }
  const Clamped<Compute<T>> clamped(op);
  MapElements(std::tuple(out), std::tuple(gate, up), pool,
              [clamped](V gate_value, V up_value) HW_ALWAYS_INLINE {
                const V g = clamped.Gate(gate_value);
                return (g * Sigmoid(g * clamped.alpha)) * clamped.UpPlusOne(up_value);
              });
}

template <typename T>
void SwigluBackward(const Swiglu& op, RowSpan<const T> gate, RowSpan<const T> up,
                    RowSpan<const T> dout, RowSpan<T> dgate, RowSpan<T> dup, ThreadPool& pool) {
  using C = Compute<T>;
  using V = Vec16<C>;
  if (!op.clamped) {
    MapElements(std::tuple(dgate, dup), std::tuple(gate, up, dout), pool,
                [](V g, V u, V d) HW_ALWAYS_INLINE {
                  const SigmoidPair sigmoid(g);
                  const V silu = g * sigmoid.value;
                  return std::tuple((d * u) * Fma(silu, sigmoid.complement, sigmoid.value),
                                    d * silu);
                });
    return;
  }
  const Clamped<C> clamped(op);
  MapElements(std::tuple(dgate, dup), std::tuple(gate, up, dout), pool,
              [clamped](V gate_value, V up_value, V d) HW_ALWAYS_INLINE {
                const V g = clamped.Gate(gate_value);
                const SigmoidPair sigmoid(g * clamped.alpha);
                const V a = g * sigmoid.value;
                const V slope = Fma(a * clamped.alpha, sigmoid.complement, sigmoid.value);
                const V zero = C{0};
                return std::tuple(Select(gate_value <= clamped.limit,
                                         (d * clamped.UpPlusOne(up_value)) * slope, zero),
                                  Select(Abs(up_value) <= clamped.limit, d * a, zero));
              });
}

#define HEADWISE_INSTANTIATE(T)                                                                 \
  template void SwigluForward<T>(const Swiglu&, RowSpan<const T>, RowSpan<const T>, RowSpan<T>, \
                                 ThreadPool&);                                                  \
  template void SwigluBackward<T>(const Swiglu&, RowSpan<const T>, RowSpan<const T>,            \
                                  RowSpan<const T>, RowSpan<T>, RowSpan<T>, ThreadPool&);
HEADWISE_INSTANTIATE(float)
HEADWISE_INSTANTIATE(BFloat16)
HEADWISE_INSTANTIATE(double)
#undef HEADWISE_INSTANTIATE

}  // namespace headwise
