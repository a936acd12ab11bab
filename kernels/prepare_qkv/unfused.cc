#include "kernels/prepare_qkv/unfused.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "core/base/check.h"

namespace headwise {
namespace {

constexpr std::int64_t kRowsPerTask = kWeightGradientTile;

template <typename F>
void ForEachRow(std::int64_t rows, ThreadPool& pool, F f) {
  pool.ParallelFor((rows + kRowsPerTask - 1) / kRowsPerTask, [&](std::int64_t task) {
    const std::int64_t end = std::min(rows, (task + 1) * kRowsPerTask);
    for (std::int64_t t = task * kRowsPerTask; t < end; ++t) f(t);
  });
}

template <typename I, typename C>
C RoundTo(C x) {
  return Widen(Narrow<I>(x));
}

// S(x, y): fma chains of eight, then halves of what they left, added.
template <typename C>
C ChunkedDot(const C* x, const C* y, std::int64_t dim) {
  C sums[kMaxHeadDim / 8];
  std::int64_t count = 0;
  for (std::int64_t begin = 0; begin < dim; begin += 8) {
    C sum = 0;
    for (std::int64_t i = begin; i < std::min(dim, begin + 8); ++i) sum = std::fma(x[i], y[i], sum);
    sums[count++] = sum;
  }
  while ((count & (count - 1)) != 0) sums[count++] = 0;
  for (; count > 1; count /= 2) {
    for (std::int64_t i = 0; i < count / 2; ++i) sums[i] += sums[count / 2 + i];
  }
  return sums[0];
}

// What HeadNorm computes with for one tensor: the weight as multiplied, and the reciprocal root.
template <typename C>
struct NormOfHeads {
  NormOfHeads(const HeadNormOptions& op, std::int64_t dim, absl::Span<const C> weight)
      : epsilon(op.epsilon), scale(op.scale), dim(dim), factor(weight.begin(), weight.end()) {
    HW_CHECK(op.norm != HeadNorm::kNone);
    HW_CHECK_EQ(weight.size(), HasWeight(op.norm) ? dim : 0);
    if (op.norm == HeadNorm::kGainCentered) {
      for (C& w : factor) w = 1 + w;
    }
  }

  C ReciprocalRms(const C* x) const {
    const C v = ChunkedDot(x, x, dim) / static_cast<C>(dim) + epsilon;
    return static_cast<C>(1.0 / std::sqrt(static_cast<double>(v)));
  }

