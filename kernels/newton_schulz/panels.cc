#include "kernels/newton_schulz/panels.h"

#include <algorithm>

namespace headwise::newton_schulz {

std::vector<Piece> LowerPieces(std::int64_t panels) {
  std::vector<Piece> pieces;
  for (std::int64_t row = 0; row < panels; row += kPieceSide) {
    for (std::int64_t col = 0; col <= row; col += kPieceSide) {
      pieces.push_back({row, std::min(row + kPieceSide, panels),  //
                        col, std::min(col + kPieceSide, panels)});
    }
  }
  return pieces;
}

}  // namespace headwise::newton_schulz
