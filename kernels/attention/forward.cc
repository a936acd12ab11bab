// AttentionForward. A task is a block of queries of one group; for each key tile in turn, sixteen
// rows at a time: scores (chains over head_dim, lanes over keys), softmax (lanes over keys, then
// over rows), weighted sum of values (chains over keys, lanes over head_dim).
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

// Rows of a task: they share the packing of keys and values. A multiple of the 16 of a softmax step
// and of the register tile.
constexpr std::int64_t kTaskRows = 384;

template <typename C>
constexpr C kInfinity = std::numeric_limits<C>::infinity();

// The running softmax of sixteen rows.
template <typename C>
struct RunningSoftmax {
  Vec16<C> max = Vec16<C>(-kInfinity<C>);  // of the scores so far
  Vec16<C> sum = Vec16<C>(C{0});           // of exp(score - max)
};

// One key tile for sixteen rows. scores [16][64]: products of q and k on entry, exp(score - new
// max) on return, where range[r] of them are row r's and the others are anything. Vectors outside
// [first_vector, end_vector) are not touched. Returns what the row's earlier sums must be
// multiplied with.
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
  absl::Span<const Compute<T>> sinks;
  RowSpan<T> o;
  RowSpan<Compute<T>> log_sum_exp;
};

// Rows [row_begin, row_end) of a group.
template <typename T>
class ForwardTask {
 public:
  using C = Compute<T>;

  ForwardTask(const ForwardArguments<T>& args, const Group& group, std::int64_t row_begin,
              std::int64_t row_end)
      : args_(args),
        group_(group),
        row_begin_(row_begin),
        rows_(row_end - row_begin),
        dim_(group.padded_dim()),
        scale_(static_cast<C>(args.op.scale)),
        queries_(scratch_.template Take<C>(rows_ * dim_)),
        sums_(scratch_.template Take<C>(rows_ * dim_)),
        keys_(scratch_.template Take<C>((group.head_dim() + 1) * kTileKeys)),
        values_(scratch_.template Take<C>(kTileKeys * dim_)),
        scores_(scratch_.template Take<C>(kLanes * kTileKeys)),
        softmax_(scratch_.template Take<RunningSoftmax<C>>(num_blocks())) {}

  void Run() {
    std::fill_n(softmax_, num_blocks(), RunningSoftmax<C>());
    if (!args_.sinks.empty()) StartWithSinks();
    std::fill_n(sums_, rows_ * dim_, C{0});
    // What is loaded and not used should at least not be slow: memory may hold subnormals.
    std::fill_n(keys_, (group_.head_dim() + 1) * kTileKeys, C{0});
    std::fill_n(scores_, kLanes * kTileKeys, C{0});
    group_.CopyQueryRows(args_.q, row_begin_, row_begin_ + rows_, queries_);
    const StepRange seen = group_.KeysOfRows(row_begin_, row_begin_ + rows_);
    if (!seen.empty()) {
      for (std::int64_t tile = seen.begin / kTileKeys * kTileKeys; tile < seen.end;
           tile += kTileKeys) {
        RunTile(tile, {std::max(seen.begin, tile), std::min(seen.end, tile + kTileKeys)});
      }
    }
    for (std::int64_t r = 0; r < rows_; ++r) StoreRow(r);
  }

 private:
  std::int64_t num_blocks() const { return (rows_ + kLanes - 1) / kLanes; }

  // Every row has seen one score, its head's sink, of a key whose value is zero.
  void StartWithSinks() {
    for (std::int64_t block = 0; block < num_blocks(); ++block) {
      C sink[kLanes];
      for (std::int64_t r = 0; r < kLanes; ++r) {
        const std::int64_t row = block * kLanes + r;
        sink[r] = row < rows_ ? args_.sinks[group_.HeadOf(row_begin_ + row)] : -kInfinity<C>;
      }
      softmax_[block] = {Load(sink), C{1}};
    }
  }

  // All rows and the keys at `positions` of a tile.
  void RunTile(std::int64_t tile, StepRange positions) {
    group_.CopyKeysAcross(args_.k, positions, keys_);
    group_.CopyKeyRows(args_.v, positions, values_ + (positions.begin - tile) * dim_);
    for (std::int64_t block = 0; block < num_blocks(); ++block) {
      const std::int64_t first = block * kLanes;
      const std::int64_t count = std::min<std::int64_t>(kLanes, rows_ - first);
      StepRange range[kLanes] = {};  // of each row, counted from the start of the tile
      StepRange any = {kTileKeys, 0};
      for (std::int64_t r = 0; r < count; ++r) {
        const StepRange seen = group_.KeysOf(group_.PositionOf(row_begin_ + first + r));
        range[r] = {std::max<std::int64_t>(seen.begin - tile, 0),
                    std::min(seen.end - tile, kTileKeys)};
        if (range[r].empty()) continue;
        any = {std::min(any.begin, range[r].begin), std::max(any.end, range[r].end)};
      }
      if (!any.empty()) RunBlock(block, count, range, any);
    }
  }

