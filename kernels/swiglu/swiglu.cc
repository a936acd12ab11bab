#include "kernels/swiglu/swiglu.h"

#include <tuple>

#include "kernels/common/math.h"
#include "kernels/common/row_loops.h"
#include "kernels/common/simd.h"

namespace headwise {

template <typename T>
void SwigluForward(RowSpan<const T> gate, RowSpan<const T> up, RowSpan<T> out, ThreadPool& pool) {
  using V = Vec16<Compute<T>>;
  MapElements(std::tuple(out), std::tuple(gate, up), pool,
              [](V g, V u) HW_ALWAYS_INLINE { return (g * Sigmoid(g)) * u; });
}

template <typename T>
void SwigluBackward(RowSpan<const T> gate, RowSpan<const T> up, RowSpan<const T> dout,
                    RowSpan<T> dgate, RowSpan<T> dup, ThreadPool& pool) {
  using V = Vec16<Compute<T>>;
  MapElements(std::tuple(dgate, dup), std::tuple(gate, up, dout), pool,
              [](V g, V u, V d) HW_ALWAYS_INLINE {
                const SigmoidPair sigmoid(g);
                const V silu = g * sigmoid.value;
                return std::tuple((d * u) * Fma(silu, sigmoid.complement, sigmoid.value), d * silu);
              });
}

#define HEADWISE_INSTANTIATE(T)                                                                \
  template void SwigluForward<T>(RowSpan<const T>, RowSpan<const T>, RowSpan<T>, ThreadPool&); \
  template void SwigluBackward<T>(RowSpan<const T>, RowSpan<const T>, RowSpan<const T>,        \
                                  RowSpan<T>, RowSpan<T>, ThreadPool&);
HEADWISE_INSTANTIATE(float)
HEADWISE_INSTANTIATE(BFloat16)
HEADWISE_INSTANTIATE(double)
#undef HEADWISE_INSTANTIATE

}  // namespace headwise
