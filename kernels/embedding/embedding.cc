#include "kernels/embedding/embedding.h"

#include <algorithm>

#include "core/base/check.h"
#include "kernels/common/row_loops.h"
#include "kernels/common/simd.h"

namespace headwise {
namespace {

void Check(absl::Span<const std::int32_t> tokens, std::int64_t rows, VocabularyShard shard) {
  const std::int64_t vocabulary = CheckVocabularyShard(shard, rows);
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    HW_CHECK(tokens[t] >= 0 && tokens[t] < vocabulary)
        << "token " << tokens[t] << " at index " << t << ", vocabulary " << vocabulary;
  }
}

}  // namespace

template <typename T>
void EmbeddingForward(absl::Span<const std::int32_t> tokens, RowSpan<const Compute<T>> table,
                      RowSpan<T> out, ThreadPool& pool, VocabularyShard shard) {
  HW_CHECK_EQ(static_cast<std::int64_t>(tokens.size()), out.rows);
  HW_CHECK_EQ(table.width, out.width);
  Check(tokens, table.rows, shard);
  if (out.width == 0) return;
  const std::int64_t rows_of_task = std::max<std::int64_t>(1, 16384 / out.width);
  pool.ParallelFor((out.rows + rows_of_task - 1) / rows_of_task, [&](std::int64_t task) {
    const std::int64_t end = std::min((task + 1) * rows_of_task, out.rows);
    for (std::int64_t t = task * rows_of_task; t < end; ++t) {
      const std::int64_t row = LocalIndex(shard, table.rows, tokens[t]);
      T* const to = out.row(t);
      if (row < 0) {
        std::fill_n(to, out.width, Narrow<T>(0));
        continue;
      }
      const Compute<T>* const from = table.row(row);
      ForEachLanes(0, out.width, [&](auto at) HW_ALWAYS_INLINE { at.Store(to, at.Load(from)); });
    }
  });
}

template <typename T>
void EmbeddingBackward(absl::Span<const std::int32_t> tokens, RowSpan<const T> dout,
                       RowSpan<Compute<T>> dtable, ThreadPool& pool, VocabularyShard shard) {
  // A task owns a range of columns of the whole table: every row's sum is one task's, in token
  // order, and the work is even however often a token occurs.
  constexpr std::int64_t kColumns = 64;
  HW_CHECK_EQ(static_cast<std::int64_t>(tokens.size()), dout.rows);
  HW_CHECK_EQ(dtable.width, dout.width);
  Check(tokens, dtable.rows, shard);
  pool.ParallelFor((dout.width + kColumns - 1) / kColumns, [&](std::int64_t task) {
    const std::int64_t begin = task * kColumns;
    const std::int64_t end = std::min(begin + kColumns, dout.width);
    for (std::int64_t v = 0; v < dtable.rows; ++v) {
      std::fill(dtable.row(v) + begin, dtable.row(v) + end, Compute<T>(0));
    }
    for (std::int64_t t = 0; t < dout.rows; ++t) {
      const std::int64_t row = LocalIndex(shard, dtable.rows, tokens[t]);
      if (row < 0) continue;
      const T* const from = dout.row(t);
      Compute<T>* const sum = dtable.row(row);
      ForEachLanes(begin, end,
                   [&](auto at) HW_ALWAYS_INLINE { at.Store(sum, at.Load(sum) + at.Load(from)); });
    }
  });
}

#define HEADWISE_INSTANTIATE(T)                                                                \
  template void EmbeddingForward<T>(absl::Span<const std::int32_t>, RowSpan<const Compute<T>>, \
                                    RowSpan<T>, ThreadPool&, VocabularyShard);                 \
  template void EmbeddingBackward<T>(absl::Span<const std::int32_t>, RowSpan<const T>,         \
                                     RowSpan<Compute<T>>, ThreadPool&, VocabularyShard);
HEADWISE_INSTANTIATE(float)
HEADWISE_INSTANTIATE(BFloat16)
HEADWISE_INSTANTIATE(double)
#undef HEADWISE_INSTANTIATE

}  // namespace headwise
