// AttentionBackward. A task takes some query rows and some keys of a group and adds up the
// gradients of its keys and values, of its queries, or of both:
//
//   whole    a segment's group: 5 products (scores, dp, dv, dk, dq). For many segments.
//   keys     one key tile of a group and all rows that see it: 4 products
//   queries  some rows of a group and all keys that they see: 3 products. With `keys`, for few
//            segments: as many tasks as one likes.
//
// Each gradient is a chain whose order all kinds of task follow, so the choice shows in no bit.
#include <algorithm>
#include <limits>
#include <vector>

#include "core/base/check.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/chains.h"
#include "kernels/attention/check_arguments.h"
#include "kernels/attention/group.h"
#include "kernels/common/math.h"
#include "kernels/common/reductions.h"
#include "kernels/common/row_loops.h"
#include "kernels/common/simd.h"
#include "kernels/common/thread_scratch.h"

namespace headwise {
namespace attention {
namespace {

// Rows whose probabilities are in the cache at a time; a multiple of the register tile.
constexpr std::int64_t kBlockRows = 96;
// Rows of a `queries` task.
constexpr std::int64_t kTaskRows = 192;
// Elements of dq that a `whole` task may keep.
constexpr std::int64_t kMaxWholeElements = std::int64_t{1} << 22;

template <typename T>
struct BackwardArguments {
  const Attention& op;
  RowSpan<const T> q, k, v;
  absl::Span<const Compute<T>> sinks;
  RowSpan<const T> o;
  RowSpan<const Compute<T>> log_sum_exp;
  RowSpan<const T> d_o;
  RowSpan<T> dq, dk, dv;
  RowSpan<Compute<T>> delta;  // [T, H]: d_o . o
};

struct Task {
  const AttentionSegment* segment;
  std::int64_t kv_head;
  std::int64_t row_begin, row_end;
  StepRange keys;  // positions; from a tile's start, unless they start inside the first tile
  bool write_keys, write_queries;
  std::int64_t cost;
};

StepRange Intersect(StepRange a, StepRange b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}
StepRange Shift(StepRange a, std::int64_t offset) { return {a.begin + offset, a.end + offset}; }

// Copies of the keys and values of some tiles, and the sums of their gradients.
template <typename C>
struct KeyTiles {
  // Tiles at a time: what a second-level cache holds.
  static std::int64_t MaxTiles(std::int64_t dim) { return std::max<std::int64_t>(1, 512 / dim); }

  KeyTiles(std::int64_t tiles, std::int64_t dim, bool for_queries, bool for_keys,
           ThreadScratch& scratch)
      : dim(dim) {
    const std::int64_t across = tiles * AcrossSize(), rows = tiles * kTileKeys * dim;
    keys_across = scratch.Take<C>(across);
    values_across = scratch.Take<C>(across);
    keys = scratch.Take<C>(for_queries ? rows : 0);
    dk = scratch.Take<C>(for_keys ? rows : 0);
    dv = scratch.Take<C>(for_keys ? rows : 0);
    std::fill_n(keys_across, across, C{0});
    std::fill_n(values_across, across, C{0});
  }
  std::int64_t AcrossSize() const { return (dim + 1) * kTileKeys; }
  C* KeysAcross(std::int64_t i) const { return keys_across + i * AcrossSize(); }
  C* ValuesAcross(std::int64_t i) const { return values_across + i * AcrossSize(); }
  Vectors<C> Rows(C* of, std::int64_t i) const { return {of + i * kTileKeys * dim, dim}; }

  std::int64_t dim;
  C *keys_across, *values_across;  // [tiles][dim + 1][64]
  C *keys, *dk, *dv;               // [tiles][64][dim]
};

template <typename T>
class BackwardTask {
 public:
  using C = Compute<T>;

