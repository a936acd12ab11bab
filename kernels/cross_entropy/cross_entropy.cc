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
#include "kernels/cross_entropy/logit_steps.h"

namespace headwise {
namespace {

// One row. l and h are working memory for the row, its width rounded up to whole vectors; h is used
// if there is a cap. dz may be null.
template <typename T, typename Steps>
Compute<T> RowLoss(const Steps& steps, const Compute<T>* z, std::int64_t width, std::int64_t target,
                   Compute<T> gradient_scale, Compute<T>* l, Compute<T>* h, T* dz) {
  using C = Compute<T>;
  using V = Vec16<C>;
  const std::int64_t padded = (width + kLanes - 1) / kLanes * kLanes;
  // z is not read after this loop: dz may be z.
  ForEachLanes(0, width, [&](auto at) HW_ALWAYS_INLINE {
    const auto logit = steps.Logit(at.Load(z));
    if constexpr (Steps::capped()) Store(h + at.begin, logit.h);
    Store(l + at.begin, logit.l);
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
  const C target_probability = l[target] * inverse;
  ForEachLanes(0, width, [&](auto at) HW_ALWAYS_INLINE {
    at.Store(
        dz, steps.Gradient(Load(l + at.begin) * V(inverse), Load(h + at.begin), V(gradient_scale)));
  });
  dz[target] = Narrow<T>(steps.Gradient(target_probability - C(1), h[target], gradient_scale));
  return loss;
}

}  // namespace

template <typename T>
void CrossEntropy(const LogitTransform& op, RowSpan<const Compute<T>> z,
                  absl::Span<const std::int32_t> targets, double loss_scale,
                  absl::Span<Compute<T>> losses, RowSpan<T> dz, ThreadPool& pool) {
  using C = Compute<T>;
  CheckTargets(targets, z.rows, z.width);
  HW_CHECK_EQ(losses.size(), targets.size());
  if (dz.data != nullptr) {
    HW_CHECK_EQ(dz.rows, z.rows);
    HW_CHECK_EQ(dz.width, z.width);
  }
  const C gradient_scale = GradientScale<C>(op, loss_scale);
  const std::int64_t padded = (z.width + kLanes - 1) / kLanes * kLanes;
  const std::int64_t rows_of_task =
      std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(z.width, 1));
  WithCap<C>(op, [&](auto steps) {
    pool.ParallelFor((z.rows + rows_of_task - 1) / rows_of_task, [&](std::int64_t task) {
      ThreadScratch scratch;
      C* const l = scratch.Take<C>(padded);
      C* const h = steps.capped() ? scratch.Take<C>(padded) : l;
      const std::int64_t end = std::min((task + 1) * rows_of_task, z.rows);
      for (std::int64_t t = task * rows_of_task; t < end; ++t) {
        T* const gradient = dz.data == nullptr ? nullptr : dz.row(t);
        if (targets[t] == kIgnoredTarget) {
          losses[t] = 0;
          if (gradient != nullptr) std::fill_n(gradient, z.width, Narrow<T>(0));
        } else {
          losses[t] = RowLoss(steps, z.row(t), z.width, targets[t], gradient_scale, l, h, gradient);
        }
      }
    });
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
  WithCap<float>(op, [&](auto steps) {
    MapElements(std::tuple(logits), std::tuple(z), pool,
                [&](F16 x) HW_ALWAYS_INLINE { return steps.Logit(x).l; });
  });
}

double SumLosses(absl::Span<const float> losses) {
  AdjacentPairAccumulator<double> sum;
  for (const float loss : losses) sum.Add(loss);
  return sum.Total();
}

}  // namespace headwise
