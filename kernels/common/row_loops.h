// Loops over rows of storage types, sixteen elements at a time, odd ends included.
//
// Elementwise kernels, on the pool:
//
//   // out = a + b
//   MapElements(std::tuple(out), std::tuple(a, b), pool,
//               [](auto x, auto y) HW_ALWAYS_INLINE { return x + y; });
//
// One row, in a fixed order:
//
//   float squares = ReduceRow<float>(n, [&](auto acc, auto at) HW_ALWAYS_INLINE {
//     return Fma(at.Load(x), at.Load(x), acc);
//   });
//
// The lambdas are HW_ALWAYS_INLINE: a call would pass every vector through memory.
//
// Storage type T is float, BFloat16 or double; the arithmetic sees F16, F16 or D16.
#ifndef HEADWISE_KERNELS_COMMON_ROW_LOOPS_H_
#define HEADWISE_KERNELS_COMMON_ROW_LOOPS_H_

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <utility>

#include "core/base/check.h"
#include "core/dtype/dtype.h"
#include "core/tensor/row_span.h"
#include "kernels/common/simd.h"
#include "kernels/common/thread_pool.h"

namespace headwise {

// Elements [begin, begin + 16) of a row.
struct FullLanes {
  std::int64_t begin;

  template <typename T>
  [[gnu::always_inline]] auto Load(const T* row, Compute<T> = 0) const {
    return LoadWiden(row + begin);
  }
  template <typename T>
  [[gnu::always_inline]] void Store(T* row, Vec16<Compute<T>> v) const {
    StoreNarrow(row + begin, v);
  }
};

// Elements [begin, begin + count) of a row, count < 16; the other lanes load `fill` and are not
// stored.
struct PartialLanes {
  std::int64_t begin;
  std::int64_t count;

  template <typename T>
  auto Load(const T* row, Compute<T> fill = 0) const {
    return LoadPartial(row + begin, count, Narrow<T>(fill));
  }
  template <typename T>
  void Store(T* row, Vec16<Compute<T>> v) const {
    StorePartial(row + begin, count, v);
  }
};

// f(at) for the whole of [begin, end): FullLanes from begin on, then at most one PartialLanes.
template <typename F>
[[gnu::always_inline]] inline void ForEachLanes(std::int64_t begin, std::int64_t end, F f) {
  for (; begin + kLanes <= end; begin += kLanes) f(FullLanes{begin});
  if (begin < end) f(PartialLanes{begin, end - begin});
}

// A row of n elements reduced by 64 independent chains and a tree: element i belongs to chain
// i mod 64, each chain starts from +0 and is serial, ascending; then p[c] + p[c + h] for h = 32,
// 16, 8, 4, 2, 1.
//
// step(acc, at) -> acc advances sixteen chains by one element each, as `at` loads them. Lanes past
// the end must leave their chain as it is: their loads give `fill`, 0 unless step asks for another.
template <typename C, typename Step>
[[gnu::always_inline]] inline C ReduceRow(std::int64_t n, Step step) {
  using V = Vec16<C>;
  V chain[4] = {V(C(0)), V(C(0)), V(C(0)), V(C(0))};
  std::int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    chain[0] = step(chain[0], FullLanes{i});
    chain[1] = step(chain[1], FullLanes{i + kLanes});
    chain[2] = step(chain[2], FullLanes{i + 2 * kLanes});
    chain[3] = step(chain[3], FullLanes{i + 3 * kLanes});
  }
  int k = 0;
  ForEachLanes(i, n, [&](auto at) {
    chain[k] = step(chain[k], at);
    ++k;
  });
  return HorizontalSum((chain[0] + chain[2]) + (chain[1] + chain[3]));
}

// (out0, out1, ...)[r][c] = f(in0[r][c], in1[r][c], ...), sixteen elements at a time. f takes one
// vector for each input and returns one, or a std::tuple with one for each output; one rounding to
// each output's storage type. All spans have the same shape. An output may be an input itself (same
// data and stride): every element is read before it is written.
template <typename F, typename... Out, typename... In>
void MapElements(std::tuple<RowSpan<Out>...> out, std::tuple<RowSpan<In>...> in, ThreadPool& pool,
                 const F& f) {
  // Elements of one task: large against the cost of handing it out, small against a cache.
  constexpr std::int64_t kBlock = 16384;
  std::int64_t rows = std::get<0>(out).rows, width = std::get<0>(out).width;
  const auto check = [&](const auto&... span) {
    ((HW_CHECK_EQ(span.rows, rows), HW_CHECK_EQ(span.width, width)), ...);
    return (span.contiguous() && ...);
  };
  const bool outs_flat = std::apply(check, out), ins_flat = std::apply(check, in);
  if (rows == 0 || width == 0) return;
  if (outs_flat && ins_flat) {
    const auto flatten = [&](auto&... span) {
      ((span.width = span.stride = rows * width, span.rows = 1), ...);
    };
    std::apply(flatten, out);
    std::apply(flatten, in);
    width *= rows;
    rows = 1;
  }
  const std::int64_t columns_of_block = std::min(width, kBlock);
  const std::int64_t rows_of_block = std::max<std::int64_t>(1, kBlock / width);
  const std::int64_t across = (width + columns_of_block - 1) / columns_of_block;
  const std::int64_t down = (rows + rows_of_block - 1) / rows_of_block;
  pool.ParallelFor(down * across, [&](std::int64_t block) {
    const std::int64_t row_begin = block / across * rows_of_block;
    const std::int64_t row_end = std::min(row_begin + rows_of_block, rows);
    const std::int64_t column_begin = block % across * columns_of_block;
    const std::int64_t column_end = std::min(column_begin + columns_of_block, width);
    for (std::int64_t r = row_begin; r < row_end; ++r) {
      const auto row = [r](const auto&... span) { return std::tuple(span.row(r)...); };
      const auto to = std::apply(row, out);
      const auto from = std::apply(row, in);
      ForEachLanes(column_begin, column_end, [&](auto at) {
        const auto result = std::apply([&](const auto*... p) { return f(at.Load(p)...); }, from);
        if constexpr (sizeof...(Out) == 1) {
          at.Store(std::get<0>(to), result);
        } else {
          [&]<std::size_t... i>(std::index_sequence<i...>) {
            (at.Store(std::get<i>(to), std::get<i>(result)), ...);
          }
          (std::index_sequence_for<Out...>{});
        }
      });
    }
  });
}

}  // namespace headwise

#endif  // HEADWISE_KERNELS_COMMON_ROW_LOOPS_H_
