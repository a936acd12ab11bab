// Packing: the copies that turn rows of a matrix into vectors whose lanes are rows. Exact: nothing
// here rounds.
#ifndef HEADWISE_KERNELS_COMMON_TRANSPOSE_H_
#define HEADWISE_KERNELS_COMMON_TRANSPOSE_H_

#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/base/check.h"
#include "core/dtype/dtype.h"
#include "kernels/common/simd.h"

namespace headwise {

namespace internal {

// One step of the transposition by butterflies: rows i and i + kStep exchange the off-diagonal
// kStep x kStep squares.
template <int kStep, typename Lane>
[[gnu::always_inline]] inline void ExchangeSquares(Vec16<Lane>& upper, Vec16<Lane>& lower) {
  using V = Vec16<Lane>;
  const V a = upper, b = lower;
  constexpr int kWidth = V::kPartLanes;
  for (int p = 0; p < V::kParts; ++p) {
    if constexpr (kStep >= kWidth) {
      const bool right = (p * kWidth & kStep) != 0;
      upper.part[p] = right ? b.part[p - kStep / kWidth] : a.part[p];
      lower.part[p] = right ? b.part[p] : a.part[p + kStep / kWidth];
    } else {
      [&]<int... l>(std::integer_sequence<int, l...>) __attribute__((always_inline)) {
        upper.part[p] = __builtin_shufflevector(a.part[p], b.part[p],
                                                ((l & kStep) ? kWidth + l - kStep : l)...);
        lower.part[p] = __builtin_shufflevector(a.part[p], b.part[p],
                                                ((l & kStep) ? kWidth + l : l + kStep)...);
      }
      (std::make_integer_sequence<int, kWidth>{});
    }
  }
}

template <int kStep, typename Lane>
[[gnu::always_inline]] inline void ExchangeAllSquares(Vec16<Lane> (&rows)[kLanes]) {
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    if ((i & kStep) == 0) ExchangeSquares<kStep>(rows[i], rows[i + kStep]);
  }
}

}  // namespace internal

// rows[i][j] becomes rows[j][i].
template <typename Lane>
[[gnu::always_inline]] inline void Transpose16x16(Vec16<Lane> (&rows)[kLanes]) {
  internal::ExchangeAllSquares<8>(rows);
  internal::ExchangeAllSquares<4>(rows);
  internal::ExchangeAllSquares<2>(rows);
  internal::ExchangeAllSquares<1>(rows);
}

// Lane i of the result is HorizontalTree(rows[i], op), with its order of operations. Destroys rows.
template <typename Lane, typename Op>
[[gnu::always_inline]] inline Vec16<Lane> HorizontalTrees(Vec16<Lane> (&rows)[kLanes], Op op) {
  Transpose16x16(rows);
#pragma GCC unroll 4
  for (int n = kLanes / 2; n >= 1; n /= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < n; ++i) rows[i] = op(rows[i], rows[i + n]);
  }
  return rows[0];
}

// Packs the transpose: packed[p * stored + i] = Widen(data[i * stride + p]) for i < width and p <
// depth, zero for width <= i < stored. `stored` is at most 16 or a multiple of 16. Up to 15
// elements after the end are overwritten too.
template <typename T>
void PackTransposed(const T* data, std::int64_t stride, std::int64_t width, std::int64_t depth,
                    std::int64_t stored, Compute<T>* packed) {
  HW_CHECK(stored <= kLanes || stored % kLanes == 0);
  using V = Vec16<Compute<T>>;
  for (std::int64_t p = 0; p < depth; p += kLanes) {
    const std::int64_t columns = std::min<std::int64_t>(kLanes, depth - p);
    for (std::int64_t i = 0; i < stored; i += kLanes) {
      V rows[kLanes];
      const T* from = data + i * stride + p;
      if (columns == kLanes && i + kLanes <= width) {
#pragma GCC unroll 16
        for (int r = 0; r < kLanes; ++r) rows[r] = LoadWiden(from + r * stride);
      } else {
        for (int r = 0; r < kLanes; ++r) {
          rows[r] = i + r >= width      ? V(Compute<T>{0})
                    : columns == kLanes ? LoadWiden(from + r * stride)
                                        : LoadPartial(from + r * stride, columns);
        }
      }
      Transpose16x16(rows);
      // Ascending: what a store writes past its `stored` elements, the next one overwrites.
      Compute<T>* to = packed + p * stored + i;
      if (columns == kLanes) {
#pragma GCC unroll 16
        for (int r = 0; r < kLanes; ++r) Store(to + r * stored, rows[r]);
      } else {
        for (int r = 0; r < columns; ++r) Store(to + r * stored, rows[r]);
      }
    }
  }
}

// Packs rows as they are: packed[p * stored + i] = Widen(data[p * stride + i]) for i < stored and p
// < depth, zero from i = readable on (elements of a row that may be read). Up to 15 elements after
// the end are overwritten too.
template <typename T>
void PackRows(const T* data, std::int64_t stride, std::int64_t readable, std::int64_t depth,
              std::int64_t stored, Compute<T>* packed) {
  for (std::int64_t p = 0; p < depth; ++p) {
    const T* from = data + p * stride;
    for (std::int64_t i = 0; i < stored; i += kLanes) {
      Store(packed + p * stored + i,
            i + kLanes <= readable
                ? LoadWiden(from + i)
                : LoadPartial(from + i, std::max<std::int64_t>(0, readable - i)));
    }
  }
}

}  // namespace headwise

#endif  // HEADWISE_KERNELS_COMMON_TRANSPOSE_H_