  BackwardTask(const BackwardArguments<T>& args, const Task& task)
      : args_(args),
        task_(task),
        group_(args.op, *task.segment, task.kv_head),
        dim_(group_.padded_dim()),
        scale_(static_cast<C>(args.op.scale)),
        // Whole positions.
        block_rows_(std::max<std::int64_t>(1, kBlockRows / group_.heads()) * group_.heads()),
        first_tile_(task.keys.begin / kTileKeys),
        num_tiles_(task.keys.empty() ? 0 : (task.keys.end - 1) / kTileKeys + 1 - first_tile_),
        chunk_(std::min(num_tiles_, KeyTiles<C>::MaxTiles(dim_))),
        tiles_(chunk_, dim_, task.write_queries, task.write_keys, scratch_),
        queries_(scratch_.template Take<C>(block_rows_ * dim_)),
        d_outputs_(scratch_.template Take<C>(block_rows_ * dim_)),
        p_(scratch_.template Take<C>(block_rows_ * kTileKeys)),
        ds_(scratch_.template Take<C>(block_rows_ * kTileKeys)) {}

  void Run() {
    const std::int64_t rows = task_.row_end - task_.row_begin;
    dq_ = scratch_.template Take<C>(task_.write_queries ? rows * dim_ : 0);
    if (task_.write_queries) std::fill_n(dq_, rows * dim_, C{0});
    for (std::int64_t i = 0; i < num_tiles_; i += chunk_) {
      RunTiles(first_tile_ + i, std::min(chunk_, num_tiles_ - i));
    }
    if (task_.write_queries) {
      for (std::int64_t r = 0; r < rows; ++r) {
        group_.StoreHead<T>(dq_ + r * dim_, scale_,
                            group_.QueryHead(args_.dq, task_.row_begin + r));
      }
    }
  }

 private:
  StepRange KeysOfTile(std::int64_t tile) const {
    return Intersect(task_.keys, {tile * kTileKeys, (tile + 1) * kTileKeys});
  }
  // Rows of the task that see some of `keys`.
  StepRange RowsOfKeys(StepRange keys) const {
    return Intersect({task_.row_begin, task_.row_end},
                     {group_.RowsOf(keys.begin).begin, group_.RowsOf(keys.end - 1).end});
  }

  void RunTiles(std::int64_t first, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      const StepRange keys = KeysOfTile(first + i);
      const std::int64_t offset = keys.begin % kTileKeys;
      group_.CopyKeysAcross(args_.k, keys, tiles_.KeysAcross(i));
      group_.CopyKeysAcross(args_.v, keys, tiles_.ValuesAcross(i));
      if (task_.write_queries) {
        group_.CopyKeyRows(args_.k, keys, tiles_.Rows(tiles_.keys, i).row(offset));
      }
    }
    if (task_.write_keys) {
      std::fill_n(tiles_.dk, count * kTileKeys * dim_, C{0});
      std::fill_n(tiles_.dv, count * kTileKeys * dim_, C{0});
    }
    const StepRange rows = RowsOfKeys({KeysOfTile(first).begin, KeysOfTile(first + count - 1).end});
    for (std::int64_t row = rows.begin; row < rows.end; row += block_rows_) {
      const StepRange block = {row, std::min(row + block_rows_, rows.end)};
      group_.CopyQueryRows(args_.q, block.begin, block.end, queries_);
      group_.CopyQueryRows(args_.d_o, block.begin, block.end, d_outputs_);
      for (std::int64_t i = 0; i < count; ++i) RunTileOfBlock(first + i, i, block);
    }
    if (task_.write_keys) {
      for (std::int64_t i = 0; i < count; ++i) {
        const StepRange keys = KeysOfTile(first + i);
        for (std::int64_t p = keys.begin; p < keys.end; ++p) {
          const std::int64_t key = p % kTileKeys;
          group_.StoreHead<T>(tiles_.Rows(tiles_.dk, i).row(key), scale_,
                              group_.KeyHead(args_.dk, p));
          group_.StoreHead<T>(tiles_.Rows(tiles_.dv, i).row(key), C{1},
                              group_.KeyHead(args_.dv, p));
        }
      }
    }
  }

