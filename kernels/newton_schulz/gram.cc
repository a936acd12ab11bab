#include "kernels/newton_schulz/gram.h"

#include <algorithm>
#include <bit>

#include "core/base/check.h"
#include "kernels/newton_schulz/lower_product.h"

namespace headwise::newton_schulz {
namespace {

std::int64_t ChunksOf(std::int64_t n) { return (n + kChunkColumns - 1) / kChunkColumns; }

// The number of additions from a chunk partial to the root.
int TreeDepth(std::int64_t chunks) {
  return std::bit_width(std::bit_ceil(static_cast<std::uint64_t>(chunks))) - 1;
}

// right[i] = left[i] + right[i]
void AddInto(const float* left, std::int64_t size, float* right) {
  for (std::int64_t i = 0; i < size; i += kLanes)
    Store(right + i, Load(left + i) + Load(right + i));
}

void AddZero(std::int64_t size, float* left) {
  for (std::int64_t i = 0; i < size; i += kLanes) Store(left + i, Load(left + i) + 0.0f);
}

}  // namespace

GramPiece::GramPiece(const Piece& piece, std::int64_t n, float* scratch)
    : piece_(piece), n_(n), floats_(piece.tiles() * kTileFloats), scratch_(scratch) {}

std::int64_t GramPiece::ScratchFloats(const Piece& piece, std::int64_t n) {
  return (TreeDepth(ChunksOf(n)) + 1) * piece.tiles() * kTileFloats;
}

void GramPiece::AddChunk(const Panels& x, std::int64_t chunk) {
  HW_CHECK_EQ(chunk, added_);
  const int complete = std::countr_one(static_cast<std::uint64_t>(added_));
  float* const sums = Level(complete);
  const std::int64_t begin = chunk * kChunkColumns;
  LowerProduct(x, x, begin, std::min(begin + kChunkColumns, n_), piece_, sums);
  for (int level = 0; level < complete; ++level) AddInto(Level(level), floats_, sums);
  ++added_;
}

void GramPiece::Finish(const Panels& gram) {
  HW_CHECK_EQ(added_, ChunksOf(n_));
  const int depth = TreeDepth(added_);
  float* sum = nullptr;  // the right-hand subtree of the addition at `level`, once it holds a chunk
  for (int level = 0; level < depth; ++level) {
    if ((added_ >> level & 1) != 0) {
      float* const left = Level(level);
      if (sum == nullptr) {
        AddZero(floats_, left);
      } else {
        AddInto(sum, floats_, left);
      }
      sum = left;
    } else if (sum != nullptr) {
      AddZero(floats_, sum);
    }
  }
  if (sum == nullptr) sum = Level(depth);  // a power of two: the tree is complete
  for (std::int64_t row = piece_.row_begin; row < piece_.row_end; ++row) {
    for (std::int64_t col = piece_.col_begin; col < piece_.ColEnd(row); ++col) {
      F16 tile[kLanes];
      LoadTile(sum + piece_.TileIndex(row, col) * kTileFloats, tile);
      StoreMirrored(tile, row, col, gram);
    }
  }
}

}  // namespace headwise::newton_schulz
