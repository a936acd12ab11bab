#include <cstdint>
#include <limits>

#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/dtype/bf16.h"
#include "kernels/common/cuda/fp32.cuh"
#include "kernels/common/cuda/row_chains.cuh"
#include "kernels/common/cuda/rows.cuh"
#include "kernels/common/cuda/storage.cuh"
#include "kernels/common/cuda/sum_columns.h"
#include "kernels/common/reductions.h"
#include "kernels/emulation/cuda_kernel.h"
#include "kernels/gemm/cuda.h"

namespace headwise::HW_CUDA_NAMESPACE {
namespace {

constexpr int kThreads = 128;  // a thread takes two columns of a tile of tokens
constexpr int kBatch = 8;      // its tokens that are loaded at once
constexpr int kTile = static_cast<int>(kTokenTile);

template <typename T>
struct Arguments {
  Rows<const T> dy;
  float* sums;  // [tiles, width]
  std::int64_t rows;
  int width;
  unsigned blocks_per_tile;
  bool paired;  // two elements of dy may move at once
};

template <typename T>
__global__ void __launch_bounds__(kThreads) TileSumsKernel(const Arguments<T> a) {
  const std::int64_t tile = blockIdx.x / a.blocks_per_tile;
  const unsigned block = blockIdx.x % a.blocks_per_tile;
  const int i = static_cast<int>(2 * (block * kThreads + threadIdx.x));
  if (i >= a.width) return;  // the block has no barrier
  const bool both = i + 1 < a.width;
  const std::int64_t begin = tile * kTile;
  const int tokens =
      static_cast<int>(min(static_cast<long long>(kTile), static_cast<long long>(a.rows - begin)));
  Pair sum = {0.0f, 0.0f};
  for (int first = 0; first < tokens; first += kBatch) {
    Pair x[kBatch];
#pragma unroll
    for (int t = 0; t < kBatch; ++t) {
      if (first + t >= tokens) break;
      x[t] = LoadPair(a.dy.row(begin + first + t) + i, both, a.paired);
    }
#pragma unroll
    for (int t = 0; t < kBatch; ++t) {
      if (first + t >= tokens) break;
      sum.first = sum.first + x[t].first;
      sum.second = sum.second + x[t].second;
    }
  }
  float* const out = a.sums + tile * a.width + i;
  StoreGlobal(out, sum.first.value);
  if (both) StoreGlobal(out + 1, sum.second.value);
}

}  // namespace

template <typename T>
absl::Status LinearBackwardBias(RowSpan<const T> dy, absl::Span<float> dbias, float* scratch,
                                CUstream_st* stream) {
  HW_CHECK_EQ(static_cast<std::int64_t>(dbias.size()), dy.width) << "dbias and dy";
  HW_CHECK_LE(dy.width, std::numeric_limits<int>::max() / 2);
  if (dy.width == 0) return absl::OkStatus();
  HW_CHECK(scratch != nullptr || dy.rows == 0) << "scratch";
  const std::int64_t tiles = (dy.rows + kTile - 1) / kTile;
  if (tiles > 0) {
    constexpr int kColumns = 2 * kThreads;
    const Arguments<T> a = {
        .dy = MakeRows(dy),
        .sums = scratch,
        .rows = dy.rows,
        .width = static_cast<int>(dy.width),
        .blocks_per_tile = static_cast<unsigned>((dy.width + kColumns - 1) / kColumns),
        .paired = AlignedTo(2 * sizeof(T), dy)};
    std::int64_t blocks;
    HW_RETURN_IF_ERROR(CheckBlocks("dy", "tiles of rows", tiles, a.blocks_per_tile, 1, blocks));
    HW_LAUNCH((TileSumsKernel<T>), static_cast<unsigned>(blocks), kThreads, 0, stream, a);
    HW_RETURN_IF_ERROR(LaunchStatus("LinearBackwardBias"));
  }
  return SumColumns(RowSpan<const float>(scratch, tiles, dy.width),
                    RowSpan<float>(dbias.data(), 1, dy.width), {}, stream);
}

#define HEADWISE_INSTANTIATE(T)                                                         \
  template absl::Status LinearBackwardBias(RowSpan<const T>, absl::Span<float>, float*, \
                                           CUstream_st*);
HEADWISE_INSTANTIATE(float)
HEADWISE_INSTANTIATE(BFloat16)
#undef HEADWISE_INSTANTIATE

}  // namespace headwise::HW_CUDA_NAMESPACE
