// Panels: how the fast path stores matrices, and how it cuts products of them into pieces of work.
//
// A matrix M [rows, d] lies in panels of 16 columns, so that a vector's lanes are 16 neighbouring
// columns and a panel is read front to back: M(r, 16 p + lane) is panel(p)[16 r + lane]. The block
// itself is stored transposed, X(i, c) = M(c, i) with the d short rows of X as lanes: one packing
// serves the Gram matrix and the last product. The d x d matrices of the chain are symmetric, bit
// for bit, so M(r, i) also reads as M(i, r). Columns from d to the end of the last panel are zero.
#ifndef HEADWISE_KERNELS_NEWTON_SCHULZ_PANELS_H_
#define HEADWISE_KERNELS_NEWTON_SCHULZ_PANELS_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "kernels/common/simd.h"

namespace headwise::newton_schulz {

// Columns of the block per chunk of the Gram matrix: part of the contract.
inline constexpr std::int64_t kChunkColumns = 256;

inline constexpr std::int64_t kTileFloats = kLanes * kLanes;  // 16 rows of a panel

constexpr std::int64_t PanelsFor(std::int64_t columns) { return (columns + kLanes - 1) / kLanes; }

// Memory that somebody else owns. Rows beyond the matrix, up to stride / 16, may be read and
// written.
struct Panels {
  float* data = nullptr;    // 64-byte aligned
  std::int64_t count = 0;   // panels
  std::int64_t stride = 0;  // floats from panel to panel

  float* panel(std::int64_t p) const { return data + p * stride; }
};

// A rectangle of 16 x 16 tiles on or below the diagonal of a symmetric matrix: one unit of work.
struct Piece {
  std::int64_t row_begin, row_end;  // in panels
  std::int64_t col_begin, col_end;  // in panels; either all of it is below the diagonal, or
                                    // both ranges are the same and col <= row is meant

  // Tile columns of tile row `row` end here.
  std::int64_t ColEnd(std::int64_t row) const { return row < col_end ? row + 1 : col_end; }
  // Tiles are numbered row by row.
  std::int64_t TileIndex(std::int64_t row, std::int64_t col) const {
    const std::int64_t r = row - row_begin;
    const std::int64_t before =
        row_begin == col_begin ? r * (r + 1) / 2 : r * (col_end - col_begin);
    return before + col - col_begin;
  }
  std::int64_t tiles() const { return TileIndex(row_end - 1, ColEnd(row_end - 1) - 1) + 1; }
};

// The most tiles that a piece has.
inline constexpr std::int64_t kPieceSide = 6;
inline constexpr std::int64_t kPieceFloats = kPieceSide * kPieceSide * kTileFloats;

// Cuts the lower triangle of a matrix of `panels` panels; never by the number of threads.
std::vector<Piece> LowerPieces(std::int64_t panels);

// Runs task(i) for every i in [0, n), on one thread or on many.
using ForEach = absl::FunctionRef<void(std::int64_t n, absl::FunctionRef<void(std::int64_t)> task)>;

}  // namespace headwise::newton_schulz

#endif  // HEADWISE_KERNELS_NEWTON_SCHULZ_PANELS_H_
