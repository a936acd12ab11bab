#include "kernels/attention/reference.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/common/math.h"
#include "kernels/common/reductions.h"
#include "kernels/common/simd.h"

namespace headwise {
namespace {

constexpr std::int64_t kTileKeys = 64;
constexpr std::int64_t kSumLanes = 16;
template <typename C>
constexpr C kInfinity = std::numeric_limits<C>::infinity();

// q . k, one chain from +0 over ascending d.
template <typename T>
Compute<T> Dot(const T* a, const T* b, std::int64_t n) {
  Compute<T> sum = 0;
  for (std::int64_t d = 0; d < n; ++d) sum = std::fma(Widen(a[d]), Widen(b[d]), sum);
  return sum;
}

// lane[i] + lane[i + 8], then + 4, + 2, + 1.
template <typename C>
C HalvingTree(C (&lane)[kSumLanes]) {
  for (std::int64_t n = kSumLanes / 2; n >= 1; n /= 2) {
    for (std::int64_t i = 0; i < n; ++i) lane[i] = lane[i] + lane[i + n];
  }
  return lane[0];
}

// Sixteen chains, element d in chain d % 16, and their tree. Zeros up to a multiple of 16 take
// part.
template <typename T>
Compute<T> DotInLanes(const T* a, const T* b, std::int64_t n) {
  Compute<T> lane[kSumLanes] = {};
  for (std::int64_t d = 0; d < (n + kSumLanes - 1) / kSumLanes * kSumLanes; ++d) {
    Compute<T>& sum = lane[d % kSumLanes];
    sum = d < n ? std::fma(Widen(a[d]), Widen(b[d]), sum)
                : std::fma(Compute<T>{0}, Compute<T>{0}, sum);
  }
  return HalvingTree(lane);
}

// What query and key heads of a segment look like, by position.
struct Reader {
  const Attention& op;
  const AttentionSegment& segment;

  bool Sees(std::int64_t query, std::int64_t key) const {
    return key <= query && (op.window == 0 || query - key < op.window);
  }
  std::int64_t query_end() const { return segment.query_position + segment.num_queries; }
  std::int64_t key_end() const { return segment.key_position + segment.num_keys; }

