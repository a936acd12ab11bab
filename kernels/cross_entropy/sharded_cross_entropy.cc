#include "kernels/cross_entropy/sharded_cross_entropy.h"

#include <algorithm>
#include <limits>

#include "core/base/check.h"
#include "kernels/common/math.h"
#include "kernels/common/row_loops.h"
#include "kernels/common/simd.h"
#include "kernels/cross_entropy/logit_steps.h"

namespace headwise {
namespace {

// f(steps, t) for every row.
template <typename C, typename F>
void ForEachRow(const LogitTransform& op, RowSpan<const C> z, ThreadPool& pool, const F& f) {
  const std::int64_t rows_of_task =
      std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(z.width, 1));
  WithCap<C>(op, [&](auto steps) {
    pool.ParallelFor((z.rows + rows_of_task - 1) / rows_of_task, [&](std::int64_t task) {
      const std::int64_t end = std::min((task + 1) * rows_of_task, z.rows);
      for (std::int64_t t = task * rows_of_task; t < end; ++t) f(steps, t);
    });
  });
}

// v, with +0 in the lanes past the end of the row.
template <typename V>
[[gnu::always_inline]] inline V OfRow(FullLanes, V v) {
  return v;
}
template <typename V>
V OfRow(PartialLanes at, V v) {
  LaneOf<V> lanes[kLanes] = {};
  StorePartial(lanes, at.count, v);
  return Load(lanes);
}

}  // namespace

template <typename T>
void ShardMaxima(const LogitTransform& op, RowSpan<const Compute<T>> z,
                 absl::Span<Compute<T>> maxima, ThreadPool& pool) {
  using C = Compute<T>;
  HW_CHECK_EQ(static_cast<std::int64_t>(maxima.size()), z.rows);
  ForEachRow(op, z, pool, [&](const auto& steps, std::int64_t t) {
    const C* const row = z.row(t);
    Vec16<C> max = -std::numeric_limits<C>::infinity();
    ForEachLanes(0, z.width, [&](auto at) HW_ALWAYS_INLINE {
      // Lanes past the end hold an element once more.
      max = Max(steps.Logit(at.Load(row, row[at.begin])).l, max);
    });
    maxima[t] = HorizontalMax(max);
  });
}

template <typename C>
void LargestOfShards(RowSpan<const C> shards, absl::Span<C> maxima) {
  HW_CHECK_GE(shards.rows, 1);
  HW_CHECK_EQ(static_cast<std::int64_t>(maxima.size()), shards.width);
  std::copy_n(shards.row(0), shards.width, maxima.data());
  for (std::int64_t s = 1; s < shards.rows; ++s) {
    for (std::int64_t t = 0; t < shards.width; ++t) maxima[t] = Max(shards.row(s)[t], maxima[t]);
  }
}

template <typename T>
void ShardSums(const LogitTransform& op, RowSpan<const Compute<T>> z,
               absl::Span<const std::int32_t> targets, VocabularyShard shard,
               absl::Span<const Compute<T>> maxima, absl::Span<Compute<T>> sums,
               absl::Span<Compute<T>> target_logits, ThreadPool& pool) {
  using C = Compute<T>;
  using V = Vec16<C>;
  CheckTargets(targets, z.rows, CheckVocabularyShard(shard, z.width));
  HW_CHECK_EQ(maxima.size(), targets.size());
  HW_CHECK_EQ(sums.size(), targets.size());
  HW_CHECK_EQ(target_logits.size(), targets.size());
  ForEachRow(op, z, pool, [&](const auto& steps, std::int64_t t) {
    sums[t] = target_logits[t] = 0;
    if (targets[t] == kIgnoredTarget) return;
    const C* const row = z.row(t);
    const C m = maxima[t];
    sums[t] = ReduceRow<C>(z.width, [&](V acc, auto at) HW_ALWAYS_INLINE {
      return acc + OfRow(at, Exp(steps.Logit(at.Load(row)).l - V(m)));
    });
    const std::int64_t target = LocalIndex(shard, z.width, targets[t]);
    if (target >= 0) target_logits[t] = steps.Logit(row[target]).l - m;
  });
}

