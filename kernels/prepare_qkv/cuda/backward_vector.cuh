// Backward in the vector mapping (team.cuh). A block takes one tile of 64 tokens of some kv groups,
// a team a head: it walks the tile's tokens in order, so that a weight gradient is the lane's serial
// sum, and the heads of a group meet in shared memory at the end. Several tokens' loads are in
// flight at once, and the reciprocal roots of those tokens are taken at once, each in a lane of its
// own. The tile's table rows are staged in shared memory once.
#ifndef HEADWISE_KERNELS_PREPARE_QKV_CUDA_BACKWARD_VECTOR_CUH_
#define HEADWISE_KERNELS_PREPARE_QKV_CUDA_BACKWARD_VECTOR_CUH_

#include <cstdint>

#include "kernels/common/cuda/trees.cuh"
#include "kernels/emulation/cuda_kernel.h"
#include "kernels/prepare_qkv/contract.h"
#include "kernels/prepare_qkv/cuda/arguments.cuh"
#include "kernels/prepare_qkv/cuda/maths.cuh"
#include "kernels/prepare_qkv/cuda/team.cuh"

namespace headwise::HW_CUDA_NAMESPACE {

inline constexpr int kBackwardThreads = 256;  // at most

// Bytes of dynamic shared memory: the tile's table rows, and later the sums of the block's heads.
template <int kDim>
inline constexpr int kBackwardSharedBytes = kDim* static_cast<int>(sizeof(float)) *
                                            (kWeightGradientTile > kBackwardThreads / (kDim / 16)
                                                 ? kWeightGradientTile
                                                 : kBackwardThreads / (kDim / 16));

// Stages the tile's table rows. Sets usable[i] to whether token i has one.
template <int kDim, typename T, typename Quads, typename Flags>
__device__ __forceinline__ void StageTable(const BackwardArguments<T>& a, std::int64_t first,
                                           int tokens, Quads& table, Flags& usable) {
  const int quads = a.rotation.rotary_dim / 4;  // of a row: cos and sin
  for (int i = threadIdx.x; i < tokens * quads; i += blockDim.x) {
    const int token = i / quads, quad = i - token * quads;
    std::int64_t position;
    const bool found = FindTableRow(a.rotation, first + token, quad == 0, position);
    if (quad == 0) usable[token] = found ? 1 : 0;
    if (found) table[token * (kDim / 4) + quad] = LoadTableQuad(a.rotation, position, quad);
  }
}

template <typename T, int kDim, Rope kRope>
__global__ void __launch_bounds__(kBackwardThreads)
    PrepareQkvBackwardVector(const BackwardArguments<T> a) {
  using ATeam = Team<kDim, kRope>;
  constexpr int kTile = static_cast<int>(kWeightGradientTile);
  constexpr int kTokens = sizeof(T) == 2 ? 4 : 2;  // in flight
  HW_DYNAMIC_SHARED(float4, table, 0);             // [tokens of the tile, D/4]
  HW_SHARED(int, usable, kTile);

  const std::int64_t tile = blockIdx.x / a.blocks_per_tile;
  const int first_group =
      static_cast<int>(blockIdx.x - tile * a.blocks_per_tile) * a.groups_per_block;
  const std::int64_t first = tile * kTile;
  const int tokens =
      static_cast<int>(a.tokens - first < kTile ? a.tokens - first : std::int64_t{kTile});

  // This team's head. Teams without one compute on zeros, so that no shuffle lacks a lane.
  const ATeam team(threadIdx.x % 32, a.rotation.rotary_dim);
  const int in_block = threadIdx.x / ATeam::kLanes;
  const int per_group = a.heads.group_size + 2;
  const int group = first_group + in_block / per_group;
  const bool active = in_block < a.groups_per_block * per_group && group < a.heads.kv_heads;
  const HeadPlace place =
      active ? PlaceInGroup(a.heads, group, in_block % per_group) : HeadPlace{Role::kValue, 0, 0};
  const bool computes = active && place.role != Role::kValue && !a.maths.copy;
  const float scale = place.role == Role::kQuery ? a.maths.query_scale : 1.0f;

  if constexpr (kRope != Rope::kNone) {
    StageTable<kDim>(a, first, tokens, table, usable);
    __syncthreads();
  }
  LaneValues w, sums;
  LoadWeights(a.maths, place.role == Role::kQuery ? a.q_weight : a.k_weight, team.chunk(0),
              team.chunk(1), w);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int e = 0; e < 8; ++e) sums.chunk[i][e] = 0.0f;
  }

  for (int begin = 0; begin < tokens; begin += kTokens) {
    Chunk<T> x[kTokens][2], d[kTokens][2];
    bool use[kTokens];
#pragma unroll
    for (int j = 0; j < kTokens; ++j) {
      const int token = begin + j;
      use[j] = active && token < tokens;
      if (kRope != Rope::kNone && use[j]) use[j] = usable[token] != 0;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        x[j][i].Clear();
        d[j][i].Clear();
        if (use[j]) d[j][i].Load(Gradient(a, first + token, place) + 8 * team.chunk(i));
        if (use[j] && computes && a.maths.norm) {
          x[j][i].Load(Packed(a.packed, a.heads, first + token, place) + 8 * team.chunk(i));
        }
      }
    }

    float roots[kTokens];
    ReciprocalRoots(team, a.maths, x, roots);

