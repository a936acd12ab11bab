// One kv head of one segment and the query heads that share it: which keys a query sees, and copies
// of rows in the compute type for the inner loops. Internal to kernels/attention.
//
// Query rows are numbered position by position, and head by head within a position: row r is query
// r / heads() of the segment and head r % heads() of the group. So the keys that a row sees, and
// the rows that see a key, are always consecutive.
#ifndef HEADWISE_KERNELS_ATTENTION_GROUP_H_
#define HEADWISE_KERNELS_ATTENTION_GROUP_H_

#include <algorithm>
#include <cstdint>

#include "core/dtype/dtype.h"
#include "core/tensor/row_span.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/chains.h"
#include "kernels/common/simd.h"
#include "kernels/common/transpose.h"

namespace headwise::attention {

// Keys of a tile of the softmax: positions [64 i, 64 i + 64) of the segment.
inline constexpr std::int64_t kTileKeys = 64;
inline constexpr std::int64_t kTileVectors = kTileKeys / kLanes;

inline std::int64_t RoundUpToLanes(std::int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

class Group {
 public:
  Group(const Attention& op, const AttentionSegment& segment, std::int64_t kv_head)
      : op_(op), segment_(segment), kv_head_(kv_head), heads_(op.query_heads / op.kv_heads) {}

  const AttentionSegment& segment() const { return segment_; }
  std::int64_t heads() const { return heads_; }
  std::int64_t num_rows() const { return segment_.num_queries * heads_; }
  std::int64_t head_dim() const { return op_.head_dim; }
  // Of the copies: head_dim rounded up to whole vectors, zeros behind it.
  std::int64_t padded_dim() const { return RoundUpToLanes(op_.head_dim); }
  std::int64_t vectors() const { return padded_dim() / kLanes; }

  std::int64_t PositionOf(std::int64_t row) const { return segment_.query_position + row / heads_; }
  std::int64_t HeadOf(std::int64_t row) const { return kv_head_ * heads_ + row % heads_; }

  // Positions of the keys that are there and that the query at `position` sees.
  StepRange KeysOf(std::int64_t position) const {
    const std::int64_t oldest =
        op_.window == 0 || op_.window > position ? 0 : position - op_.window + 1;
    return {std::max(segment_.key_position, oldest),
            std::min(segment_.key_position + segment_.num_keys, position + 1)};
  }
  // Positions of the keys that some row of [begin, end) sees; begin < end.
  StepRange KeysOfRows(std::int64_t begin, std::int64_t end) const {
    return {KeysOf(PositionOf(begin)).begin, KeysOf(PositionOf(end - 1)).end};
  }
  // The rows that see the key at `position`, which is there.
  StepRange RowsOf(std::int64_t position) const {
    const std::int64_t first = segment_.query_position;
    std::int64_t end = first + segment_.num_queries;
    if (op_.window != 0 && op_.window < end - position) end = position + op_.window;
    return {(std::max(first, position) - first) * heads_, (end - first) * heads_};
  }

  // The element of a head in memory: row r's head of q, o or their gradients, or the kv head at a
  // position of k, v or theirs.
  template <typename T>
  T* QueryHead(RowSpan<T> q, std::int64_t row) const {
    return q.row(segment_.query_begin + row / heads_) + HeadOf(row) * head_dim();
  }
  template <typename T>
  T* KeyHead(RowSpan<T> k, std::int64_t position) const {
    return k.row(segment_.key_begin + position - segment_.key_position) + kv_head_ * head_dim();
  }
  // This row's element of log_sum_exp and the like, [T, H].
  template <typename T>
  T& OfQueryHead(RowSpan<T> per_head, std::int64_t row) const {
    return per_head.row(segment_.query_begin + row / heads_)[HeadOf(row)];
  }

  // to[r - begin] = row r of q for r in [begin, end), in rows of padded_dim().
  template <typename T>
  void CopyQueryRows(RowSpan<const T> q, std::int64_t begin, std::int64_t end,
                     Compute<T>* to) const {
    // The heads of a position lie side by side.
    for (std::int64_t r = begin; r < end;) {
      const std::int64_t count = std::min(end - r, heads_ - r % heads_);
      PackRows(QueryHead(q, r), head_dim(), head_dim(), count, padded_dim(), to);
      to += count * padded_dim();
      r += count;
    }
  }
  // to[p - begin] = the head at position p for p in [begin, end), in rows of padded_dim().
  template <typename T>
  void CopyKeyRows(RowSpan<const T> k, StepRange positions, Compute<T>* to) const {
    PackRows(KeyHead(k, positions.begin), k.stride, head_dim(), positions.end - positions.begin,
             padded_dim(), to);
  }
  // to[d * 64 + p % 64] = element d of the head at position p, for p in `positions`, which lie in
  // one tile. Other elements of `to`, which has 64 more than head_dim() rows of 64, may be
  // overwritten.
  template <typename T>
  void CopyKeysAcross(RowSpan<const T> k, StepRange positions, Compute<T>* to) const {
    PackTransposed(KeyHead(k, positions.begin), k.stride, positions.end - positions.begin,
                   head_dim(), kTileKeys, to + positions.begin % kTileKeys);
  }
  // row [head_dim()] of the compute type, times `factor`, rounded to the storage type.
  template <typename T>
  void StoreHead(const Compute<T>* row, Compute<T> factor, T* to) const {
    std::int64_t d = 0;
    for (; d + kLanes <= head_dim(); d += kLanes) StoreNarrow(to + d, Load(row + d) * factor);
    for (; d < head_dim(); ++d) to[d] = Narrow<T>(row[d] * factor);
  }

 private:
  const Attention& op_;
  const AttentionSegment& segment_;
  std::int64_t kv_head_, heads_;
};

}  // namespace headwise::attention

#endif  // HEADWISE_KERNELS_ATTENTION_GROUP_H_
