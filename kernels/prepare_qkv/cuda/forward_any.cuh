// Forward for any even D, alignment and R: a warp takes a head (warp_head.cuh).
#ifndef HEADWISE_KERNELS_PREPARE_QKV_CUDA_FORWARD_ANY_CUH_
#define HEADWISE_KERNELS_PREPARE_QKV_CUDA_FORWARD_ANY_CUH_

#include <cstdint>

#include "kernels/emulation/cuda_kernel.h"
#include "kernels/prepare_qkv/cuda/arguments.cuh"
#include "kernels/prepare_qkv/cuda/maths.cuh"
#include "kernels/prepare_qkv/cuda/warp_head.cuh"

namespace headwise::HW_CUDA_NAMESPACE {

inline constexpr int kAnyForwardThreads = 128;

// Dynamic shared memory: a padded head in fp32 for each warp.
template <typename T>
__global__ void __launch_bounds__(kAnyForwardThreads)
    PrepareQkvForwardAny(const ForwardArguments<T> a, Rope rope) {
  HW_DYNAMIC_SHARED(float, values, 0);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const std::int64_t unit =
      static_cast<std::int64_t>(blockIdx.x) * (kAnyForwardThreads / 32) + warp;
  const std::int64_t token = DivideUnits(unit, a.heads_per_token);
  if (token >= a.tokens) return;  // whole warps; the block has no barrier
  const HeadPlace place = PlaceInToken(a, static_cast<int>(unit - token * a.heads_per_token));
  const int head_dim = a.heads.head_dim, rotary_dim = a.rotation.rotary_dim;

  std::int64_t position = 0;
  if (rope != Rope::kNone && !FindTableRow(a.rotation, token, lane == 0, position)) return;
  const T* from = Packed(a.packed, a.heads, token, place);
  T* to = Output(a, token, place);
  if (place.role == Role::kValue || a.maths.copy) {
    CopyHead(from, to, head_dim, lane, a.paired);
    return;
  }

  WarpHead head(values, warp * PaddedLength(head_dim), head_dim, lane);
  head.Load(from, a.paired);
  __syncwarp();
  float root = 1.0f;
  if (a.maths.norm) {
    root = ReciprocalRoot(__fadd_rn(Mean(head.Sum(head), head_dim), a.maths.epsilon));
    __syncwarp();  // others read this lane's elements
  }
  const float* weight = place.role == Role::kQuery ? a.q_weight : a.k_weight;
  const float scale = place.role == Role::kQuery ? a.maths.query_scale : 1.0f;
  for (int i = lane; i < head_dim / 2; i += 32) {
    const ElementPair pair = PairAt(rope, rotary_dim, i);
    float y[2] = {head.Get(pair.first), head.Get(pair.second)};
    if (a.maths.norm) {
      float w[2];
      LoadPairWeights(a.maths, weight, pair, w);
      Normalize<T>(a.maths, root, w, scale, y);
    }
    if (pair.rotates) {
      const std::int64_t at = position * (rotary_dim / 2) + i;
      Rotate(y[0], y[1], LoadCached(a.rotation.cos + at), LoadCached(a.rotation.sin + at));
    }
    head.Set(pair.first, y[0]);
    head.Set(pair.second, y[1]);
  }
  __syncwarp();
  head.Store(to, a.paired);
}

}  // namespace headwise::HW_CUDA_NAMESPACE

#endif  // HEADWISE_KERNELS_PREPARE_QKV_CUDA_FORWARD_ANY_CUH_
