// Sums over tokens (weight gradients): tiles of kTokenTile tokens, a constant that never depends on
// threads or shapes; serial inside a tile, ascending, from +0; the adjacent-pair tree over tiles
// (core/tensor/adjacent_pair.h, which this header passes on).
#ifndef HEADWISE_KERNELS_COMMON_REDUCTIONS_H_
#define HEADWISE_KERNELS_COMMON_REDUCTIONS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "core/tensor/adjacent_pair.h"
#include "core/tensor/row_span.h"
#include "kernels/common/thread_pool.h"

namespace headwise {

inline constexpr std::int64_t kTokenTile = 64;

// Runs add(begin, end, acc) for every tile of tokens [begin, end), in parallel; acc [total.size()]
// starts at +0 and the tile's terms are to be added to it, tokens ascending. total = the tree over
// tiles (+0 if there are no tokens).
//
// add : void(std::int64_t begin, std::int64_t end, C* acc); it may do a token's other work too.
template <typename C, typename AddTile>
void SumOverTokens(std::int64_t tokens, absl::Span<C> total, ThreadPool& pool, AddTile add) {
  const std::int64_t width = static_cast<std::int64_t>(total.size());
  const std::int64_t tiles = (tokens + kTokenTile - 1) / kTokenTile;
  std::vector<C> storage(static_cast<std::size_t>(tiles * width));  // +0
  const RowSpan<C> partial(storage.data(), tiles, width);
  pool.ParallelFor(tiles, [&](std::int64_t tile) {
    const std::int64_t begin = tile * kTokenTile;
    add(begin, std::min(begin + kTokenTile, tokens), partial.row(tile));
  });
  if (tiles == 0) {
    std::fill(total.begin(), total.end(), C(0));
  } else {
    AdjacentPairTreeOfRows(partial);
    std::copy_n(partial.row(0), width, total.begin());
  }
}

}  // namespace headwise

#endif  // HEADWISE_KERNELS_COMMON_REDUCTIONS_H_