  template <typename T>
  T* Query(RowSpan<T> q, std::int64_t position, std::int64_t head) const {
    return q.row(segment.query_begin + position - segment.query_position) + head * op.head_dim;
  }
  template <typename T>
  T* Key(RowSpan<T> k, std::int64_t position, std::int64_t kv_head) const {
    return k.row(segment.key_begin + position - segment.key_position) + kv_head * op.head_dim;
  }
  template <typename T>
  T& OfQuery(RowSpan<T> per_head, std::int64_t position, std::int64_t head) const {
    return per_head.row(segment.query_begin + position - segment.query_position)[head];
  }
};

bool InSomeSegment(absl::Span<const AttentionSegment> segments, std::int64_t row) {
  return std::any_of(segments.begin(), segments.end(), [&](const AttentionSegment& s) {
    return row >= s.query_begin && row < s.query_begin + s.num_queries;
  });
}

}  // namespace

template <typename T>
void AttentionForwardReference(const Attention& op, absl::Span<const AttentionSegment> segments,
                               RowSpan<const T> q, RowSpan<const T> k, RowSpan<const T> v,
                               absl::Span<const Compute<T>> sinks, RowSpan<T> o,
                               RowSpan<Compute<T>> log_sum_exp) {
  using C = Compute<T>;
  const C scale = static_cast<C>(op.scale);
  for (const AttentionSegment& segment : segments) {
    const Reader at{op, segment};
    for (std::int64_t i = segment.query_position; i < at.query_end(); ++i) {
      for (std::int64_t h = 0; h < op.query_heads; ++h) {
        const std::int64_t g = h / (op.query_heads / op.kv_heads);
        C max = sinks.empty() ? -kInfinity<C> : sinks[h];
        C sum = sinks.empty() ? 0 : 1;
        std::vector<C> weighted(op.head_dim, 0);
        for (std::int64_t tile = 0; tile <= i; tile += kTileKeys) {
          std::vector<std::int64_t> keys;
          for (std::int64_t j = std::max(tile, segment.key_position);
               j < std::min(tile + kTileKeys, at.key_end()); ++j) {
            if (at.Sees(i, j)) keys.push_back(j);
          }
          if (keys.empty()) continue;
          std::vector<C> score;
          C tile_max = -kInfinity<C>;
          for (const std::int64_t j : keys) {
            score.push_back(Dot(at.Query(q, i, h), at.Key(k, j, g), op.head_dim) * scale);
            tile_max = Max(tile_max, score.back());
          }
          const C new_max = Max(max, tile_max);
          const C factor = Exp(max - new_max);
          C lane[kSumLanes] = {};
          for (C& x : weighted) x = x * factor;
          for (std::size_t n = 0; n < keys.size(); ++n) {
            const C p = Exp(score[n] - new_max);
            lane[keys[n] % kSumLanes] += p;
            for (std::int64_t d = 0; d < op.head_dim; ++d) {
              weighted[d] = std::fma(p, Widen(at.Key(v, keys[n], g)[d]), weighted[d]);
            }
          }
          sum = std::fma(sum, factor, HalvingTree(lane));
          max = new_max;
        }
        const bool blind = max == -kInfinity<C> && sum == 0;
        const C inverse = blind ? C{0} : C{1} / sum;
        for (std::int64_t d = 0; d < op.head_dim; ++d) {
          at.Query(o, i, h)[d] = Narrow<T>(weighted[d] * inverse);
        }
        if (log_sum_exp.data != nullptr) {
          at.OfQuery(log_sum_exp, i, h) = blind ? -kInfinity<C> : max + Log(sum);
        }
      }
    }
  }
}

template <typename T>
void AttentionBackwardReference(const Attention& op, absl::Span<const AttentionSegment> segments,
                                RowSpan<const T> q, RowSpan<const T> k, RowSpan<const T> v,
                                absl::Span<const Compute<T>> sinks, RowSpan<const T> o,
                                RowSpan<const Compute<T>> log_sum_exp, RowSpan<const T> d_o,
                                RowSpan<T> dq, RowSpan<T> dk, RowSpan<T> dv,
                                absl::Span<Compute<T>> d_sinks) {
  using C = Compute<T>;
  const C scale = static_cast<C>(op.scale);
  const std::int64_t heads = op.query_heads / op.kv_heads;
  for (std::size_t h = 0; h < d_sinks.size(); ++h) {
    std::vector<C> of_tile((q.rows + kTokenTile - 1) / kTokenTile, 0);
    for (std::int64_t t = 0; t < q.rows; ++t) {
      if (!InSomeSegment(segments, t) || log_sum_exp.row(t)[h] == -kInfinity<C>) continue;
      const std::int64_t at = h * op.head_dim;
      const C delta = DotInLanes(d_o.row(t) + at, o.row(t) + at, op.head_dim);
      C& sum = of_tile[t / kTokenTile];
      sum = std::fma(-Exp(sinks[h] - log_sum_exp.row(t)[h]), delta, sum);
    }
    d_sinks[h] = AdjacentPairTree<C>(of_tile);
  }
  for (const AttentionSegment& segment : segments) {
    const Reader at{op, segment};
    // The probability of a key and the gradient of its score (before `scale`).
    const auto terms = [&](std::int64_t i, std::int64_t h, std::int64_t j) {
      const std::int64_t g = h / heads;
      const C score = Dot(at.Query(q, i, h), at.Key(k, j, g), op.head_dim) * scale;
      const C p = Exp(score - at.OfQuery(log_sum_exp, i, h));
      const C dp = Dot(at.Query(d_o, i, h), at.Key(v, j, g), op.head_dim);
      const C delta = DotInLanes(at.Query(d_o, i, h), at.Query(o, i, h), op.head_dim);
      return std::pair(p, p * (dp - delta));
    };
    for (std::int64_t i = segment.query_position; i < at.query_end(); ++i) {
      for (std::int64_t h = 0; h < op.query_heads; ++h) {
        std::vector<C> sum(op.head_dim, 0);
        for (std::int64_t j = segment.key_position; j < at.key_end(); ++j) {
          if (!at.Sees(i, j)) continue;
          const C ds = terms(i, h, j).second;
          const T* key = at.Key(k, j, h / heads);
          for (std::int64_t d = 0; d < op.head_dim; ++d)
            sum[d] = std::fma(ds, Widen(key[d]), sum[d]);
        }
        for (std::int64_t d = 0; d < op.head_dim; ++d) {
          at.Query(dq, i, h)[d] = Narrow<T>(sum[d] * scale);
        }
      }
    }
    for (std::int64_t j = segment.key_position; j < at.key_end(); ++j) {
      for (std::int64_t g = 0; g < op.kv_heads; ++g) {
        std::vector<C> key_sum(op.head_dim, 0), value_sum(op.head_dim, 0);
        for (std::int64_t i = segment.query_position; i < at.query_end(); ++i) {
          if (!at.Sees(i, j)) continue;
          for (std::int64_t h = g * heads; h < (g + 1) * heads; ++h) {
            const auto [p, ds] = terms(i, h, j);
            for (std::int64_t d = 0; d < op.head_dim; ++d) {
              key_sum[d] = std::fma(ds, Widen(at.Query(q, i, h)[d]), key_sum[d]);
              value_sum[d] = std::fma(p, Widen(at.Query(d_o, i, h)[d]), value_sum[d]);
            }
          }
        }
        for (std::int64_t d = 0; d < op.head_dim; ++d) {
          at.Key(dk, j, g)[d] = Narrow<T>(key_sum[d] * scale);
          at.Key(dv, j, g)[d] = Narrow<T>(value_sum[d]);
        }
      }
    }
  }
}

#define HEADWISE_ATTENTION_INSTANTIATE(T)                                                          \
  template void AttentionForwardReference(                                                         \
      const Attention&, absl::Span<const AttentionSegment>, RowSpan<const T>, RowSpan<const T>,    \
      RowSpan<const T>, absl::Span<const Compute<T>>, RowSpan<T>, RowSpan<Compute<T>>);            \
  template void AttentionBackwardReference(                                                        \
      const Attention&, absl::Span<const AttentionSegment>, RowSpan<const T>, RowSpan<const T>,    \
      RowSpan<const T>, absl::Span<const Compute<T>>, RowSpan<const T>, RowSpan<const Compute<T>>, \
      RowSpan<const T>, RowSpan<T>, RowSpan<T>, RowSpan<T>, absl::Span<Compute<T>>);
HEADWISE_ATTENTION_INSTANTIATE(float)
HEADWISE_ATTENTION_INSTANTIATE(BFloat16)
HEADWISE_ATTENTION_INSTANTIATE(double)
#undef HEADWISE_ATTENTION_INSTANTIATE

}  // namespace headwise
