// AttentionForward. A task is a block of queries of one group; for each key tile in turn, sixteen rows at a time: scores
// (chains over head_dim, lanes over keys), softmax (lanes over keys, then over rows), weighted sum of values (chains over
// keys, lanes over head_dim).
#include <algorithm>
#include <limits>
#include <vector>

#include "core/base/check.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/chains.h"
#include "kernels/attention/check_arguments.h"
#include "kernels/attention/group.h"
#include "kernels/common/math.h"
#include "kernels/common/simd.h"
#include "kernels/common/thread_scratch.h"
#include "kernels/common/transpose.h"

namespace headwise {
namespace attention {
namespace {

// Rows of a task: they share the packing of keys and values. A multiple of the 16 of a softmax step and of the register tile.
constexpr std::int64_t kTaskRows = 384;

template <typename C>
constexpr C kInfinity = std::numeric_limits<C>::infinity();

// The running softmax of sixteen rows.
template <typename C>
struct RunningSoftmax {
  Vec16<C> max = Vec16<C>(-kInfinity<C>);  // of the scores so far
  Vec16<C> sum = Vec16<C>(C{0});           // of exp(score - max)
};

// One key tile for sixteen rows. scores [16][64]: products of q and k on entry, exp(score - new max) on return, where
// range[r] of them are row r's and the others are anything. Vectors outside [first_vector, end_vector) are not touched. Returns what the
// row's earlier sums must be multiplied with.
template <typename C>
Vec16<C> SoftmaxStep(C* scores, const StepRange* range, std::int64_t first_vector,
                     std::int64_t end_vector, C scale, RunningSoftmax<C>& softmax) {
  using V = Vec16<C>;
  using Integers = typename V::Mask;
  using Integer = BitsOf<C>;
  constexpr Integer kCount[kLanes] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const Integers lane = Load(kCount);

  V tops[kLanes];
  Integer sees_any[kLanes];
  for (int r = 0; r < kLanes; ++r) {
    sees_any[r] = range[r].empty() ? 0 : -1;
    V top = -kInfinity<C>;
    if (range[r].begin <= first_vector * kLanes && range[r].end >= end_vector * kLanes) {
      for (std::int64_t v = first_vector; v < end_vector; ++v) {
        C* const s = scores + r * kTileKeys + v * kLanes;
        const V score = Load(s) * scale;
        Store(s, score);
        top = Max(top, score);
      }
    } else if (!range[r].empty()) {
      for (std::int64_t v = first_vector; v < end_vector; ++v) {
        C* const s = scores + r * kTileKeys + v * kLanes;
        const Integers key = lane + static_cast<Integer>(v * kLanes);
        const Integers seen = (key >= static_cast<Integer>(range[r].begin)) &
                              (key < static_cast<Integer>(range[r].end));
        const V score = Select(seen, Load(s) * scale, V(-kInfinity<C>));
        Store(s, score);
        top = Max(top, score);
      }
    }
    tops[r] = top;
  }
  const Integers active = Load(sees_any);
  const V tile_max = HorizontalTrees(tops, [](V a, V b) { return Max(a, b); });
  const V new_max = Select(active, Max(softmax.max, tile_max), softmax.max);
  const V factor = Select(active, Exp(softmax.max - new_max), V(C{1}));
  softmax.max = new_max;

  C max_of_row[kLanes];
  Store(max_of_row, new_max);
  V sums[kLanes];
  for (int r = 0; r < kLanes; ++r) {
    V sum = C{0};
    if (!range[r].empty()) {
      const V row_max = max_of_row[r];
      for (std::int64_t v = first_vector; v < end_vector; ++v) {
        C* const s = scores + r * kTileKeys + v * kLanes;
        const V p = Exp(Load(s) - row_max);
        Store(s, p);
        sum += p;
      }
    }
    sums[r] = sum;
  }
  const V tile_sum = HorizontalTrees(sums, [](V a, V b) { return a + b; });
  softmax.sum = Select(active, Fma(softmax.sum, factor, tile_sum), softmax.sum);
  return factor;
}

template <typename T>
struct ForwardArguments {
  const Attention& op;
  RowSpan<const T> q, k, v;
  RowSpan<T> o;
  RowSpan<Compute<T>> log_sum_exp;
};

// Rows [row_begin, row_end) of the group.
template <typename T>
void ForwardTask(const ForwardArguments<T>& args, const Group& group, std::int64_t row_begin,
                 std::int64_t row_end) {
  using C = Compute<T>;
  const std::int64_t rows = row_end - row_begin, dim = group.padded_dim();
  const std::int64_t blocks = (rows + kLanes - 1) / kLanes;
  const C scale = static_cast<C>(args.op.scale);
  ThreadScratch scratch;
  C* const queries = scratch.Take<C>(rows * dim);
  C* const sums = scratch.Take<C>(rows * dim);
  C* const keys = scratch.Take<C>((group.head_dim() + 1) * kTileKeys);
  C* const values = scratch.Take<C>(kTileKeys * dim);
  C* const scores = scratch.Take<C>(kLanes * kTileKeys);
  auto* const softmax = scratch.Take<RunningSoftmax<C>>(blocks);
  std::fill_n(softmax, blocks, RunningSoftmax<C>());
  std::fill_n(sums, rows * dim, C{0});
  std::fill_n(scores, kLanes * kTileKeys, C{0});
  group.CopyQueryRows(args.q, row_begin, row_end, queries);

  const StepRange all = group.KeysOfRows(row_begin, row_end);
  for (std::int64_t tile = all.begin / kTileKeys * kTileKeys; !all.empty() && tile < all.end;
       tile += kTileKeys) {
    const StepRange here = {std::max(all.begin, tile), std::min(all.end, tile + kTileKeys)};
    group.CopyKeysAcross(args.k, here, keys);
    group.CopyKeyRows(args.v, here, values + (here.begin - tile) * dim);
    for (std::int64_t block = 0; block < blocks; ++block) {
      const std::int64_t first = block * kLanes,
                         count = std::min<std::int64_t>(kLanes, rows - first);
      StepRange range[kLanes] = {};  // row by row, counted from the start of the tile
      StepRange any = {kTileKeys, 0};
      for (std::int64_t r = 0; r < count; ++r) {
        const StepRange seen = group.KeysOf(group.PositionOf(row_begin + first + r));
        range[r] = {std::max<std::int64_t>(seen.begin - tile, 0),
                    std::min(seen.end - tile, kTileKeys)};
        if (range[r].empty()) continue;
        any = {std::min(any.begin, range[r].begin), std::max(any.end, range[r].end)};
      }
      if (any.empty()) continue;
      const std::int64_t first_vector = any.begin / kLanes;
      const std::int64_t end_vector = (any.end + kLanes - 1) / kLanes;
      const std::int64_t column = first_vector * kLanes;
      Extend<C, Start::kFromZero>(count, end_vector - first_vector,
                                  Broadcasts<C>{queries + first * dim, dim, 1},
                                  Vectors<const C>{keys + column, kTileKeys}, group.head_dim(),
                                  Vectors<C>{scores + column, kTileKeys});
      C factor[kLanes];
      Store(factor, SoftmaxStep(scores, range, first_vector, end_vector, scale, softmax[block]));
      const Vectors<C> sum = {sums + first * dim, dim};
      for (std::int64_t r = 0; r < count; ++r) {
        for (std::int64_t d = 0; d < dim; d += kLanes) {
          Store(sum.row(r) + d, Load(sum.row(r) + d) * factor[r]);
        }
      }
      ExtendRanges<C>(
          count, group.vectors(), Broadcasts<C>{scores, kTileKeys, 1},
          Vectors<const C>{values, dim}, [&](std::int64_t r) { return range[r]; }, sum);
    }
  }

  for (std::int64_t r = 0; r < rows; ++r) {
    const bool blind = group.KeysOf(group.PositionOf(row_begin + r)).empty();
    const RunningSoftmax<C>& mine = softmax[r / kLanes];
    const C sum = mine.sum[r % kLanes];
    group.StoreHead<T>(sums + r * dim, blind ? C{0} : C{1} / sum,
                       group.QueryHead(args.o, row_begin + r));
    if (args.log_sum_exp.data != nullptr) {
      group.OfQueryHead(args.log_sum_exp, row_begin + r) =
          blind ? -kInfinity<C> : mine.max[r % kLanes] + Log(sum);
    }
  }
}

}  // namespace
}  // namespace attention

template <typename T>
void AttentionForward(const Attention& op, absl::Span<const AttentionSegment> segments,
                      RowSpan<const T> q, RowSpan<const T> k, RowSpan<const T> v, RowSpan<T> o,
                      RowSpan<Compute<T>> log_sum_exp, ThreadPool& pool) {
  attention::CheckArguments(op, segments, q.rows, q.width, k.rows, k.width);
  attention::CheckSameShape(q, o, "q and o");
  attention::CheckSameShape(k, v, "k and v");
  if (log_sum_exp.data != nullptr) {
    HW_CHECK_EQ(log_sum_exp.rows, q.rows) << "tokens of log_sum_exp";
    HW_CHECK_EQ(log_sum_exp.width, op.query_heads) << "heads of log_sum_exp";
  }
  struct Task {
    const AttentionSegment* segment;
    std::int64_t kv_head, row_begin, row_end, cost;
  };
  std::vector<Task> tasks;
  for (const AttentionSegment& segment : segments) {
    for (std::int64_t kv_head = 0; kv_head < op.kv_heads; ++kv_head) {
      const attention::Group group(op, segment, kv_head);
      // Whole positions, so that a task's rows start with a group's first head.
      const std::int64_t step =
          std::max<std::int64_t>(1, attention::kTaskRows / group.heads()) * group.heads();
      for (std::int64_t row = 0; row < group.num_rows(); row += step) {
        const std::int64_t end = std::min(row + step, group.num_rows());
        const attention::StepRange keys = group.KeysOfRows(row, end);
        tasks.push_back({&segment, kv_head, row, end, (end - row) * (keys.end - keys.begin)});
      }
    }
  }
  // The long ones first, so that threads finish together.
  std::stable_sort(tasks.begin(), tasks.end(),
                   [](const Task& a, const Task& b) { return a.cost > b.cost; });
  const attention::ForwardArguments<T> args = {op, q, k, v, o, log_sum_exp};
  pool.ParallelFor(static_cast<std::int64_t>(tasks.size()), [&](std::int64_t i) {
    const Task& task = tasks[i];
    attention::ForwardTask(args, attention::Group(op, *task.segment, task.kv_head), task.row_begin,
                           task.row_end);
  });
}

#define HEADWISE_ATTENTION_INSTANTIATE(T)                                                          \
  template void AttentionForward(const Attention&, absl::Span<const AttentionSegment>,             \
                                 RowSpan<const T>, RowSpan<const T>, RowSpan<const T>, RowSpan<T>, \
                                 RowSpan<Compute<T>>, ThreadPool&);
HEADWISE_ATTENTION_INSTANTIATE(float)
HEADWISE_ATTENTION_INSTANTIATE(BFloat16)
HEADWISE_ATTENTION_INSTANTIATE(double)
#undef HEADWISE_ATTENTION_INSTANTIATE

}  // namespace headwise
