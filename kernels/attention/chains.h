// The inner loop of every product in attention: many independent fma chains in registers. Internal
// to kernels/attention.
//
// A product's rows are contraction chains of their own, and so are its columns (vector lanes), so
// how rows and columns are grouped shows in no bit; only the order of steps does, and it is given.
#ifndef HEADWISE_KERNELS_ATTENTION_CHAINS_H_
#define HEADWISE_KERNELS_ATTENTION_CHAINS_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "kernels/common/simd.h"

namespace headwise::attention {

// Elements that are broadcast: (row, step) is data[row * row_stride + step * step_stride].
template <typename C>
struct Broadcasts {
  const C* data;
  std::int64_t row_stride, step_stride;

  Broadcasts From(std::int64_t row, std::int64_t step) const {
    return {data + row * row_stride + step * step_stride, row_stride, step_stride};
  }
};

// Rows of vectors, `stride` elements apart; a multiple of 16 elements of each may be touched.
template <typename C>
struct Vectors {
  C* data;
  std::int64_t stride;

  C* row(std::int64_t i) const { return data + i * stride; }
  Vectors From(std::int64_t row, std::int64_t column = 0) const {
    return {data + row * stride + column, stride};
  }
};

// Chains of kRows x 16 kVectors elements fill the registers: 32 of 512 bits, or 16 of 256 bits.
template <typename C>
struct RegisterTile {
  static constexpr int kRows = 6;
  static constexpr int kVectors = Vec16<C>::kParts == 1 ? 4 : 1;
};

enum class Start { kFromZero, kFromMemory };

namespace internal {

template <typename C, int kRows, int kVectors, Start kStart>
void ExtendTile(Broadcasts<C> a, Vectors<const C> b, std::int64_t steps, Vectors<C> chains) {
  using V = Vec16<C>;
  V sum[kRows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      sum[r][v] = kStart == Start::kFromZero ? V(C{0}) : Load(chains.row(r) + v * kLanes);
    }
  }
  const C* broadcast = a.data;
  const C* vector = b.data;
  for (std::int64_t p = 0; p < steps; ++p) {
    V column[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) column[v] = Load(vector + v * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const V row = broadcast[r * a.row_stride];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[r][v] = Fma(row, column[v], sum[r][v]);
    }
    broadcast += a.step_stride;
    vector += b.stride;
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) Store(chains.row(r) + v * kLanes, sum[r][v]);
  }
}

template <typename C>
using ExtendTileFunction = void (*)(Broadcasts<C>, Vectors<const C>, std::int64_t, Vectors<C>);

// kExtendTile<C, start>[(rows - 1) * kVectors + vectors - 1]
template <typename C, Start kStart>
constexpr auto kExtendTile = []<int... i>(std::integer_sequence<int, i...>) {
  constexpr int kVectors = RegisterTile<C>::kVectors;
  return std::array<ExtendTileFunction<C>, sizeof...(i)>{
      ExtendTile<C, i / kVectors + 1, i % kVectors + 1, kStart>...};
}
(std::make_integer_sequence<int, RegisterTile<C>::kRows * RegisterTile<C>::kVectors>{});

}  // namespace internal

// chains[r][c] = fma(a(r, p), b[p][c], chains[r][c]) for p = 0 ... steps - 1 in turn, for every r <
// rows and every c < 16 vectors. With Start::kFromZero the chains start from +0 instead of what is
// in memory.
template <typename C, Start kStart>
void Extend(std::int64_t rows, std::int64_t vectors, Broadcasts<C> a, Vectors<const C> b,
            std::int64_t steps, Vectors<C> chains) {
  using Tile = RegisterTile<C>;
  for (std::int64_t v = 0; v < vectors; v += Tile::kVectors) {
    const std::int64_t width = std::min<std::int64_t>(Tile::kVectors, vectors - v);
    for (std::int64_t r = 0; r < rows; r += Tile::kRows) {
      const std::int64_t height = std::min<std::int64_t>(Tile::kRows, rows - r);
      internal::kExtendTile<C, kStart>[(height - 1) * Tile::kVectors + width - 1](
          a.From(r, 0), b.From(0, v * kLanes), steps, chains.From(r, v * kLanes));
    }
  }
}

// Steps [begin, end) of a product.
struct StepRange {
  std::int64_t begin, end;

  bool empty() const { return begin >= end; }
};

// As Extend from memory, where row r takes the steps of range(r) only. The steps that all rows of a
// register tile share run together; those before and after them row by row.
template <typename C, typename RangeOfRow>
void ExtendRanges(std::int64_t rows, std::int64_t vectors, Broadcasts<C> a, Vectors<const C> b,
                  RangeOfRow range, Vectors<C> chains) {
  constexpr int kRows = RegisterTile<C>::kRows;
  const auto extend = [&](std::int64_t row, std::int64_t count, std::int64_t begin,
                          std::int64_t end) {
    if (begin >= end) return;
    Extend<C, Start::kFromMemory>(count, vectors, a.From(row, begin), b.From(begin), end - begin,
                                  chains.From(row));
  };
  for (std::int64_t r0 = 0; r0 < rows; r0 += kRows) {
    const std::int64_t count = std::min<std::int64_t>(kRows, rows - r0);
    StepRange own[kRows];
    StepRange common = own[0] = range(r0);
    bool equal = true;
    for (std::int64_t r = 1; r < count; ++r) {
      own[r] = range(r0 + r);
      equal = equal && own[r].begin == common.begin && own[r].end == common.end;
      common.begin = std::max(common.begin, own[r].begin);
      common.end = std::min(common.end, own[r].end);
    }
    if (equal) {
      extend(r0, count, common.begin, common.end);
    } else if (common.empty()) {
      for (std::int64_t r = 0; r < count; ++r) extend(r0 + r, 1, own[r].begin, own[r].end);
    } else {
      for (std::int64_t r = 0; r < count; ++r) extend(r0 + r, 1, own[r].begin, common.begin);
      extend(r0, count, common.begin, common.end);
      for (std::int64_t r = 0; r < count; ++r) extend(r0 + r, 1, common.end, own[r].end);
    }
  }
}

}  // namespace headwise::attention

#endif  // HEADWISE_KERNELS_ATTENTION_CHAINS_H_