template <typename C>
void ShardedLosses(absl::Span<const std::int32_t> targets, absl::Span<const C> sums,
                   absl::Span<const C> target_logits, absl::Span<C> losses) {
  HW_CHECK_EQ(sums.size(), targets.size());
  HW_CHECK_EQ(target_logits.size(), targets.size());
  HW_CHECK_EQ(losses.size(), targets.size());
  for (std::size_t t = 0; t < targets.size(); ++t) {
    losses[t] = targets[t] == kIgnoredTarget ? C(0) : Log(sums[t]) - target_logits[t];
  }
}

template <typename T>
void ShardGradient(const LogitTransform& op, RowSpan<const Compute<T>> z,
                   absl::Span<const std::int32_t> targets, VocabularyShard shard,
                   absl::Span<const Compute<T>> maxima, absl::Span<const Compute<T>> sums,
                   double loss_scale, RowSpan<T> dz, ThreadPool& pool) {
  using C = Compute<T>;
  using V = Vec16<C>;
  CheckTargets(targets, z.rows, CheckVocabularyShard(shard, z.width));
  HW_CHECK_EQ(maxima.size(), targets.size());
  HW_CHECK_EQ(sums.size(), targets.size());
  HW_CHECK_EQ(dz.rows, z.rows);
  HW_CHECK_EQ(dz.width, z.width);
  const C g = GradientScale<C>(op, loss_scale);
  ForEachRow(op, z, pool, [&](const auto& steps, std::int64_t t) {
    T* const to = dz.row(t);
    if (targets[t] == kIgnoredTarget) {
      std::fill_n(to, dz.width, Narrow<T>(0));
      return;
    }
    const C* const row = z.row(t);
    const C m = maxima[t], inverse = C(1) / sums[t];
    const std::int64_t target = LocalIndex(shard, z.width, targets[t]);
    const C z_target = target < 0 ? C(0) : row[target];  // dz may be z
    ForEachLanes(0, z.width, [&](auto at) HW_ALWAYS_INLINE {
      const auto logit = steps.Logit(at.Load(row));
      at.Store(to, steps.Gradient(Exp(logit.l - V(m)) * V(inverse), logit.h, V(g)));
    });
    if (target >= 0) {
      const auto logit = steps.Logit(z_target);
      to[target] = Narrow<T>(steps.Gradient(Exp(logit.l - m) * inverse - C(1), logit.h, g));
    }
  });
}

#define HEADWISE_INSTANTIATE(T)                                                              \
  template void ShardMaxima<T>(const LogitTransform&, RowSpan<const Compute<T>>,             \
                               absl::Span<Compute<T>>, ThreadPool&);                         \
  template void ShardSums<T>(const LogitTransform&, RowSpan<const Compute<T>>,               \
                             absl::Span<const std::int32_t>, VocabularyShard,                \
                             absl::Span<const Compute<T>>, absl::Span<Compute<T>>,           \
                             absl::Span<Compute<T>>, ThreadPool&);                           \
  template void ShardGradient<T>(const LogitTransform&, RowSpan<const Compute<T>>,           \
                                 absl::Span<const std::int32_t>, VocabularyShard,            \
                                 absl::Span<const Compute<T>>, absl::Span<const Compute<T>>, \
                                 double, RowSpan<T>, ThreadPool&);
HEADWISE_INSTANTIATE(float)
HEADWISE_INSTANTIATE(BFloat16)
HEADWISE_INSTANTIATE(double)
#undef HEADWISE_INSTANTIATE

#define HEADWISE_INSTANTIATE(C)                                                       \
  template void LargestOfShards<C>(RowSpan<const C>, absl::Span<C>);                  \
  template void ShardedLosses<C>(absl::Span<const std::int32_t>, absl::Span<const C>, \
                                 absl::Span<const C>, absl::Span<C>);
HEADWISE_INSTANTIATE(float)
HEADWISE_INSTANTIATE(double)
#undef HEADWISE_INSTANTIATE

}  // namespace headwise
