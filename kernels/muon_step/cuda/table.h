// The table of a step: what MuonStepPlan writes on the host and the CUDA kernels read in device
// memory. Plain data. Internal to this family.
//
// X [d, n] of a block is the block or, if `transposed`, its transpose; d <= n. Offsets count floats
// from the beginning of the scratch.
#ifndef HEADWISE_KERNELS_MUON_STEP_CUDA_TABLE_H_
#define HEADWISE_KERNELS_MUON_STEP_CUDA_TABLE_H_

#include <cstdint>

namespace headwise::muon_step {

// Columns of a chunk of the Gram matrix: a constant of the contract (docs/numerics.md, 7).
inline constexpr int kChunk = 256;
// Columns of X that a kernel has in shared memory at a time.
inline constexpr int kStage = 64;
// Rows and columns of a tile of a block whose chain runs in the scratch.
inline constexpr int kTileSide = 64;

// A block up to 16 kEdge rows has its chain on chip: kEdge^2 elements of a matrix a thread.
inline constexpr int kSmallEdge = 4, kLargeEdge = 8;

// Rows and columns of a tile of a block on tensor cores.
inline constexpr int kTensorTile = 16;

// The d x d matrices of a tiled block, in turn at BlockEntry::matrices.
enum TiledMatrix : int { kR, kZ, kW, kQ, kOtherQ, kTiledMatrices };

// A range of rows (or columns) of a weight: the block's row `start` is the weight's row `begin`.
struct RangeEntry {
  std::int64_t start, begin;
};

struct BlockEntry {
  // Addresses of the whole weight's matrices in device memory; strides in elements.
  std::uintptr_t gradient, momentum, weight;
  std::int64_t gradient_stride, momentum_stride, weight_stride;
  double scale;  // UpdateScaleFactor

  // On chip: chunk partials of the Gram matrix, on tensor cores after their largest magnitudes;
  // tiled: levels of their tree.
  std::int64_t partials;
  // On chip: Q s [d, matrix_stride], on tensor cores pairs of halves; tiled: kTiledMatrices of side^2
  // floats.
  std::int64_t matrices;
  std::int64_t x[2];  // X rebuilt, as the block is stored [rows, x_stride]; [1] of tiled ones
  std::int64_t x_stride;
  std::int64_t first_begin;  // the first range's begin

  std::int32_t d, n;
  std::int32_t matrix_stride;  // of rows of matrices; a multiple of 4
  std::int32_t first_range, ranges;
  std::int32_t by_columns;  // the ranges are columns of the weight
  std::int32_t transposed;
  std::int32_t vectors;  // four elements that follow each other in a row may move at once
};

// What a block of a launch works on.
struct alignas(16) Unit {
  std::int32_t block;
  std::int32_t first, second;  // which chunk; or which tile: row, column or chunk
  std::int32_t unused;
};

// What a step finds out about a block, in the scratch.
struct alignas(8) BlockState {
  std::uint32_t largest;  // max |u| as the bits of a float; on tensor cores max |X|
  float root;  // tiled: s; on tensor cores what the product of scaled matrices is multiplied by
};

// Units of a launch: their offset in the table in units, and how many.
struct UnitList {
  std::int64_t begin = 0, count = 0;
};

// Where things are in the table, in bytes, and how many.
struct TableLayout {
  std::int64_t blocks = 0, ranges = 0, units = 0, steps = 0;
  std::int64_t block_count = 0;

  struct OnChip {
    UnitList chunks, blocks;
  };
  OnChip small, large;  // up to 64 and up to 128 rows
  UnitList tiled_strips, tiled_rows, tiled_lower, tiled_columns;
};

}  // namespace headwise::muon_step

#endif  // HEADWISE_KERNELS_MUON_STEP_CUDA_TABLE_H_
