#include "kernels/cross_entropy/cross_entropy.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "core/base/check.h"
#include "kernels/common/math.h"
#include "kernels/common/reductions.h"
#include "kernels/common/row_loops.h"
#include "kernels/common/simd.h"
#include "kernels/common/thread_scratch.h"

namespace headwise {
namespace {

// The transform's constants, rounded once.
template <typename C>
struct Transform {
  explicit Transform(const LogitTransform& op)
      : k(static_cast<C>(op.cap > 0 ? op.multiplier / op.cap : op.multiplier)),
        cap(static_cast<C>(op.cap)) {
    HW_CHECK(op.cap >= 0) << "cap " << op.cap;
  }
  C k;
  C cap;
};

// One row. l and h are working memory for the row, its width rounded up to whole vectors; h is used
// if kCapped. dz may be null.
template <bool kCapped, typename T>
Compute<T> RowLoss(const Transform<Compute<T>>& transform, const Compute<T>* z, std::int64_t width,
                   std::int64_t target, Compute<T> gradient_scale, Compute<T>* l, Compute<T>* h,
                   T* dz) {
  using C = Compute<T>;
  using V = Vec16<C>;
  const V k = transform.k, cap = transform.cap;
  const std::int64_t padded = (width + kLanes - 1) / kLanes * kLanes;
  // z is not read after this loop: dz may be z.
  ForEachLanes(0, width, [&](auto at) HW_ALWAYS_INLINE {
    V logit = at.Load(z) * k;
    if constexpr (kCapped) {
      const V tanh = Tanh(logit);
      Store(h + at.begin, tanh);
      logit = cap * tanh;
    }
    Store(l + at.begin, logit);
  });
  std::fill(l + width, l + padded, -std::numeric_limits<C>::infinity());  // neither max nor sum

  V max = -std::numeric_limits<C>::infinity();
  for (std::int64_t i = 0; i < padded; i += kLanes) max = Max(Load(l + i), max);
  const C m = HorizontalMax(max);
  const C target_logit = l[target] - m;

  const C sum = ReduceRow<C>(padded, [&](V acc, auto at) HW_ALWAYS_INLINE {
    const V e = Exp(at.Load(l) - V(m));
    at.Store(l, e);
    return acc + e;
  });
  const C loss = Log(sum) - target_logit;
  if (dz == nullptr) return loss;

  const C inverse = C(1) / sum;
  const auto gradient = [&](auto p, auto tanh) HW_ALWAYS_INLINE {
    using W = decltype(p);
    const W scaled = p * W(gradient_scale);
    if constexpr (kCapped) {
      return scaled * Fma(-tanh, tanh, W(C(1)));
    } else {
      return scaled;
    }
  };
  const C target_probability = l[target] * inverse;
  ForEachLanes(0, width, [&](auto at) HW_ALWAYS_INLINE {
    at.Store(dz, gradient(Load(l + at.begin) * V(inverse), Load(h + at.begin)));
  });
  dz[target] = Narrow<T>(gradient(target_probability - C(1), h[target]));
  return loss;
}

}  // namespace

template <typename T>
void CrossEntropy(const LogitTransform& op, RowSpan<const Compute<T>> z,
                  absl::Span<const std::int32_t> targets, double loss_scale,
                  absl::Span<Compute<T>> losses, RowSpan<T> dz, ThreadPool& pool) {
  using C = Compute<T>;
  HW_CHECK_EQ(static_cast<std::int64_t>(targets.size()), z.rows);
  HW_CHECK_EQ(losses.size(), targets.size());
  if (dz.data != nullptr) {
    HW_CHECK_EQ(dz.rows, z.rows);
    HW_CHECK_EQ(dz.width, z.width);
  }
  for (std::size_t t = 0; t < targets.size(); ++t) {
    HW_CHECK(targets[t] == kIgnoredTarget || (targets[t] >= 0 && targets[t] < z.width))
        << "target " << targets[t] << " at index " << t << ", vocabulary " << z.width;
  }
  const Transform<C> transform(op);
  const C gradient_scale = static_cast<C>(loss_scale * op.multiplier);
  const std::int64_t padded = (z.width + kLanes - 1) / kLanes * kLanes;
  const std::int64_t rows_of_task =
      std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(z.width, 1));
  pool.ParallelFor((z.rows + rows_of_task - 1) / rows_of_task, [&](std::int64_t task) {
    ThreadScratch scratch;
    C* const l = scratch.Take<C>(padded);
    C* const h = op.cap > 0 ? scratch.Take<C>(padded) : l;
    const std::int64_t end = std::min((task + 1) * rows_of_task, z.rows);
    for (std::int64_t t = task * rows_of_task; t < end; ++t) {
      T* const gradient = dz.data == nullptr ? nullptr : dz.row(t);
      if (targets[t] == kIgnoredTarget) {
        losses[t] = 0;
        if (gradient != nullptr) std::fill_n(gradient, z.width, Narrow<T>(0));
      } else if (op.cap > 0) {
        losses[t] =
            RowLoss<true>(transform, z.row(t), z.width, targets[t], gradient_scale, l, h, gradient);
      } else {
        losses[t] = RowLoss<false>(transform, z.row(t), z.width, targets[t], gradient_scale, l, h,
                                   gradient);
      }
    }
  });
}

template void CrossEntropy<float>(const LogitTransform&, RowSpan<const float>,
                                  absl::Span<const std::int32_t>, double, absl::Span<float>,
                                  RowSpan<float>, ThreadPool&);
template void CrossEntropy<BFloat16>(const LogitTransform&, RowSpan<const float>,
                                     absl::Span<const std::int32_t>, double, absl::Span<float>,
                                     RowSpan<BFloat16>, ThreadPool&);
template void CrossEntropy<double>(const LogitTransform&, RowSpan<const double>,
                                   absl::Span<const std::int32_t>, double, absl::Span<double>,
                                   RowSpan<double>, ThreadPool&);

void TransformLogits(const LogitTransform& op, RowSpan<const float> z, RowSpan<float> logits,
                     ThreadPool& pool) {
  const Transform<float> transform(op);
  const F16 k = transform.k, cap = transform.cap;
  if (op.cap > 0) {
    MapElements(std::tuple(logits), std::tuple(z), pool,
                [&](F16 x) HW_ALWAYS_INLINE { return cap * Tanh(x * k); });
  } else {
    MapElements(std::tuple(logits), std::tuple(z), pool,
                [&](F16 x) HW_ALWAYS_INLINE { return x * k; });
  }
}

double SumLosses(absl::Span<const float> losses) {
  AdjacentPairAccumulator<double> sum;
  for (const float loss : losses) sum.Add(loss);
  return sum.Total();
}

}  // namespace headwise