  // Up to sixteen rows, whose keys of the tile are range[r], all of them inside `any`.
  void RunBlock(std::int64_t block, std::int64_t count, const StepRange* range, StepRange any) {
    const std::int64_t first = block * kLanes, column = any.begin / kLanes * kLanes;
    const std::int64_t first_vector = any.begin / kLanes;
    const std::int64_t end_vector = (any.end + kLanes - 1) / kLanes;
    Extend<C, Start::kFromZero>(count, end_vector - first_vector,
                                Broadcasts<C>{queries_ + first * dim_, dim_, 1},
                                Vectors<const C>{keys_ + column, kTileKeys}, group_.head_dim(),
                                Vectors<C>{scores_ + column, kTileKeys});
    C factor[kLanes];
    Store(factor, SoftmaxStep(scores_, range, first_vector, end_vector, scale_, softmax_[block]));
    const Vectors<C> sums = {sums_ + first * dim_, dim_};
    for (std::int64_t r = 0; r < count; ++r) {
      for (std::int64_t d = 0; d < dim_; d += kLanes) {
        Store(sums.row(r) + d, Load(sums.row(r) + d) * factor[r]);
      }
    }
    ExtendRanges<C>(
        count, group_.vectors(), Broadcasts<C>{scores_, kTileKeys, 1},
        Vectors<const C>{values_, dim_}, [&](std::int64_t r) { return range[r]; }, sums);
  }

  void StoreRow(std::int64_t r) {
    const std::int64_t row = row_begin_ + r;
    const RunningSoftmax<C>& softmax = softmax_[r / kLanes];
    const C sum = softmax.sum[r % kLanes];
    const bool blind = sum == 0;  // a score that was seen adds one, or NaN
    group_.StoreHead<T>(sums_ + r * dim_, blind ? C{0} : C{1} / sum,
                        group_.QueryHead(args_.o, row));
    if (args_.log_sum_exp.data != nullptr) {
      group_.OfQueryHead(args_.log_sum_exp, row) =
          blind ? -kInfinity<C> : softmax.max[r % kLanes] + Log(sum);
    }
  }

  const ForwardArguments<T>& args_;
  const Group& group_;
  const std::int64_t row_begin_, rows_, dim_;
  const C scale_;
  ThreadScratch scratch_;
  C *queries_, *sums_;          // [rows][dim]
  C* keys_;                     // [D + 1][64]
  C* values_;                   // [64][dim]
  C* scores_;                   // [16][64]
  RunningSoftmax<C>* softmax_;  // [blocks]
};

}  // namespace
}  // namespace attention

template <typename T>
void AttentionForward(const Attention& op, absl::Span<const AttentionSegment> segments,
                      RowSpan<const T> q, RowSpan<const T> k, RowSpan<const T> v,
                      absl::Span<const Compute<T>> sinks, RowSpan<T> o,
                      RowSpan<Compute<T>> log_sum_exp, ThreadPool& pool) {
  attention::CheckArguments(op, segments, q.rows, q.width, k.rows, k.width);
  attention::CheckSameShape(q, o, "q and o");
  attention::CheckSameShape(k, v, "k and v");
  attention::CheckSinks(op, sinks.size());
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
  const attention::ForwardArguments<T> args = {op, q, k, v, sinks, o, log_sum_exp};
  pool.ParallelFor(static_cast<std::int64_t>(tasks.size()), [&](std::int64_t i) {
    const Task& task = tasks[i];
    const attention::Group group(op, *task.segment, task.kv_head);
    attention::ForwardTask<T>(args, group, task.row_begin, task.row_end).Run();
  });
}

#define HEADWISE_ATTENTION_INSTANTIATE(T)                                                       \
  template void AttentionForward(const Attention&, absl::Span<const AttentionSegment>,          \
                                 RowSpan<const T>, RowSpan<const T>, RowSpan<const T>,          \
                                 absl::Span<const Compute<T>>, RowSpan<T>, RowSpan<Compute<T>>, \
                                 ThreadPool&);
HEADWISE_ATTENTION_INSTANTIATE(float)
HEADWISE_ATTENTION_INSTANTIATE(BFloat16)
HEADWISE_ATTENTION_INSTANTIATE(double)
#undef HEADWISE_ATTENTION_INSTANTIATE

}  // namespace headwise
