#include "kernels/rms_norm/rms_norm.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "core/base/check.h"
#include "kernels/common/reductions.h"
#include "kernels/common/row_loops.h"
#include "kernels/common/simd.h"

namespace headwise {
namespace {

template <typename T>
void CheckShapes(const RmsNorm& op, RowSpan<const T> x, absl::Span<const Compute<T>> weight) {
  const bool scaleless = op.style == RmsNormStyle::kScaleless;
  HW_CHECK_EQ(static_cast<std::int64_t>(weight.size()), scaleless ? 0 : x.width)
      << (scaleless ? "kScaleless has no weight" : "weight against the width of x");
}

// Calls f with the effective scale as a function of the lanes' place: at -> w'. A compile-time
// choice, so that the loops inside f are without branches. For kScaleless f gets nullptr.
template <typename C, typename F>
void WithScale(const RmsNorm& op, const C* weight, F f) {
  switch (op.style) {
    case RmsNormStyle::kWeighted:
      return f([=](auto at) HW_ALWAYS_INLINE { return at.Load(weight); });
    case RmsNormStyle::kGainCentered: {
      const C centre = op.centre;
      return f([=](auto at) HW_ALWAYS_INLINE { return Vec16<C>(centre) + at.Load(weight); });
    }
    case RmsNormStyle::kScaleless:
      return f(nullptr);
  }
}

// x * w', or x for kScaleless.
template <typename V, typename Scale, typename Lanes>
[[gnu::always_inline]] inline V Scaled(V x, const Scale& scale, Lanes at) {
  if constexpr (std::is_same_v<Scale, std::nullptr_t>) {
    return x;
  } else {
    return x * scale(at);
  }
}

template <typename T>
Compute<T> ReciprocalRms(const T* x, std::int64_t n, Compute<T> epsilon) {
  using C = Compute<T>;
  const C squares = ReduceRow<C>(n, [&](auto acc, auto at) HW_ALWAYS_INLINE {
    const auto v = at.Load(x);
    return Fma(v, v, acc);
  });
  const C v = squares / static_cast<C>(n) + epsilon;
  return static_cast<C>(1.0 / std::sqrt(static_cast<double>(v)));
}

}  // namespace

template <typename T>
void RmsNormForward(const RmsNorm& op, RowSpan<const T> x, absl::Span<const Compute<T>> weight,
                    RowSpan<T> y, ThreadPool& pool) {
  using C = Compute<T>;
  CheckShapes(op, x, weight);
  HW_CHECK_EQ(y.rows, x.rows);
  HW_CHECK_EQ(y.width, x.width);
  const std::int64_t n = x.width;
  if (x.rows == 0 || n == 0) return;
  const std::int64_t rows_of_task = std::max<std::int64_t>(1, 16384 / n);
  WithScale<C>(op, weight.data(), [&](auto scale) {
    pool.ParallelFor((x.rows + rows_of_task - 1) / rows_of_task, [&](std::int64_t task) {
      const std::int64_t end = std::min((task + 1) * rows_of_task, x.rows);
      for (std::int64_t t = task * rows_of_task; t < end; ++t) {
        const T* const in = x.row(t);
        T* const out = y.row(t);
        const C r = ReciprocalRms(in, n, static_cast<C>(op.epsilon));
        ForEachLanes(0, n, [&](auto at) HW_ALWAYS_INLINE {
          at.Store(out, Scaled(at.Load(in) * r, scale, at));
        });
      }
    });
  });
}

template <typename T>
void RmsNormBackward(const RmsNorm& op, RowSpan<const T> x, absl::Span<const Compute<T>> weight,
                     RowSpan<const T> dy, RowSpan<T> dx, absl::Span<Compute<T>> dweight,
                     ThreadPool& pool) {
  using C = Compute<T>;
  CheckShapes(op, x, weight);
  HW_CHECK_EQ(dy.rows, x.rows);
  HW_CHECK_EQ(dy.width, x.width);
  HW_CHECK_EQ(dx.rows, x.rows);
  HW_CHECK_EQ(dx.width, x.width);
  HW_CHECK_EQ(dweight.size(), weight.size());
  const std::int64_t n = x.width;
  if (n == 0) return;
  WithScale<C>(op, weight.data(), [&](auto scale) {
    constexpr bool kHasWeight = !std::is_same_v<decltype(scale), std::nullptr_t>;
    SumOverTokens<C>(x.rows, dweight, pool, [&](std::int64_t begin, std::int64_t end, C* acc) {
      for (std::int64_t t = begin; t < end; ++t) {
        const T* const in = x.row(t);
        const T* const gradient = dy.row(t);
        T* const out = dx.row(t);
        const C r = ReciprocalRms(in, n, static_cast<C>(op.epsilon));
        const C c =
            ReduceRow<C>(n,
                         [&](auto sum, auto at) HW_ALWAYS_INLINE {
                           return Fma(Scaled(at.Load(gradient), scale, at), at.Load(in) * r, sum);
                         }) /
            static_cast<C>(n);
        ForEachLanes(0, n, [&](auto at) HW_ALWAYS_INLINE {
          const auto g = at.Load(gradient);
          const auto xh = at.Load(in) * r;
          at.Store(out, Vec16<C>(r) * Fma(-xh, Vec16<C>(c), Scaled(g, scale, at)));
          if constexpr (kHasWeight) at.Store(acc, Fma(g, xh, at.Load(acc)));
        });
      }
    });
  });
}

#define HEADWISE_INSTANTIATE(T)                                                                    \
  template void RmsNormForward<T>(const RmsNorm&, RowSpan<const T>, absl::Span<const Compute<T>>,  \
                                  RowSpan<T>, ThreadPool&);                                        \
  template void RmsNormBackward<T>(const RmsNorm&, RowSpan<const T>, absl::Span<const Compute<T>>, \
                                   RowSpan<const T>, RowSpan<T>, absl::Span<Compute<T>>,           \
                                   ThreadPool&);
HEADWISE_INSTANTIATE(float)
HEADWISE_INSTANTIATE(BFloat16)
HEADWISE_INSTANTIATE(double)
#undef HEADWISE_INSTANTIATE

}  // namespace headwise
