#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/dtype/dtype.h"
#include "kernels/muon_step/arguments.h"
#include "kernels/muon_step/cuda.h"

namespace headwise {
namespace {

using muon_step::BlockEntry;
using muon_step::BlockState;
using muon_step::kChunk;
using muon_step::kTileSide;
using muon_step::RangeEntry;
using muon_step::TableLayout;
using muon_step::Unit;
using muon_step::UnitList;

constexpr std::int64_t CeilDiv(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
constexpr std::int64_t RoundUp(std::int64_t a, std::int64_t b) { return CeilDiv(a, b) * b; }

// Floats of scratch, handed out one after another; each piece begins at a multiple of 64.
class Scratch {
 public:
  std::int64_t Take(std::int64_t floats) {
    const std::int64_t begin = floats_;
    floats_ += RoundUp(floats, 64);
    return begin;
  }
  std::int64_t floats() const { return floats_; }

 private:
  std::int64_t floats_ = 0;
};

// Whether rows of T may move in vectors of four.
template <typename T>
bool InVectors(const RowSpan<T>& rows) {
  return reinterpret_cast<std::uintptr_t>(rows.data) % (4 * sizeof(T)) == 0 &&
         (rows.rows <= 1 || rows.stride % 4 == 0);
}

bool RangesInVectors(const HeadBlock& block) {
  return std::all_of(block.ranges.begin(), block.ranges.end(), [&](const IndexRange& range) {
    return range.begin % 4 == 0 && (range.size % 4 == 0 || &range == &block.ranges.back());
  });
}

template <typename G>
BlockEntry Describe(const MuonHyperparameters& hyper, const MuonWeight<G>& weight,
                    const HeadBlock& block) {
  const bool by_columns = weight.blocks->axis() == BlockAxis::kColumns;
  const std::int64_t rows = by_columns ? weight.weight.rows : block.size();
  const std::int64_t cols = by_columns ? block.size() : weight.weight.width;
  BlockEntry e = {.gradient = reinterpret_cast<std::uintptr_t>(weight.gradient.data),
                  .momentum = reinterpret_cast<std::uintptr_t>(weight.momentum.data),
                  .weight = reinterpret_cast<std::uintptr_t>(weight.weight.data),
                  .gradient_stride = weight.gradient.stride,
                  .momentum_stride = weight.momentum.stride,
                  .weight_stride = weight.weight.stride};
  e.scale = weight.transposed_storage ? UpdateScaleFactor(hyper.scale, cols, rows)
                                      : UpdateScaleFactor(hyper.scale, rows, cols);
  e.x_stride = RoundUp(cols, 4);
  e.first_begin = block.ranges.front().begin;
  e.d = static_cast<std::int32_t>(std::min(rows, cols));
  e.n = static_cast<std::int32_t>(std::max(rows, cols));
  e.ranges = static_cast<std::int32_t>(block.ranges.size());
  e.by_columns = by_columns;
  e.transposed = rows > cols || (rows == cols && weight.transposed_storage);
  e.vectors = InVectors(weight.gradient) && InVectors(weight.momentum) &&
              InVectors(weight.weight) && (!by_columns || RangesInVectors(block));
  return e;
}

// The scratch of a block with the chain on chip, by a thread block of kEdge x kEdge elements a
// thread.
void PlaceOnChip(int edge, bool restarts, Scratch& scratch, BlockEntry& e) {
  const std::int64_t side = CeilDiv(e.d, edge), tiles = side * (side + 1) / 2;
  e.matrix_stride = static_cast<std::int32_t>(RoundUp(e.d, 4));
  e.partials = scratch.Take(CeilDiv(e.n, kChunk) * edge * edge * RoundUp(tiles, 8));
  e.matrices = scratch.Take(std::int64_t{e.d} * e.matrix_stride);
  if (restarts) e.x[0] = scratch.Take((e.transposed ? e.n : e.d) * e.x_stride);
}

// On tensor cores: a word a chunk, and tiles of 16 x 16.
void PlaceOnTensorCores(bool restarts, Scratch& scratch, BlockEntry& e) {
  constexpr std::int64_t kTile = muon_step::kTensorTile;
  const std::int64_t side = CeilDiv(e.d, kTile), chunks = CeilDiv(e.n, kChunk);
  e.matrix_stride = static_cast<std::int32_t>(RoundUp(e.d, 4));
  e.partials =
      scratch.Take(RoundUp(chunks, 64) + chunks * (side * (side + 1) / 2) * (kTile * kTile));
  e.matrices = scratch.Take(std::int64_t{e.d} * e.matrix_stride);
  if (restarts) e.x[0] = scratch.Take((e.transposed ? e.n : e.d) * e.x_stride);
}

void PlaceTiled(bool restarts, Scratch& scratch, BlockEntry& e) {
  const std::int64_t side = RoundUp(e.d, kTileSide), tiles_per_side = side / kTileSide;
  const std::int64_t tiles = tiles_per_side * (tiles_per_side + 1) / 2;
  const int levels = std::bit_width(static_cast<std::uint64_t>(CeilDiv(e.n, kChunk) - 1));
  e.matrix_stride = static_cast<std::int32_t>(side);
  e.partials = scratch.Take(levels * tiles * kTileSide * kTileSide);
  e.matrices = scratch.Take(muon_step::kTiledMatrices * side * side);
  for (int i = 0; i < (restarts ? 2 : 1); ++i) {
    e.x[i] = scratch.Take((e.transposed ? e.n : e.d) * e.x_stride);
  }
}

// Lists of units, one after another in one array.
class Units {
 public:
  template <typename F>  // calls f(block, add(first, second))
  UnitList Add(const std::vector<int>& blocks, const F& f) {
    const auto begin = static_cast<std::int64_t>(units_.size());
    for (const int block : blocks) {
      f(block, [&](std::int64_t first, std::int64_t second) {
        units_.push_back(
            {block, static_cast<std::int32_t>(first), static_cast<std::int32_t>(second), 0});
      });
    }
    const UnitList list = {begin, static_cast<std::int64_t>(units_.size()) - begin};
    largest_ = std::max(largest_, list.count);
    return list;
  }
  const std::vector<Unit>& units() const { return units_; }
  std::int64_t largest() const { return largest_; }

 private:
  std::vector<Unit> units_;
  std::int64_t largest_ = 0;
};

void ListUnits(const std::vector<BlockEntry>& blocks, const std::vector<int> (&classes)[3],
               Units& units, TableLayout& layout) {
  TableLayout::OnChip* const on_chip[2] = {&layout.small, &layout.large};
  for (int c = 0; c < 2; ++c) {
    on_chip[c]->chunks = units.Add(classes[c], [&](int block, const auto& add) {
      for (std::int64_t i = 0; i < CeilDiv(blocks[block].n, kChunk); ++i) add(i, 0);
    });
    on_chip[c]->blocks = units.Add(classes[c], [](int, const auto& add) { add(0, 0); });
  }
  const auto add_tiled = [&](const auto& columns_of_row) {
    return units.Add(classes[2], [&](int block, const auto& add) {
      const std::int64_t rows = CeilDiv(blocks[block].d, kTileSide);
      for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t j = 0; j < columns_of_row(blocks[block], i); ++j) add(i, j);
      }
    });
  };
  layout.tiled_strips =
      add_tiled([](const BlockEntry& b, std::int64_t) { return CeilDiv(b.n, kChunk); });
  layout.tiled_rows = add_tiled([](const BlockEntry&, std::int64_t) { return 1; });
  layout.tiled_lower = add_tiled([](const BlockEntry&, std::int64_t row) { return row + 1; });
  layout.tiled_columns =
      add_tiled([](const BlockEntry& b, std::int64_t) { return CeilDiv(b.n, muon_step::kStage); });
}

template <typename T>
std::int64_t Append(const std::vector<T>& values, std::vector<std::byte>& table) {
  const auto begin = static_cast<std::int64_t>(table.size());
  table.resize(RoundUp(begin + values.size() * sizeof(T), 16));
  if (!values.empty()) std::memcpy(table.data() + begin, values.data(), values.size() * sizeof(T));
  return begin;
}

}  // namespace