  // The i-th of the tiles at hand, and those rows of the block that see some of its keys.
  void RunTileOfBlock(std::int64_t tile, std::int64_t i, StepRange block) {
    const StepRange keys = KeysOfTile(tile);
    const StepRange rows = Intersect(block, RowsOfKeys(keys));
    if (rows.empty()) return;
    const std::int64_t count = rows.end - rows.begin, first_row = rows.begin - block.begin;
    for (std::int64_t r = 0; r < count; r += RegisterTile<C>::kRows) {
      Probabilities(
          tile, i,
          {rows.begin + r, rows.begin + std::min<std::int64_t>(r + RegisterTile<C>::kRows, count)},
          first_row + r);
    }
    const Vectors<const C> queries = {queries_ + first_row * dim_, dim_};
    const Vectors<const C> d_outputs = {d_outputs_ + first_row * dim_, dim_};
    const C* const p = p_ + first_row * kTileKeys;
    const C* const ds = ds_ + first_row * kTileKeys;
    if (task_.write_keys) {
      const std::int64_t key = keys.begin % kTileKeys;
      const auto rows_of_key = [&](std::int64_t j) {
        return Shift(Intersect(rows, group_.RowsOf(keys.begin + j)), -rows.begin);
      };
      const std::int64_t num_keys = keys.end - keys.begin;
      ExtendRanges<C>(num_keys, group_.vectors(), Broadcasts<C>{p + key, 1, kTileKeys}, d_outputs,
                      rows_of_key, tiles_.Rows(tiles_.dv, i).From(key));
      ExtendRanges<C>(num_keys, group_.vectors(), Broadcasts<C>{ds + key, 1, kTileKeys}, queries,
                      rows_of_key, tiles_.Rows(tiles_.dk, i).From(key));
    }
    if (task_.write_queries) {
      const auto keys_of_row = [&](std::int64_t r) {
        return Shift(Intersect(keys, group_.KeysOf(group_.PositionOf(rows.begin + r))),
                     -tile * kTileKeys);
      };
      const Vectors<C> all_keys = tiles_.Rows(tiles_.keys, i);
      ExtendRanges<C>(count, group_.vectors(), Broadcasts<C>{ds, kTileKeys, 1},
                      Vectors<const C>{all_keys.data, dim_}, keys_of_row,
                      Vectors<C>{dq_ + (rows.begin - task_.row_begin) * dim_, dim_});
    }
  }

  // p and ds of a register tile of rows, the first of which has the index `index` in the block.
  void Probabilities(std::int64_t tile, std::int64_t i, StepRange rows, std::int64_t index) {
    const StepRange seen = Shift(
        Intersect(group_.KeysOfRows(rows.begin, rows.end), KeysOfTile(tile)), -tile * kTileKeys);
    if (seen.empty()) return;
    const std::int64_t begin = seen.begin / kLanes * kLanes;
    const std::int64_t vectors = (seen.end - begin + kLanes - 1) / kLanes;
    const std::int64_t count = rows.end - rows.begin;
    const Vectors<C> p = {p_ + index * kTileKeys + begin, kTileKeys};
    const Vectors<C> ds = {ds_ + index * kTileKeys + begin, kTileKeys};
    Extend<C, Start::kFromZero>(count, vectors, Broadcasts<C>{queries_ + index * dim_, dim_, 1},
                                Vectors<const C>{tiles_.KeysAcross(i) + begin, kTileKeys},
                                group_.head_dim(), p);
    Extend<C, Start::kFromZero>(count, vectors, Broadcasts<C>{d_outputs_ + index * dim_, dim_, 1},
                                Vectors<const C>{tiles_.ValuesAcross(i) + begin, kTileKeys},
                                group_.head_dim(), ds);
    for (std::int64_t r = 0; r < count; ++r) {
      const C log_sum_exp = group_.OfQueryHead(args_.log_sum_exp, rows.begin + r);
      const C delta = group_.OfQueryHead(args_.delta, rows.begin + r);
      for (std::int64_t v = 0; v < vectors * kLanes; v += kLanes) {
        const Vec16<C> probability = Exp(Load(p.row(r) + v) * scale_ - log_sum_exp);
        Store(p.row(r) + v, probability);
        Store(ds.row(r) + v, probability * (Load(ds.row(r) + v) - delta));
      }
    }
  }

