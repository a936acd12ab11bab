// What forward and dq share: a block's 16 query rows, four of each warp, and the key tiles they
// see.
#ifndef HEADWISE_KERNELS_ATTENTION_CUDA_QUERY_ROWS_CUH_
#define HEADWISE_KERNELS_ATTENTION_CUDA_QUERY_ROWS_CUH_

#include <cstdint>

#include "kernels/attention/cuda/group.cuh"
#include "kernels/common/cuda/fp32.cuh"
#include "kernels/emulation/cuda_kernel.h"

namespace headwise::HW_CUDA_NAMESPACE {

inline constexpr int kWarpRows = 4;
inline constexpr int kBlockRows = kWarps * kWarpRows;

// The rows of one warp.
template <typename T>
struct WarpRows {
  __device__ __forceinline__ WarpRows(const Group<T>& group, std::int64_t block_row)
      : block(block_row), first(block_row + threadIdx.x / 32 * kWarpRows) {
    const std::int64_t last = Least(block_row + kBlockRows, group.num_rows()) - 1;
    seen = {group.KeysOf(group.PositionOf(block_row)).begin,
            group.KeysOf(group.PositionOf(last)).end};
#pragma unroll
    for (int i = 0; i < kWarpRows; ++i) {
      keys[i] = {0, 0};
      if (first + i < group.num_rows()) keys[i] = group.KeysOf(group.PositionOf(first + i));
    }
  }

  // The part of row i's keys that lies in a tile, counted from its start.
  struct Part {
    int begin, end;
    __device__ __forceinline__ bool empty() const { return begin >= end; }
    __device__ __forceinline__ bool Has(int j) const { return j >= begin && j < end; }
  };
  __device__ __forceinline__ Part InTile(int i, std::int64_t tile) const {
    return {static_cast<int>(Least(Most(keys[i].begin - tile, 0), kTileKeys)),
            static_cast<int>(Most(Least(keys[i].end - tile, kTileKeys), 0))};
  }

  std::int64_t block, first;  // rows
  Range seen;                 // by some row of the block
  Range keys[kWarpRows];
};

// sums[i][e] = fma(weights[row i][j], rows[j][lane + 32 e], sums[i][e]) over ascending j of each
// row's part. weights: shared [kBlockRows][64] from `weights_begin` on; rows: shared, `stride`
// apart.
template <typename T, int kPerLane, typename Shared>
__device__ __forceinline__ void ExtendByTile(const WarpRows<T>& rows, std::int64_t tile,
                                             const Shared& shared, int weights_begin,
                                             int rows_begin, int stride,
                                             Fp32 (&sums)[kWarpRows][kPerLane]) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  typename WarpRows<T>::Part part[kWarpRows];
  int begin = kTileKeys, end = 0;
#pragma unroll
  for (int i = 0; i < kWarpRows; ++i) {
    part[i] = rows.InTile(i, tile);
    if (part[i].empty()) continue;
    begin = min(begin, part[i].begin);
    end = max(end, part[i].end);
  }
  for (int j = begin; j < end; ++j) {
    Fp32 x[kPerLane];
#pragma unroll
    for (int e = 0; e < kPerLane; ++e) {
      x[e] = static_cast<float>(shared[rows_begin + j * stride + lane + 32 * e]);
    }
#pragma unroll
    for (int i = 0; i < kWarpRows; ++i) {
      if (!part[i].Has(j)) continue;
      const Fp32 w =
          static_cast<float>(shared[weights_begin + (warp * kWarpRows + i) * kTileKeys + j]);
#pragma unroll
      for (int e = 0; e < kPerLane; ++e) sums[i][e] = Fma(w, x[e], sums[i][e]);
    }
  }
}

// sums[i][.] * factor, of row first + i, into its head of `to`.
template <typename T, int kPerLane>
__device__ __forceinline__ void StoreHead(T* to, int head_dim, const Fp32 (&sums)[kPerLane],
                                          Fp32 factor) {
#pragma unroll
  for (int e = 0; e < kPerLane; ++e) {
    const int d = threadIdx.x % 32 + 32 * e;
    if (d < head_dim) StoreElement(to + d, sums[e] * factor);
  }
}

}  // namespace headwise::HW_CUDA_NAMESPACE

#endif  // HEADWISE_KERNELS_ATTENTION_CUDA_QUERY_ROWS_CUH_
