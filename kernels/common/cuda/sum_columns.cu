// Adjacent-pair trees down columns. SumColumnsKernel has 88 registers and 1 KiB of static shared
// memory at sm_90a.
#include <algorithm>
#include <bit>
#include <cstdint>

#include "core/base/check.h"
#include "kernels/common/cuda/rows.cuh"
#include "kernels/common/cuda/sum_columns.h"
#include "kernels/common/cuda/trees.cuh"
#include "kernels/emulation/cuda_kernel.h"

namespace headwise::HW_CUDA_NAMESPACE {
namespace {

constexpr int kTreeWarps = 8;
constexpr int kTreeThreads = 32 * kTreeWarps;

// Adjacent-pair trees down the columns of a matrix, one warp's lanes on 32 columns.
struct ColumnTrees {
  const float* leaves;  // [leaf_count, stride]
  std::int64_t leaf_count;
  std::int64_t padded;  // a power of two >= leaf_count
  std::int64_t stride;
  std::int64_t columns;
};

// The sum of leaves [begin, begin + n) of a column; n is a power of two, at most `padded`.
__device__ __forceinline__ float SumLeaves(const ColumnTrees& trees, std::int64_t column,
                                           std::int64_t begin, std::int64_t n) {
  TreeSum<28> sum;  // 2^30 leaves and more
  for (std::int64_t i = begin; i < begin + n; i += 8) {
    float v[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      v[j] = j < n && i + j < trees.leaf_count
                 ? LoadStreaming(trees.leaves + (i + j) * trees.stride + column)
                 : 0.0f;
    }
    if (n >= 2) {
#pragma unroll
      for (int j = 0; j < 4; ++j) v[j] = __fadd_rn(v[2 * j], v[2 * j + 1]);
    }
    if (n >= 4) {
#pragma unroll
      for (int j = 0; j < 2; ++j) v[j] = __fadd_rn(v[2 * j], v[2 * j + 1]);
    }
    if (n >= 8) v[0] = __fadd_rn(v[0], v[1]);
    sum.Push(v[0]);
  }
  return sum.Total();
}

// A block sums 32 columns: with many leaves its 8 warps take an eighth each, complete subtrees.
// Column c goes to first[c / width], width columns a row, where c / width counts first's rows in
// turn with second's: with `second` null all rows are first's.
__global__ void __launch_bounds__(kTreeThreads)
    SumColumnsKernel(const ColumnTrees trees, Rows<float> first, Rows<float> second, int width) {
  HW_SHARED(float, partial, kTreeThreads);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * 32 + lane;
  const bool split = trees.padded >= 8 * kTreeWarps;
  float sum = 0.0f;
  if (column < trees.columns) {
    if (split) {
      const std::int64_t n = trees.padded / kTreeWarps;
      sum = SumLeaves(trees, column, warp * n, n);
    } else if (warp == 0) {
      sum = SumLeaves(trees, column, 0, trees.padded);
    }
  }
  partial[warp * 32 + lane] = sum;
  __syncthreads();
  if (warp != 0 || column >= trees.columns) return;
  if (split) SumAdjacentPairs(partial, lane, 32, kTreeWarps);
  const std::int64_t row = column / width;
  const int element = static_cast<int>(column - row * width);
  const float total = partial[lane];
  if (second.data == nullptr) {
    StoreGlobal(first.row(row) + element, total);
  } else {
    StoreGlobal((row % 2 == 0 ? first : second).row(row / 2) + element, total);
  }
}

}  // namespace

absl::Status SumColumns(RowSpan<const float> leaves, RowSpan<float> first, RowSpan<float> second,
                        CUstream_st* stream) {
  HW_CHECK_EQ(leaves.width, first.rows * first.width + second.rows * second.width);
  if (leaves.width == 0) return absl::OkStatus();
  const ColumnTrees trees = {
      .leaves = leaves.data,
      .leaf_count = leaves.rows,
      .padded = static_cast<std::int64_t>(
          std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(leaves.rows, 1)))),
      .stride = leaves.stride,
      .columns = leaves.width};
  const dim3 grid(static_cast<unsigned>((trees.columns + 31) / 32));
  HW_LAUNCH(SumColumnsKernel, grid, kTreeThreads, 0, stream, trees, MakeRows(first),
            MakeRows(second), static_cast<int>(first.width));
  return LaunchStatus("SumColumns");
}

}  // namespace headwise::HW_CUDA_NAMESPACE