#pragma unroll
    for (int j = 0; j < kTokens; ++j) {
      LaneValues g;
      d[j][0].Unpack(g.chunk[0]);
      d[j][1].Unpack(g.chunk[1]);
      if (kRope != Rope::kNone && use[j]) {
        team.Apply(
            table, (begin + j) * (kDim / 4), g,
            [](float& d1, float& d2, float cos, float sin) { RotateBack(d1, d2, cos, sin); });
      }
      ScaleGradient<T>(a.maths, scale, g.chunk[0]);
      ScaleGradient<T>(a.maths, scale, g.chunk[1]);
      if (a.maths.norm) {
        LaneValues xh, h = g;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          x[j][i].Unpack(xh.chunk[i]);
          Multiply(xh.chunk[i], roots[j]);
          Multiply(h.chunk[i], w.chunk[i]);
          if (a.maths.round_before) RoundToStorage<T>(h.chunk[i]);
        }
        const float c1 = __fmul_rn(
            team.Sum(ChunkDot(h.chunk[0], xh.chunk[0]), ChunkDot(h.chunk[1], xh.chunk[1])),
            1.0f / kDim);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
#pragma unroll
          for (int e = 0; e < 8; ++e) {
            h.chunk[i][e] = InputGradient(roots[j], xh.chunk[i][e], c1, h.chunk[i][e]);
          }
          if (a.maths.round_before) RoundToStorage<T>(xh.chunk[i]);
          if (!use[j]) continue;
#pragma unroll
          for (int e = 0; e < 8; ++e) {
            sums.chunk[i][e] = __fmaf_rn(g.chunk[i][e], xh.chunk[i][e], sums.chunk[i][e]);
          }
        }
        g = h;
      }
      if (!use[j]) continue;
      if (computes) {
        d[j][0].Pack(g.chunk[0]);
        d[j][1].Pack(g.chunk[1]);
      }
      T* to = Packed(a.dpacked, a.heads, first + begin + j, place);
      d[j][0].Store(to + 8 * team.chunk(0));
      d[j][1].Store(to + 8 * team.chunk(1));
    }
  }
  if (!a.maths.weighted) return;  // all threads

  // The heads of a group, by an adjacent-pair tree: a column is one thread's.
  __syncthreads();
  HW_DYNAMIC_SHARED(float, heads, 0);  // [heads of the block, D]
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      heads[in_block * kDim + 8 * team.chunk(i) + e] = sums.chunk[i][e];
    }
  }
  __syncthreads();
  for (int column = threadIdx.x; column < a.groups_per_block * kDim; column += blockDim.x) {
    const int local = column / kDim, element = column - local * kDim;
    if (first_group + local >= a.heads.kv_heads) continue;
    const int base = local * per_group * kDim + element;
    const float key = heads[base + a.heads.group_size * kDim];
    SumAdjacentPairs(heads, base, kDim, a.heads.group_size);
    const float query = heads[base];
    StoreGlobal(WeightPartial(a, tile, first_group + local, false) + element, query);
    StoreGlobal(WeightPartial(a, tile, first_group + local, true) + element, key);
  }
}

}  // namespace headwise::HW_CUDA_NAMESPACE

#endif  // HEADWISE_KERNELS_PREPARE_QKV_CUDA_BACKWARD_VECTOR_CUH_
