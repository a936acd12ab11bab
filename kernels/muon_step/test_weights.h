// For tests: weights of every kind of block in one step.
#ifndef HEADWISE_KERNELS_MUON_STEP_TEST_WEIGHTS_H_
#define HEADWISE_KERNELS_MUON_STEP_TEST_WEIGHTS_H_

#include <cmath>
#include <cstdint>
#include <iterator>
#include <vector>

#include "core/heads/head_blocks.h"
#include "core/heads/packed_qkv.h"
#include "kernels/muon_step/parity.h"

namespace headwise {

inline HeadBlocks QkvBlocks() {
  return HeadBlocks::FromPacked(*PackedQkv::Interleaved({4, 2, 16}));
}

// Blocks of columns, one of them of two ranges, at odd places.
inline HeadBlocks ColumnBlocks() {
  std::vector<HeadBlock> columns(2);
  columns[0].ranges = {{30, 20}, {0, 10}};
  columns[1].ranges = {{10, 20}};
  return *HeadBlocks::Create(50, columns, BlockAxis::kColumns);
}

// Of multiples of four, so that columns may move in vectors.
inline HeadBlocks VectorColumnBlocks() {
  std::vector<HeadBlock> columns(3);
  columns[0].ranges = {{32, 20}, {0, 12}};
  columns[1].ranges = {{12, 20}};
  columns[2].ranges = {{52, 8}};
  return *HeadBlocks::Create(60, columns, BlockAxis::kColumns);
}

// Heads, kv groups, projections, columns, whole matrices wide, tall and square, stored either way,
// with and without gaps between rows; none of more than 128 rows and columns.
template <typename G>
std::vector<TestWeight<G>> WeightsOfManyKinds() {
  using Weight = TestWeight<G>;
  const HeadBlocks heads = QkvBlocks();
  std::vector<Weight> weights = {
      Weight(heads, 300, 1),
      Weight(*heads.Coarsen(Granularity::kKvGroup), 65, 2, Layout::kStrided),
      Weight(HeadBlocks::Whole(130), 33, 3),
      Weight(HeadBlocks::Whole(33), 513, 4, Layout::kStrided),
      Weight(ColumnBlocks(), 70, 5, Layout::kStrided),
      Weight(HeadBlocks::Whole(1), 1, 6),
      Weight(HeadBlocks::Whole(40), 40, 7),
      Weight(VectorColumnBlocks(), 72, 8),
      Weight(*heads.Coarsen(Granularity::kProjection), 48, 9),
      Weight(HeadBlocks::Whole(100), 132, 10),
  };
  weights[2].transposed_storage = weights[6].transposed_storage = true;
  return weights;
}

// Heads of ordinary magnitudes, of subnormals, of some that a power of two brings into range and
// some just within it, and of zeros, in one weight of `cols` columns.
template <typename G>
TestWeight<G> WeightOfManyMagnitudes(std::int64_t cols) {
  constexpr std::int64_t kDim = 16;
  const int exponents[] = {0, -140, -41, -39, 39, 42, 90};
  constexpr std::int64_t kHeads = std::size(exponents) + 1;
  TestWeight<G> w(*HeadBlocks::Separate(HeadRole::kQuery, kHeads, kDim, 1), cols, 4);
  for (std::int64_t r = 0; r < kHeads * kDim; ++r) {
    for (std::int64_t c = 0; c < cols; ++c) {
      const auto scaled = [&](float v) {
        return r / kDim == kHeads - 1 ? 0.0f : std::ldexp(v, exponents[r / kDim]);
      };
      w.gradient.at(r, c) = Narrow<G>(scaled(Widen(w.gradient.at(r, c))));
      w.momentum.at(r, c) = scaled(w.momentum.at(r, c));
    }
  }
  return w;
}

}  // namespace headwise

#endif  // HEADWISE_KERNELS_MUON_STEP_TEST_WEIGHTS_H_