  const BackwardArguments<T>& args_;
  const Task& task_;
  const Group group_;
  const std::int64_t dim_;
  const C scale_;
  const std::int64_t block_rows_, first_tile_, num_tiles_, chunk_;
  ThreadScratch scratch_;
  KeyTiles<C> tiles_;
  C *queries_, *d_outputs_;  // [block rows][dim]
  C *p_, *ds_;               // [block rows][64]
  C* dq_ = nullptr;          // [rows of the task][dim]
};

// delta[t][h] of the queries of every segment.
template <typename T>
void Deltas(const BackwardArguments<T>& args, absl::Span<const AttentionSegment> segments,
            ThreadPool& pool) {
  using C = Compute<T>;
  constexpr std::int64_t kTokensOfTask = 64;
  std::vector<StepRange> tokens;
  for (const AttentionSegment& s : segments) {
    for (std::int64_t i = 0; i < s.num_queries; i += kTokensOfTask) {
      tokens.push_back(
          {s.query_begin + i, s.query_begin + std::min(s.num_queries, i + kTokensOfTask)});
    }
  }
  const std::int64_t dim = args.op.head_dim;
  pool.ParallelFor(static_cast<std::int64_t>(tokens.size()), [&](std::int64_t i) {
    for (std::int64_t t = tokens[i].begin; t < tokens[i].end; ++t) {
      for (std::int64_t h = 0; h < args.op.query_heads; ++h) {
        const T* o = args.o.row(t) + h * dim;
        const T* d_o = args.d_o.row(t) + h * dim;
        Vec16<C> sum = C{0};
        ForEachLanes(0, dim,
                     [&](auto at) HW_ALWAYS_INLINE { sum = Fma(at.Load(d_o), at.Load(o), sum); });
        args.delta.row(t)[h] = HorizontalSum(sum);
      }
    }
  });
}

// d_sinks [H] from the deltas.
template <typename T>
void SinkGradients(const BackwardArguments<T>& args, absl::Span<const AttentionSegment> segments,
                   absl::Span<Compute<T>> d_sinks, ThreadPool& pool) {
  using C = Compute<T>;
  std::vector<char> in_segment(args.q.rows, 0);
  for (const AttentionSegment& s : segments) {
    std::fill_n(in_segment.begin() + s.query_begin, s.num_queries, 1);
  }
  SumOverTokens(args.q.rows, d_sinks, pool, [&](std::int64_t begin, std::int64_t end, C* sum) {
    for (std::int64_t t = begin; t < end; ++t) {
      if (!in_segment[t]) continue;
      for (std::int64_t h = 0; h < args.op.query_heads; ++h) {
        const C log_sum_exp = args.log_sum_exp.row(t)[h];
        if (log_sum_exp == -std::numeric_limits<C>::infinity()) continue;
        sum[h] = Fma(-Exp(args.sinks[h] - log_sum_exp), args.delta.row(t)[h], sum[h]);
      }
    }
  });
}

std::vector<Task> TasksOf(const Attention& op, absl::Span<const AttentionSegment> segments,
                          int num_threads) {
  std::vector<Task> tasks;
  const std::int64_t groups = static_cast<std::int64_t>(segments.size()) * op.kv_heads;
  for (const AttentionSegment& segment : segments) {
    const StepRange keys = {segment.key_position, segment.key_position + segment.num_keys};
    for (std::int64_t kv_head = 0; kv_head < op.kv_heads; ++kv_head) {
      const Group group(op, segment, kv_head);
      const std::int64_t rows = group.num_rows();
      if (groups >= 2 * num_threads && rows * group.padded_dim() <= kMaxWholeElements) {
        tasks.push_back(
            {&segment, kv_head, 0, rows, keys, true, true, 5 * rows * segment.num_keys});
        continue;
      }
      for (std::int64_t tile = keys.begin / kTileKeys * kTileKeys; tile < keys.end;
           tile += kTileKeys) {
        const StepRange here = Intersect(keys, {tile, tile + kTileKeys});
        const std::int64_t begin = group.RowsOf(here.begin).begin;
        const std::int64_t end = std::max(begin, group.RowsOf(here.end - 1).end);
        tasks.push_back({&segment, kv_head, begin, end, here, true, false,
                         4 * (end - begin) * (here.end - here.begin)});
      }
      const std::int64_t step =
          std::max<std::int64_t>(1, kTaskRows / group.heads()) * group.heads();
      for (std::int64_t row = 0; row < rows; row += step) {
        const std::int64_t end = std::min(row + step, rows);
        const StepRange seen = group.KeysOfRows(row, end);
        tasks.push_back({&segment, kv_head, row, end, seen, false, true,
                         3 * (end - row) * (seen.end - seen.begin)});
      }
    }
  }
  // The long ones first, so that threads finish together.
  std::stable_sort(tasks.begin(), tasks.end(),
                   [](const Task& a, const Task& b) { return a.cost > b.cost; });
  return tasks;
}

}  // namespace
}  // namespace attention