template <typename G>
absl::StatusOr<MuonStepPlan> MuonStepPlan::Create(const MuonHyperparameters& hyper,
                                                  absl::Span<const MuonWeight<G>> weights,
                                                  MuonMode mode, MuonChainMemory chain) {
  HW_RETURN_IF_ERROR(muon_step::CheckArguments(hyper, weights));
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  std::int64_t block_count = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const RowSpan<float>& w = weights[i].weight;
    block_count += weights[i].blocks->size();
    if (std::max(w.rows, w.width) >= std::int64_t{1} << 30) {
      return absl::InvalidArgumentError(
          absl::StrCat("Muon weight ", i, ": it is [", w.rows, ", ", w.width,
                       "], expected less than 2^30 rows and columns on CUDA"));
    }
  }

  MuonStepPlan plan;
  const muon_step::Constants constants(hyper);
  plan.constants_ = {.beta = constants.beta,
                     .one_minus_beta = constants.one_minus_beta,
                     .weight_decay = hyper.weight_decay,
                     .nesterov = hyper.nesterov};
  plan.steps_ = hyper.coefficients->steps;
  int begin = 0;
  for (const int after : hyper.coefficients->restarts_after) {
    plan.segments_.push_back({begin, after});
    begin = after;
  }
  plan.segments_.push_back({begin, static_cast<int>(plan.steps_.size())});
  plan.bf16_gradients_ = std::is_same_v<G, BFloat16>;
  plan.mode_ = mode;
  plan.chain_ = chain;

  const bool restarts = plan.segments_.size() > 1;
  Scratch scratch;
  scratch.Take(block_count * static_cast<std::int64_t>(sizeof(BlockState) / sizeof(float)));
  std::vector<BlockEntry> blocks;
  std::vector<RangeEntry> ranges;
  std::vector<int> classes[3];
  for (const MuonWeight<G>& weight : weights) {
    for (const HeadBlock& block : weight.blocks->blocks()) {
      BlockEntry e = Describe(hyper, weight, block);
      e.first_range = static_cast<std::int32_t>(ranges.size());
      std::int64_t start = 0;
      for (const IndexRange& range : block.ranges) {
        ranges.push_back({start, range.begin});
        start += range.size;
      }
      const bool tiled = chain == MuonChainMemory::kScratch || e.d > 16 * muon_step::kLargeEdge;
      const bool small = e.d <= 16 * muon_step::kSmallEdge;
      if (tiled) {
        PlaceTiled(restarts, scratch, e);
      } else if (mode == MuonMode::kTensorCore) {
        PlaceOnTensorCores(restarts, scratch, e);
      } else {
        PlaceOnChip(small ? muon_step::kSmallEdge : muon_step::kLargeEdge, restarts, scratch, e);
      }
      classes[tiled ? 2 : small ? 0 : 1].push_back(static_cast<int>(blocks.size()));
      blocks.push_back(e);
    }
  }
  Units units;
  TableLayout& layout = plan.layout_;
  ListUnits(blocks, classes, units, layout);
  if (units.largest() > kMost) {
    return absl::InvalidArgumentError(
        absl::StrCat("Muon: the weights need a grid of ", units.largest(),
                     " blocks, expected at most 2^31 - 1 on CUDA; split the step"));
  }
  layout.block_count = block_count;
  layout.blocks = Append(blocks, plan.table_);
  layout.ranges = Append(ranges, plan.table_);
  layout.units = Append(units.units(), plan.table_);
  layout.steps = Append(plan.steps_, plan.table_);
  plan.scratch_floats_ = scratch.floats();
  return plan;
}

int MuonStepPlan::launches() const {
  int launches = 0;
  for (const UnitList& blocks : {layout_.small.blocks, layout_.large.blocks}) {
    if (blocks.count > 0) launches += 3 * static_cast<int>(segments_.size());
  }
  if (layout_.tiled_rows.count == 0) return launches;
  launches += 2;  // momentum, and the division by the trace
  for (const Segment& segment : segments_) {
    const int steps = segment.end - segment.begin;
    launches += 2 + (steps == 1 ? 1 : 3 * steps - 1);
  }
  return launches;
}

template absl::StatusOr<MuonStepPlan> MuonStepPlan::Create(const MuonHyperparameters&,
                                                           absl::Span<const MuonWeight<float>>,
                                                           MuonMode, MuonChainMemory);
template absl::StatusOr<MuonStepPlan> MuonStepPlan::Create(const MuonHyperparameters&,
                                                           absl::Span<const MuonWeight<BFloat16>>,
                                                           MuonMode, MuonChainMemory);

}  // namespace headwise
