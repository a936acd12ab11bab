// Forward in the vector mapping (team.cuh). A warp takes up to 4 * 32/(D/16) consecutive heads of
// one token (half as many in fp32), so that many loads are in flight, a table row is read once a
// warp, and the reciprocal roots of a lane's heads are taken at once, each in a lane of its own.
#ifndef HEADWISE_KERNELS_PREPARE_QKV_CUDA_FORWARD_VECTOR_CUH_
#define HEADWISE_KERNELS_PREPARE_QKV_CUDA_FORWARD_VECTOR_CUH_

#include <cstdint>

#include "kernels/emulation/cuda_kernel.h"
#include "kernels/prepare_qkv/cuda/arguments.cuh"
#include "kernels/prepare_qkv/cuda/maths.cuh"
#include "kernels/prepare_qkv/cuda/team.cuh"

namespace headwise::HW_CUDA_NAMESPACE {

inline constexpr int kForwardThreads = 128;

// Heads of a lane.
template <typename T>
inline constexpr int kForwardHeads = sizeof(T) == 2 ? 4 : 2;
// Heads of a warp.
template <typename T, int kDim>
inline constexpr int kForwardHeadsPerWarp = kForwardHeads<T>*(32 / (kDim / 16));

template <typename T, int kDim, Rope kRope>
__global__ void __launch_bounds__(kForwardThreads, 4)
    PrepareQkvForwardVector(const ForwardArguments<T> a) {
  using ATeam = Team<kDim, kRope>;
  constexpr int kHeads = kForwardHeads<T>;
  // For each warp a row of the table, then the effective weights of q and of k.
  constexpr int kQuads = kDim / 4;
  HW_SHARED(float4, staged, kForwardThreads / 32 * 3 * kQuads);

  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const std::int64_t unit = static_cast<std::int64_t>(blockIdx.x) * (kForwardThreads / 32) + warp;
  const std::int64_t token = DivideUnits(unit, a.warps_per_token);
  if (token >= a.tokens) return;  // whole warps; the block has no barrier
  const ATeam team(lane, a.rotation.rotary_dim);
  const int begin =
      static_cast<int>(unit - token * a.warps_per_token) * kForwardHeadsPerWarp<T, kDim> +
      lane / ATeam::kLanes;

  const int row = warp * 3 * kQuads, weights = row + kQuads;
  if constexpr (kRope != Rope::kNone) {
    std::int64_t position;
    if (!FindTableRow(a.rotation, token, begin == 0 && lane == 0, position)) return;
    if (lane < a.rotation.rotary_dim / 4) {
      staged[row + lane] = LoadTableQuad(a.rotation, position, lane);
    }
  }
  for (int i = lane; i < 2 * kQuads; i += 32) {
    staged[weights + i] =
        LoadWeightQuad(a.maths, i < kQuads ? a.q_weight : a.k_weight, i < kQuads ? i : i - kQuads);
  }

  HeadPlace places[kHeads];
  Chunk<T> x[kHeads][2];
#pragma unroll
  for (int j = 0; j < kHeads; ++j) {
    const int head = begin + j * ATeam::kPerWarp;
    if (head < a.heads_per_token) {
      places[j] = PlaceInToken(a, head);
      const T* from = Packed(a.packed, a.heads, token, places[j]);
      x[j][0].Load(from + 8 * team.chunk(0));
      x[j][1].Load(from + 8 * team.chunk(1));
    } else {
      x[j][0].Clear();
      x[j][1].Clear();
    }
  }
  __syncwarp();

  float roots[kHeads];
  ReciprocalRoots(team, a.maths, x, roots);

#pragma unroll
  for (int j = 0; j < kHeads; ++j) {
    if (begin + j * ATeam::kPerWarp >= a.heads_per_token) continue;
    if (places[j].role != Role::kValue && !a.maths.copy) {
      LaneValues y;
      x[j][0].Unpack(y.chunk[0]);
      x[j][1].Unpack(y.chunk[1]);
      if (a.maths.norm) {
        const bool key = places[j].role == Role::kKey;
        const float scale = key ? 1.0f : a.maths.query_scale;
        LaneValues w;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int quad = weights + (key ? kQuads : 0) + 2 * team.chunk(i);
          SpreadQuads(staged[quad], staged[quad + 1], w.chunk[i]);
        }
        Normalize<T>(a.maths, roots[j], w.chunk[0], scale, y.chunk[0]);
        Normalize<T>(a.maths, roots[j], w.chunk[1], scale, y.chunk[1]);
      }
      team.Apply(staged, row, y,
                 [](float& y1, float& y2, float cos, float sin) { Rotate(y1, y2, cos, sin); });
      x[j][0].Pack(y.chunk[0]);
      x[j][1].Pack(y.chunk[1]);
    }
    T* to = Output(a, token, places[j]);
    x[j][0].Store(to + 8 * team.chunk(0));
    x[j][1].Store(to + 8 * team.chunk(1));
  }
}

}  // namespace headwise::HW_CUDA_NAMESPACE

#endif  // HEADWISE_KERNELS_PREPARE_QKV_CUDA_FORWARD_VECTOR_CUH_