template <typename T>
void AttentionBackward(const Attention& op, absl::Span<const AttentionSegment> segments,
                       RowSpan<const T> q, RowSpan<const T> k, RowSpan<const T> v,
                       absl::Span<const Compute<T>> sinks, RowSpan<const T> o,
                       RowSpan<const Compute<T>> log_sum_exp, RowSpan<const T> d_o, RowSpan<T> dq,
                       RowSpan<T> dk, RowSpan<T> dv, absl::Span<Compute<T>> d_sinks,
                       ThreadPool& pool) {
  attention::CheckArguments(op, segments, q.rows, q.width, k.rows, k.width);
  attention::CheckSameShape(k, v, "k and v");
  attention::CheckSameShape(q, o, "q and o");
  attention::CheckSameShape(q, d_o, "q and d_o");
  attention::CheckSameShape(q, dq, "q and dq");
  attention::CheckSameShape(k, dk, "k and dk");
  attention::CheckSameShape(k, dv, "k and dv");
  attention::CheckSinks(op, sinks.size());
  HW_CHECK_EQ(sinks.size(), d_sinks.size()) << "sinks and d_sinks";
  HW_CHECK_EQ(log_sum_exp.rows, q.rows) << "tokens of log_sum_exp";
  HW_CHECK_EQ(log_sum_exp.width, op.query_heads) << "heads of log_sum_exp";
  std::vector<Compute<T>> delta(q.rows * op.query_heads);
  const attention::BackwardArguments<T> args = {
      op,          q,   k,  v,  sinks, o,
      log_sum_exp, d_o, dq, dk, dv,    RowSpan<Compute<T>>(delta.data(), q.rows, op.query_heads)};
  attention::Deltas(args, segments, pool);
  if (!sinks.empty()) attention::SinkGradients(args, segments, d_sinks, pool);
  const std::vector<attention::Task> tasks = attention::TasksOf(op, segments, pool.num_threads());
  pool.ParallelFor(static_cast<std::int64_t>(tasks.size()),
                   [&](std::int64_t i) { attention::BackwardTask<T>(args, tasks[i]).Run(); });
}

#define HEADWISE_ATTENTION_INSTANTIATE(T)                                                          \
  template void AttentionBackward(                                                                 \
      const Attention&, absl::Span<const AttentionSegment>, RowSpan<const T>, RowSpan<const T>,    \
      RowSpan<const T>, absl::Span<const Compute<T>>, RowSpan<const T>, RowSpan<const Compute<T>>, \
      RowSpan<const T>, RowSpan<T>, RowSpan<T>, RowSpan<T>, absl::Span<Compute<T>>, ThreadPool&);
HEADWISE_ATTENTION_INSTANTIATE(float)
HEADWISE_ATTENTION_INSTANTIATE(BFloat16)
HEADWISE_ATTENTION_INSTANTIATE(double)
#undef HEADWISE_ATTENTION_INSTANTIATE

}  // namespace headwise
