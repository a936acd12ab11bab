#include "kernels/elementwise/elementwise.h"

#include <algorithm>
#include <tuple>

#include "core/base/check.h"
#include "kernels/common/math.h"
#include "kernels/common/row_loops.h"
#include "kernels/common/simd.h"

namespace headwise {

template <typename T>
void Add(RowSpan<const T> a, RowSpan<const T> b, RowSpan<T> out, ThreadPool& pool) {
  using V = Vec16<Compute<T>>;
  MapElements(std::tuple(out), std::tuple(a, b), pool,
              [](V x, V y) HW_ALWAYS_INLINE { return x + y; });
}

template <typename T>
void AddBias(RowSpan<const T> y, absl::Span<const Compute<T>> bias, RowSpan<T> out,
             ThreadPool& pool) {
  using V = Vec16<Compute<T>>;
  HW_CHECK_EQ(static_cast<std::int64_t>(bias.size()), y.width) << "bias of rows";
  const RowSpan<const Compute<T>> same_row(bias.data(), y.rows, y.width, /*stride=*/0);
  MapElements(std::tuple(out), std::tuple(y, same_row), pool,
              [](V x, V b) HW_ALWAYS_INLINE { return x + b; });
}

template <typename T>
void SigmoidGateForward(RowSpan<const T> x, RowSpan<const T> gate, RowSpan<T> out,
                        ThreadPool& pool) {
  using V = Vec16<Compute<T>>;
  MapElements(std::tuple(out), std::tuple(x, gate), pool,
              [](V v, V g) HW_ALWAYS_INLINE { return v * Sigmoid(g); });
}

template <typename T>
void SigmoidGateBackward(RowSpan<const T> x, RowSpan<const T> gate, RowSpan<const T> dout,
                         RowSpan<T> dx, RowSpan<T> dgate, ThreadPool& pool) {
  using V = Vec16<Compute<T>>;
  MapElements(
      std::tuple(dx, dgate), std::tuple(x, gate, dout), pool, [](V v, V g, V d) HW_ALWAYS_INLINE {
        const SigmoidPair sigmoid(g);
        return std::tuple(d * sigmoid.value, ((d * v) * sigmoid.value) * sigmoid.complement);
      });
}

template <typename From, typename To>
void Convert(RowSpan<const From> in, RowSpan<To> out, ThreadPool& pool) {
  MapElements(std::tuple(out), std::tuple(in), pool, [](F16 x) HW_ALWAYS_INLINE { return x; });
}

template <typename T>
void ScatterRows(RowSpan<const T> in, absl::Span<const std::int64_t> destinations, RowSpan<T> out,
                 ThreadPool& pool) {
  HW_CHECK_EQ(static_cast<std::int64_t>(destinations.size()), in.rows) << "destinations of rows";
  HW_CHECK_EQ(in.width, out.width) << "ScatterRows";
  constexpr std::int64_t kRowsOfTask = 16;
  pool.ParallelFor((in.rows + kRowsOfTask - 1) / kRowsOfTask, [&](std::int64_t task) {
    const std::int64_t end = std::min(in.rows, (task + 1) * kRowsOfTask);
    for (std::int64_t t = task * kRowsOfTask; t < end; ++t) {
      const std::int64_t to = destinations[t];
      if (to < 0 || to >= out.rows) continue;
      std::copy_n(in.row(t), in.width, out.row(to));
    }
  });
}

#define HEADWISE_INSTANTIATE(T)                                                              \
  template void Add<T>(RowSpan<const T>, RowSpan<const T>, RowSpan<T>, ThreadPool&);         \
  template void AddBias<T>(RowSpan<const T>, absl::Span<const Compute<T>>, RowSpan<T>,       \
                           ThreadPool&);                                                     \
  template void SigmoidGateForward<T>(RowSpan<const T>, RowSpan<const T>, RowSpan<T>,        \
                                      ThreadPool&);                                          \
  template void SigmoidGateBackward<T>(RowSpan<const T>, RowSpan<const T>, RowSpan<const T>, \
                                       RowSpan<T>, RowSpan<T>, ThreadPool&);                 \
  template void ScatterRows<T>(RowSpan<const T>, absl::Span<const std::int64_t>, RowSpan<T>, \
                               ThreadPool&);
HEADWISE_INSTANTIATE(float)
HEADWISE_INSTANTIATE(BFloat16)
HEADWISE_INSTANTIATE(double)
#undef HEADWISE_INSTANTIATE

template void Convert<float, BFloat16>(RowSpan<const float>, RowSpan<BFloat16>, ThreadPool&);
template void Convert<BFloat16, float>(RowSpan<const BFloat16>, RowSpan<float>, ThreadPool&);
template void Convert<float, float>(RowSpan<const float>, RowSpan<float>, ThreadPool&);

}  // namespace headwise
