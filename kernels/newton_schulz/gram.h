// GramPiece: one piece of the Gram matrix X X^T, chunk of columns by chunk of columns.
#ifndef HEADWISE_KERNELS_NEWTON_SCHULZ_GRAM_H_
#define HEADWISE_KERNELS_NEWTON_SCHULZ_GRAM_H_

#include <cstdint>

#include "kernels/newton_schulz/panels.h"

namespace headwise::newton_schulz {

// Chunk partials are added by the adjacent-pair tree as they arrive: two complete subtrees of equal
// size are merged at once, so that log2(chunks) + 1 partial sums are kept and not one per chunk.
class GramPiece {
 public:
  // X has n columns. `scratch` (not owned) has ScratchFloats(piece, n) elements.
  GramPiece(const Piece& piece, std::int64_t n, float* scratch);
  static std::int64_t ScratchFloats(const Piece& piece, std::int64_t n);

  // In the order chunk = 0, 1, .... x is the block [n, d], of which columns of the chunk are read.
  void AddChunk(const Panels& x, std::int64_t chunk);

  // After the last chunk: pads the tree and writes the piece and its mirror image.
  void Finish(const Panels& gram);

  // Forgets all chunks.
  void Reset() { added_ = 0; }

 private:
  // Holds a subtree of 2^level chunks.
  float* Level(int level) const { return scratch_ + level * floats_; }

  Piece piece_;
  std::int64_t n_;
  std::int64_t floats_;  // of the piece's tiles
  float* scratch_;
  std::int64_t added_ = 0;  // chunks; bit l says that level l holds a subtree
};

}  // namespace headwise::newton_schulz

#endif  // HEADWISE_KERNELS_NEWTON_SCHULZ_GRAM_H_
