#include "kernels/rms_norm/rms_norm.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

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

// What a style does to the elements of a row, sixteen at a time. A compile-time choice, so that the
// loops are without branches.
template <typename T, RmsNormStyle kStyle>
struct Style {
  using C = Compute<T>;
  using V = Vec16<C>;
  static constexpr bool kHasWeight = kStyle != RmsNormStyle::kScaleless;
  static constexpr bool kScalesInput = kStyle == RmsNormStyle::kInputScaled;

  const C* weight;
  C centre;

  // w'
  template <typename Lanes>
  [[gnu::always_inline]] V Scale(Lanes at) const {
    if constexpr (kStyle == RmsNormStyle::kWeighted) {
      return at.Load(weight);
    } else {
      return V(centre) + at.Load(weight);
    }
  }

  // u, of the elements of x.
  template <typename Lanes>
  [[gnu::always_inline]] V Input(const T* x, Lanes at) const {
    if constexpr (kScalesInput) {
      T rounded[kLanes];
      StoreNarrow(rounded, at.Load(x) * Scale(at));
      return LoadWiden(rounded);
    } else {
      return at.Load(x);
    }
  }

  // v * w' of a style that scales after it has normalised, else v.
  template <typename Lanes>
  [[gnu::always_inline]] V Output(V v, Lanes at) const {
    if constexpr (kHasWeight && !kScalesInput) {
      return v * Scale(at);
    } else {
      return v;
    }
  }
};

// f(Style<T, op.style>).
template <typename T, typename F>
void WithStyle(const RmsNorm& op, absl::Span<const Compute<T>> weight, F f) {
  const auto call = [&]<RmsNormStyle kStyle>() {
    f(Style<T, kStyle>{weight.data(), static_cast<Compute<T>>(op.centre)});
  };
  switch (op.style) {
    case RmsNormStyle::kWeighted:
      return call.template operator()<RmsNormStyle::kWeighted>();
    case RmsNormStyle::kGainCentered:
      return call.template operator()<RmsNormStyle::kGainCentered>();
    case RmsNormStyle::kScaleless:
      return call.template operator()<RmsNormStyle::kScaleless>();
    case RmsNormStyle::kInputScaled:
      return call.template operator()<RmsNormStyle::kInputScaled>();
  }
}

// r of a row of n elements.
template <typename T, RmsNormStyle kStyle>
Compute<T> ReciprocalRms(const Style<T, kStyle>& style, const T* x, std::int64_t n, float epsilon) {
  using C = Compute<T>;
  const C squares = ReduceRow<C>(n, [&](auto acc, auto at) HW_ALWAYS_INLINE {
    const auto u = style.Input(x, at);
    return Fma(u, u, acc);
  });
  const C v = squares / static_cast<C>(n) + static_cast<C>(epsilon);
  return static_cast<C>(1.0 / std::sqrt(static_cast<double>(v)));
}

}  // namespace

template <typename T>
void RmsNormForward(const RmsNorm& op, RowSpan<const T> x, absl::Span<const Compute<T>> weight,
                    RowSpan<T> y, ThreadPool& pool) {
  CheckShapes(op, x, weight);
  HW_CHECK_EQ(y.rows, x.rows);
  HW_CHECK_EQ(y.width, x.width);
  const std::int64_t n = x.width;
  if (x.rows == 0 || n == 0) return;
  const std::int64_t rows_of_task = std::max<std::int64_t>(1, 16384 / n);
  WithStyle<T>(op, weight, [&](const auto style) {
    pool.ParallelFor((x.rows + rows_of_task - 1) / rows_of_task, [&](std::int64_t task) {
      const std::int64_t end = std::min((task + 1) * rows_of_task, x.rows);
      for (std::int64_t t = task * rows_of_task; t < end; ++t) {
        const T* const in = x.row(t);
        T* const out = y.row(t);
        const auto r = ReciprocalRms(style, in, n, op.epsilon);
        ForEachLanes(0, n, [&](auto at) HW_ALWAYS_INLINE {
          at.Store(out, style.Output(style.Input(in, at) * r, at));
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
  WithStyle<T>(op, weight, [&](const auto style) {
    using S = decltype(style);
    SumOverTokens<C>(x.rows, dweight, pool, [&](std::int64_t begin, std::int64_t end, C* acc) {
      for (std::int64_t t = begin; t < end; ++t) {
        const T* const in = x.row(t);
        const T* const gradient = dy.row(t);
        T* const out = dx.row(t);
        const C r = ReciprocalRms(style, in, n, op.epsilon);
        const C c = ReduceRow<C>(n,
                                 [&](auto sum, auto at) HW_ALWAYS_INLINE {
                                   const auto h = style.Output(at.Load(gradient), at);
                                   return Fma(h, style.Input(in, at) * r, sum);
                                 }) /
                    static_cast<C>(n);
        ForEachLanes(0, n, [&](auto at) HW_ALWAYS_INLINE {
          const auto g = at.Load(gradient);
          const auto uh = style.Input(in, at) * r;
          const auto du = Vec16<C>(r) * Fma(-uh, Vec16<C>(c), style.Output(g, at));
          if constexpr (S::kScalesInput) {
            at.Store(out, du * style.Scale(at));
            at.Store(acc, Fma(du, at.Load(in), at.Load(acc)));
          } else {
            at.Store(out, du);
            if constexpr (S::kHasWeight) at.Store(acc, Fma(g, uh, at.Load(acc)));
          }
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
