// Backward for any even D, alignment, R and group size: a block takes one tile of 64 tokens of one
// kv group, a warp one head at a time (warp_head.cuh). Eight heads at a time meet in shared memory;
// their complete subtrees go on in a register stack, a column a thread.
#ifndef HEADWISE_KERNELS_PREPARE_QKV_CUDA_BACKWARD_ANY_CUH_
#define HEADWISE_KERNELS_PREPARE_QKV_CUDA_BACKWARD_ANY_CUH_

#include <cstdint>

#include "kernels/common/cuda/trees.cuh"
#include "kernels/emulation/cuda_kernel.h"
#include "kernels/prepare_qkv/contract.h"
#include "kernels/prepare_qkv/cuda/arguments.cuh"
#include "kernels/prepare_qkv/cuda/maths.cuh"
#include "kernels/prepare_qkv/cuda/warp_head.cuh"

namespace headwise::HW_CUDA_NAMESPACE {

inline constexpr int kAnyBackwardWarps = 8;
inline constexpr int kAnyBackwardThreads = 32 * kAnyBackwardWarps;
// Rounds of 8 heads: bounds the group size.
inline constexpr int kTreeRoundLevels = 9;
inline constexpr int kMaxGroupSize = kAnyBackwardWarps << (kTreeRoundLevels - 1);

// Floats of dynamic shared memory: two padded heads a warp, then [8, D] sums.
__host__ __device__ constexpr int AnyBackwardSharedFloats(int head_dim) {
  return kAnyBackwardWarps * (2 * PaddedLength(head_dim) + head_dim);
}

// The packed gradient of a head of one token, and its term of the weight's gradient: the lane's
// pairs i = lane + 32 k have theirs in sums[k].
template <typename T, int kPairs, typename Values>
__device__ __forceinline__ void BackwardHead(const BackwardArguments<T>& a, Rope rope,
                                             std::int64_t token, std::int64_t position,
                                             const HeadPlace& place, WarpHead<Values>& x,
                                             WarpHead<Values>& d, int lane,
                                             float (&sums)[kPairs][2]) {
  const int head_dim = a.heads.head_dim, rotary_dim = a.rotation.rotary_dim;
  const float* weight = place.role == Role::kQuery ? a.q_weight : a.k_weight;
  const float scale = place.role == Role::kQuery ? a.maths.query_scale : 1.0f;
  d.Load(Gradient(a, token, place), a.paired);
  if (a.maths.norm) x.Load(Packed(a.packed, a.heads, token, place), a.paired);
  __syncwarp();
  float root = 1.0f;
  if (a.maths.norm) {
    root = ReciprocalRoot(__fadd_rn(Mean(x.Sum(x), head_dim), a.maths.epsilon));
    __syncwarp();  // others read this lane's elements
  }
#pragma unroll
  for (int k = 0; k < kPairs; ++k) {
    const int i = lane + 32 * k;
    if (i >= head_dim / 2) continue;
    const ElementPair pair = PairAt(rope, rotary_dim, i);
    float g[2] = {d.Get(pair.first), d.Get(pair.second)};
    if (pair.rotates) {
      const std::int64_t at = position * (rotary_dim / 2) + i;
      RotateBack(g[0], g[1], LoadCached(a.rotation.cos + at), LoadCached(a.rotation.sin + at));
    }
    ScaleGradient<T>(a.maths, scale, g);
    if (a.maths.norm) {
      float w[2], h[2] = {g[0], g[1]}, xh[2] = {x.Get(pair.first), x.Get(pair.second)};
      LoadPairWeights(a.maths, weight, pair, w);
      Multiply(xh, root);
      Multiply(h, w);
      if (a.maths.round_before) RoundToStorage<T>(h);
      x.Set(pair.first, xh[0]);
      x.Set(pair.second, xh[1]);
      d.Set(pair.first, h[0]);
      d.Set(pair.second, h[1]);
      if (a.maths.round_before) RoundToStorage<T>(xh);
      sums[k][0] = __fmaf_rn(g[0], xh[0], sums[k][0]);
      sums[k][1] = __fmaf_rn(g[1], xh[1], sums[k][1]);
    } else {
      d.Set(pair.first, g[0]);
      d.Set(pair.second, g[1]);
    }
  }
  __syncwarp();
  T* to = Packed(a.dpacked, a.heads, token, place);
  if (!a.maths.norm) {
    d.Store(to, a.paired);
  } else {
    const float c1 = Mean(d.Sum(x), head_dim);
    for (int i = lane; i < head_dim / 2; i += 32) {
      StorePair(to, i, a.paired,
                make_float2(InputGradient(root, x.Get(2 * i), c1, d.Get(2 * i)),
                            InputGradient(root, x.Get(2 * i + 1), c1, d.Get(2 * i + 1))));
    }
  }
  __syncwarp();  // the next token's loads overwrite both
}

// kPairs >= D / 64, rounded up.
template <typename T, int kPairs>
__global__ void __launch_bounds__(kAnyBackwardThreads)
    PrepareQkvBackwardAny(const BackwardArguments<T> a, Rope rope) {
  constexpr int kTile = static_cast<int>(kWeightGradientTile);
  constexpr int kColumns = (64 * kPairs + kAnyBackwardThreads - 1) / kAnyBackwardThreads;
  HW_DYNAMIC_SHARED(float, shared, 0);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int head_dim = a.heads.head_dim, group_size = a.heads.group_size;
  const std::int64_t tile = blockIdx.x / a.heads.kv_heads;
  const int group = static_cast<int>(blockIdx.x - tile * a.heads.kv_heads);
  const std::int64_t first = tile * kTile;
  const std::int64_t end = first + kTile < a.tokens ? first + kTile : a.tokens;

  WarpHead x(shared, 2 * warp * PaddedLength(head_dim), head_dim, lane);
  WarpHead d(shared, (2 * warp + 1) * PaddedLength(head_dim), head_dim, lane);
  const int sums_begin = 2 * kAnyBackwardWarps * PaddedLength(head_dim);
  TreeSum<kTreeRoundLevels> column_sums[kColumns];

  // Query heads padded to whole eights or a power of two, then the key and the value.
  int padded = 1;
  while (padded < group_size) padded *= 2;
  const int rounds = (group_size + 2 + kAnyBackwardWarps - 1) / kAnyBackwardWarps;
  const int tree_rounds = padded < kAnyBackwardWarps ? 1 : padded / kAnyBackwardWarps;
  for (int round = 0; round < (rounds > tree_rounds ? rounds : tree_rounds); ++round) {
    const int r = round * kAnyBackwardWarps + warp;
    float sums[kPairs][2] = {};
    if (r < group_size + 2) {
      const HeadPlace place = PlaceInGroup(a.heads, group, r);
      for (std::int64_t token = first; token < end; ++token) {
        std::int64_t position = 0;
        if (rope != Rope::kNone && !FindTableRow(a.rotation, token, lane == 0, position)) continue;
        if (place.role == Role::kValue || a.maths.copy) {
          CopyHead(Gradient(a, token, place), Packed(a.dpacked, a.heads, token, place), head_dim,
                   lane, a.paired);
        } else {
          BackwardHead<T>(a, rope, token, position, place, x, d, lane, sums);
        }
      }
    }
    if (!a.maths.weighted) continue;

      // Each warp's sums into its row; a key's go straight to its partial.
#pragma unroll
    for (int k = 0; k < kPairs; ++k) {
      const int i = lane + 32 * k;
      if (i >= head_dim / 2) continue;
      const ElementPair pair = PairAt(rope, a.rotation.rotary_dim, i);
      if (r == group_size) {
        StoreGlobal(WeightPartial(a, tile, group, true) + pair.first, sums[k][0]);
        StoreGlobal(WeightPartial(a, tile, group, true) + pair.second, sums[k][1]);
      }
      const bool query = r < group_size;
      shared[sums_begin + warp * head_dim + pair.first] = query ? sums[k][0] : 0.0f;
      shared[sums_begin + warp * head_dim + pair.second] = query ? sums[k][1] : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int column = threadIdx.x + c * kAnyBackwardThreads;
      if (column >= head_dim || round >= tree_rounds) continue;
      const int heads = padded < kAnyBackwardWarps ? padded : kAnyBackwardWarps;
      SumAdjacentPairs(shared, sums_begin + column, head_dim, heads);
      column_sums[c].Push(shared[sums_begin + column]);
    }
    __syncthreads();
  }
  if (!a.maths.weighted) return;
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    const int column = threadIdx.x + c * kAnyBackwardThreads;
    if (column >= head_dim) continue;
    StoreGlobal(WeightPartial(a, tile, group, false) + column, column_sums[c].Total());
  }
}

}  // namespace headwise::HW_CUDA_NAMESPACE

#endif  // HEADWISE_KERNELS_PREPARE_QKV_CUDA_BACKWARD_ANY_CUH_