  C epsilon, scale;
  std::int64_t dim;
  std::vector<C> factor;  // w or 1 + w; empty without a weight
};

// In place: p[0] = sum over i of p[i], neighbours first. p is `count` vectors of `dim` values.
template <typename C>
void AddNeighbours(std::vector<C>& p, std::int64_t count, std::int64_t dim) {
  for (; (count & (count - 1)) != 0; ++count) p.resize((count + 1) * dim, C{0});
  for (std::int64_t step = 1; step < count; step *= 2) {
    for (std::int64_t i = 0; i < count; i += 2 * step) {
      for (std::int64_t d = 0; d < dim; ++d) p[i * dim + d] += p[(i + step) * dim + d];
    }
  }
}

// The head's elements that RoPE turns together, f(first, second, column of the table).
template <typename F>
void ForEachPair(const RotaryTable& table, F f) {
  const std::int64_t half = table.rotary_dim() / 2;
  const bool interleaved = table.pairing() == RotaryPairing::kInterleaved;
  for (std::int64_t i = 0; i < half; ++i) {
    interleaved ? f(2 * i, 2 * i + 1, i) : f(i, i + half, i);
  }
}

template <typename From, typename To>
void CopyOrConvert(const From* from, To* to, std::int64_t n) {
  if constexpr (std::is_same_v<From, To>) {
    std::copy_n(from, n, to);
  } else {
    for (std::int64_t i = 0; i < n; ++i) to[i] = Narrow<To>(Widen(from[i]));
  }
}

}  // namespace

template <typename T>
void SplitQkv(const PackedQkv& layout, RowSpan<const T> packed, const QkvOutputs<T>& out,
              ThreadPool& pool) {
  const std::int64_t dim = layout.head_dim();
  ForEachRow(packed.rows, pool, [&](std::int64_t t) {
    for (std::int64_t slot = 0; slot < layout.slots(); ++slot) {
      const QkvSlot at = layout.SlotAt(slot);
      const RowSpan<T>& to = at.role == QkvRole::kQuery ? out.q
                             : at.role == QkvRole::kKey ? out.k
                                                        : out.v;
      if (to.data == nullptr) continue;
      std::copy_n(packed.row(t) + slot * dim, dim, to.row(t) + at.head * dim);
    }
  });
}

template <typename T>
void ConcatQkvGradient(const PackedQkv& layout, const QkvGradients<T>& gradients,
                       RowSpan<T> dpacked, ThreadPool& pool) {
  const std::int64_t dim = layout.head_dim();
  ForEachRow(dpacked.rows, pool, [&](std::int64_t t) {
    for (std::int64_t slot = 0; slot < layout.slots(); ++slot) {
      const QkvSlot at = layout.SlotAt(slot);
      const RowSpan<const T>& from = at.role == QkvRole::kQuery ? gradients.dq
                                     : at.role == QkvRole::kKey ? gradients.dk
                                                                : gradients.dv;
      std::copy_n(from.row(t) + at.head * dim, dim, dpacked.row(t) + slot * dim);
    }
  });
}

template <typename T, typename I>
void HeadNormForward(const HeadNormOptions& op, std::int64_t head_dim, RowSpan<const T> x,
                     absl::Span<const Compute<T>> weight, RowSpan<I> y, ThreadPool& pool) {
  using C = Compute<T>;
  const NormOfHeads<C> norm(op, head_dim, weight);
  const bool round_first = op.rounding == Rounding::kBeforeWeight;
  ForEachRow(x.rows, pool, [&](std::int64_t t) {
    for (std::int64_t begin = 0; begin < x.width; begin += head_dim) {
      C wide[kMaxHeadDim];
      for (std::int64_t i = 0; i < head_dim; ++i) wide[i] = Widen(x.row(t)[begin + i]);
      const C r = norm.ReciprocalRms(wide);
      for (std::int64_t i = 0; i < head_dim; ++i) {
        C value = wide[i] * r;
        if (round_first) value = RoundTo<I>(value);
        if (!norm.factor.empty()) value *= norm.factor[i];
        if (norm.scale != 1) value = RoundTo<I>(value) * norm.scale;
        y.row(t)[begin + i] = Narrow<I>(value);
      }
    }
  });
}

template <typename T, typename I>
void HeadNormBackward(const HeadNormOptions& op, std::int64_t head_dim, RowSpan<const T> x,
                      absl::Span<const Compute<T>> weight, RowSpan<const I> g, RowSpan<T> dx,
                      RowSpan<Compute<T>> dweight_per_group, ThreadPool& pool) {
  using C = Compute<T>;
  const NormOfHeads<C> norm(op, head_dim, weight);
  const bool has_weight = !norm.factor.empty();
  const bool rounded = op.rounding == Rounding::kBeforeWeight;
  const std::int64_t heads = x.width / head_dim;
  const std::int64_t groups = has_weight ? dweight_per_group.rows : 1;
  const std::int64_t heads_per_group = heads / groups;
  const std::int64_t tiles = (x.rows + kWeightGradientTile - 1) / kWeightGradientTile;
  // Sums of each tile's heads, [G][tiles, D].
  std::vector<std::vector<C>> partials(groups,
                                       std::vector<C>(std::max<std::int64_t>(tiles, 1) * head_dim));

  pool.ParallelFor(tiles, [&](std::int64_t tile) {
    std::vector<C> sums(heads * head_dim);  // [H, D]
    const std::int64_t end = std::min(x.rows, (tile + 1) * kWeightGradientTile);
    for (std::int64_t t = tile * kWeightGradientTile; t < end; ++t) {
      for (std::int64_t begin = 0; begin < x.width; begin += head_dim) {
        C xh[kMaxHeadDim], h[kMaxHeadDim];
        for (std::int64_t i = 0; i < head_dim; ++i) xh[i] = Widen(x.row(t)[begin + i]);
        const C r = norm.ReciprocalRms(xh);
        for (std::int64_t i = 0; i < head_dim; ++i) {
          C dy = Widen(g.row(t)[begin + i]);
          if (norm.scale != 1) dy = RoundTo<I>(dy * norm.scale);
          xh[i] *= r;
          C& sum = sums[begin + i];
          sum = std::fma(dy, rounded ? RoundTo<I>(xh[i]) : xh[i], sum);
          h[i] = has_weight ? dy * norm.factor[i] : dy;
          if (rounded) h[i] = RoundTo<I>(h[i]);
        }
        const C mean = ChunkedDot(h, xh, head_dim) / static_cast<C>(head_dim);
        for (std::int64_t i = 0; i < head_dim; ++i) {
          dx.row(t)[begin + i] = Narrow<T>(r * std::fma(-xh[i], mean, h[i]));
        }
      }
    }
    for (std::int64_t group = 0; has_weight && group < groups; ++group) {
      const auto first = sums.begin() + group * heads_per_group * head_dim;
      std::vector<C> of_group(first, first + heads_per_group * head_dim);
      AddNeighbours(of_group, heads_per_group, head_dim);
      std::copy_n(of_group.begin(), head_dim, partials[group].begin() + tile * head_dim);
    }
  });

  for (std::int64_t group = 0; has_weight && group < groups; ++group) {
    AddNeighbours(partials[group], std::max<std::int64_t>(tiles, 1), head_dim);
    std::copy_n(partials[group].begin(), head_dim, dweight_per_group.row(group));
  }
}

template <typename T, typename I>
void RopeForward(const RotaryTable* table, absl::Span<const std::int64_t> positions,
                 std::int64_t head_dim, RowSpan<const I> y, RowSpan<T> out, ThreadPool& pool) {
  using C = Compute<T>;
  ForEachRow(y.rows, pool, [&](std::int64_t t) {
    CopyOrConvert(y.row(t), out.row(t), y.width);
    if (table == nullptr) return;
    const float* cos = table->Cos(positions[t]);
    const float* sin = table->Sin(positions[t]);
    for (std::int64_t begin = 0; begin < y.width; begin += head_dim) {
      const I* head = y.row(t) + begin;
      T* to = out.row(t) + begin;
      ForEachPair(*table, [&](std::int64_t first, std::int64_t second, std::int64_t i) {
        const C c = cos[i], s = sin[i], y1 = Widen(head[first]), y2 = Widen(head[second]);
        const C y1c = y1 * c, y2s = y2 * s, y2c = y2 * c, y1s = y1 * s;
        to[first] = Narrow<T>(y1c - y2s);
        to[second] = Narrow<T>(y2c + y1s);
      });
    }
  });
}

template <typename T, typename I>
void RopeBackward(const RotaryTable* table, absl::Span<const std::int64_t> positions,
                  std::int64_t head_dim, RowSpan<const T> d, RowSpan<I> g, ThreadPool& pool) {
  using C = Compute<T>;
  ForEachRow(d.rows, pool, [&](std::int64_t t) {
    CopyOrConvert(d.row(t), g.row(t), d.width);
    if (table == nullptr) return;
    const float* cos = table->Cos(positions[t]);
    const float* sin = table->Sin(positions[t]);
    for (std::int64_t begin = 0; begin < d.width; begin += head_dim) {
      const T* head = d.row(t) + begin;
      I* to = g.row(t) + begin;
      ForEachPair(*table, [&](std::int64_t first, std::int64_t second, std::int64_t i) {
        const C c = cos[i], s = sin[i], d1 = Widen(head[first]), d2 = Widen(head[second]);
        const C d1c = d1 * c, d2s = d2 * s, d2c = d2 * c, d1s = d1 * s;
        to[first] = Narrow<I>(d1c + d2s);
        to[second] = Narrow<I>(d2c - d1s);
      });
    }
  });
}

namespace {

// A tensor [T, width] of its own.
template <typename T>
struct Temporary {
  Temporary(std::int64_t rows, std::int64_t width)
      : storage(rows * width), span(storage.data(), rows, width) {}
  std::vector<T> storage;
  RowSpan<T> span;
};

template <typename T>
HeadNormOptions NormOptions(const QkvPreparation& op, float scale) {
  return {.norm = op.norm, .epsilon = op.epsilon, .scale = scale, .rounding = op.rounding};
}

// Norm and RoPE of q or of k; x is what SplitQkv made.
template <typename T, typename I>
void NormAndRope(const QkvPreparation& op, float scale, const QkvInputs<T>& in, RowSpan<const T> x,
                 absl::Span<const Compute<T>> weight, RowSpan<T> out, ThreadPool& pool) {
  const std::int64_t dim = op.layout.head_dim();
  if (op.norm == HeadNorm::kNone) {
    RopeForward<T, T>(op.rotary, in.positions, dim, x, out, pool);
    return;
  }
  Temporary<I> y(x.rows, x.width);
  HeadNormForward<T, I>(NormOptions<T>(op, scale), dim, x, weight, y.span, pool);
  RopeForward<T, I>(op.rotary, in.positions, dim, y.span, out, pool);
}

// RoPE and norm of q or of k, backwards; dx goes to ConcatQkvGradient.
template <typename T, typename I>
void NormAndRopeBackward(const QkvPreparation& op, float scale, const QkvInputs<T>& in,
                         RowSpan<const T> x, absl::Span<const Compute<T>> weight,
                         RowSpan<const T> d, RowSpan<T> dx, RowSpan<Compute<T>> dweight,
                         ThreadPool& pool) {
  const std::int64_t dim = op.layout.head_dim();
  if (op.norm == HeadNorm::kNone) {
    RopeBackward<T, T>(op.rotary, in.positions, dim, d, dx, pool);
    return;
  }
  Temporary<I> g(x.rows, x.width);
  RopeBackward<T, I>(op.rotary, in.positions, dim, d, g.span, pool);
  HeadNormBackward<T, I>(NormOptions<T>(op, scale), dim, x, weight, g.span, dx, dweight, pool);
}

}  // namespace

template <typename T>
void PrepareQkvUnfused(const QkvPreparation& op, const QkvInputs<T>& in, const QkvOutputs<T>& out,
                       ThreadPool& pool) {
  Temporary<T> q(in.packed.rows, out.q.width), k(in.packed.rows, out.k.width);
  SplitQkv<T>(op.layout, in.packed, {q.span, k.span, out.v}, pool);
  const auto f =
      op.rounding == Rounding::kOnlyAtEnd ? NormAndRope<T, Compute<T>> : NormAndRope<T, T>;
  f(op, op.query_scale, in, q.span, in.q_weight, out.q, pool);
  f(op, 1.0f, in, k.span, in.k_weight, out.k, pool);
}

template <typename T>
void PrepareQkvBackwardUnfused(const QkvPreparation& op, const QkvInputs<T>& in,
                               const QkvGradients<T>& d, const PackedGradients<T>& out,
                               ThreadPool& pool) {
  const std::int64_t rows = in.packed.rows;
  Temporary<T> q(rows, d.dq.width), k(rows, d.dk.width), dq(rows, d.dq.width), dk(rows, d.dk.width);
  SplitQkv<T>(op.layout, in.packed, {q.span, k.span, {}}, pool);
  const auto f = op.rounding == Rounding::kOnlyAtEnd ? NormAndRopeBackward<T, Compute<T>>
                                                     : NormAndRopeBackward<T, T>;
  f(op, op.query_scale, in, q.span, in.q_weight, d.dq, dq.span, out.dq_weight_per_group, pool);
  f(op, 1.0f, in, k.span, in.k_weight, d.dk, dk.span, out.dk_weight_per_group, pool);
  ConcatQkvGradient<T>(op.layout, {dq.span, dk.span, d.dv}, out.dpacked, pool);
}

#define HW_INSTANTIATE_INTERMEDIATE(T, I)                                                      \
  template void HeadNormForward(const HeadNormOptions&, std::int64_t, RowSpan<const T>,        \
                                absl::Span<const Compute<T>>, RowSpan<I>, ThreadPool&);        \
  template void HeadNormBackward(const HeadNormOptions&, std::int64_t, RowSpan<const T>,       \
                                 absl::Span<const Compute<T>>, RowSpan<const I>, RowSpan<T>,   \
                                 RowSpan<Compute<T>>, ThreadPool&);                            \
  template void RopeForward(const RotaryTable*, absl::Span<const std::int64_t>, std::int64_t,  \
                            RowSpan<const I>, RowSpan<T>, ThreadPool&);                        \
  template void RopeBackward(const RotaryTable*, absl::Span<const std::int64_t>, std::int64_t, \
                             RowSpan<const T>, RowSpan<I>, ThreadPool&)
#define HW_INSTANTIATE(T)                                                                        \
  template void SplitQkv(const PackedQkv&, RowSpan<const T>, const QkvOutputs<T>&, ThreadPool&); \
  template void ConcatQkvGradient(const PackedQkv&, const QkvGradients<T>&, RowSpan<T>,          \
                                  ThreadPool&);                                                  \
  template void PrepareQkvUnfused(const QkvPreparation&, const QkvInputs<T>&,                    \
                                  const QkvOutputs<T>&, ThreadPool&);                            \
  template void PrepareQkvBackwardUnfused(const QkvPreparation&, const QkvInputs<T>&,            \
                                          const QkvGradients<T>&, const PackedGradients<T>&,     \
                                          ThreadPool&)
HW_INSTANTIATE(float);
HW_INSTANTIATE(BFloat16);
HW_INSTANTIATE(double);
HW_INSTANTIATE_INTERMEDIATE(float, float);
HW_INSTANTIATE_INTERMEDIATE(BFloat16, BFloat16);
HW_INSTANTIATE_INTERMEDIATE(BFloat16, float);
HW_INSTANTIATE_INTERMEDIATE(double, double);
#undef HW_INSTANTIATE
#undef HW_INSTANTIATE_INTERMEDIATE

}  // namespace headwise
