// Products of a block: 64 rows (lines of A) by 64 columns (lines of B), 16 of the depth at a time in
// shared memory, 4 x 4 chains a thread. Every chain runs over the whole depth, ascending, so the
// tiling shows in no bit.
#include <algorithm>
#include <cstdint>
#include <limits>

#include "absl/strings/str_format.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/dtype/bf16.h"
#include "kernels/common/cuda/fp32.cuh"
#include "kernels/common/cuda/rows.cuh"
#include "kernels/common/cuda/storage.cuh"
#include "kernels/common/cuda/trees.cuh"
#include "kernels/common/reductions.h"
#include "kernels/emulation/cuda_kernel.h"
#include "kernels/moe/cuda.h"

namespace headwise::HW_CUDA_NAMESPACE {
namespace {

constexpr int kTile = 64;      // lines of either operand
constexpr int kDepth = 16;     // of a stage
constexpr int kPerThread = 4;  // lines of either operand
constexpr int kThreads = (kTile / kPerThread) * (kTile / kPerThread);
constexpr int kStride = kTile + 4;  // of a stage's rows in shared memory: fewer bank conflicts

// A tile's lines, [lines, depth] where `kAlongDepth`, else [depth, lines]; `stride` between rows.
template <typename T>
struct Lines {
  const T* data;
  std::int64_t stride;
  int count;     // at most kTile
  bool vectors;  // rows start on multiples of four elements
};

// Four elements of lines' stage that starts at `from`: where they lie in the stage, and what they
// are; zero beyond the lines and the depth.
template <typename T, bool kAlongDepth>
struct Fetch {
  int line, depth;
  Fp32 x[4];

  __device__ __forceinline__ Fetch() {
    const int thread = static_cast<int>(threadIdx.x);
    line = kAlongDepth ? thread / 4 : thread % 16 * 4;
    depth = kAlongDepth ? thread % 4 * 4 : thread / 16;
  }
  __device__ __forceinline__ void Load(const Lines<T>& lines, int from, int whole_depth) {
    const int d = from + depth;
    const bool some = line < lines.count && d < whole_depth;
    const int there = !some ? 0 : kAlongDepth ? whole_depth - d : lines.count - line;
    const T* const p =
        kAlongDepth ? lines.data + line * lines.stride + d : lines.data + d * lines.stride + line;
    if (lines.vectors && there >= 4) {
      LoadElements(p, x);
      return;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = i < there ? LoadElement(p + i) : Fp32(0.0f);
  }
  __device__ __forceinline__ void Store(const SharedArray<float>& stage) const {
    if constexpr (kAlongDepth) {
#pragma unroll
      for (int i = 0; i < 4; ++i) stage[(depth + i) * kStride + line] = x[i].value;
    } else {
      stage.template Store<float4>(depth * kStride + line,
                                   make_float4(x[0].value, x[1].value, x[2].value, x[3].value));
    }
  }
};

// The thread's lines of A and of B.
__device__ __forceinline__ int FirstRow() {
  return static_cast<int>(threadIdx.x) / (kTile / kPerThread) * kPerThread;
}
__device__ __forceinline__ int FirstColumn() {
  return static_cast<int>(threadIdx.x) % (kTile / kPerThread) * kPerThread;
}

__device__ __forceinline__ void MultiplyStep(const SharedArray<float>& a,
                                             const SharedArray<float>& b, int d,
                                             Fp32 (&sum)[kPerThread][kPerThread]) {
  const float4 row = a.Load<float4>(d * kStride + FirstRow());
  const float4 column = b.Load<float4>(d * kStride + FirstColumn());
  const Fp32 x[4] = {row.x, row.y, row.z, row.w};
  const Fp32 y[4] = {column.x, column.y, column.z, column.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) sum[i][j] = Fma(x[i], y[j], sum[i][j]);
  }
}

// sum = the chains of A's lines by B's. Every thread of the block must call it.
template <typename T, bool kAAlongDepth, bool kBAlongDepth>
__device__ __forceinline__ void Multiply(const Lines<T>& a, const Lines<T>& b, int depth,
                                         Fp32 (&sum)[kPerThread][kPerThread]) {
  HW_SHARED(float, a_stage, kDepth* kStride);
  HW_SHARED(float, b_stage, kDepth* kStride);
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
#pragma unroll
    for (int j = 0; j < kPerThread; ++j) sum[i][j] = 0.0f;
  }
  Fetch<T, kAAlongDepth> next_a;
  Fetch<T, kBAlongDepth> next_b;
  next_a.Load(a, 0, depth);
  next_b.Load(b, 0, depth);
  for (int from = 0; from < depth; from += kDepth) {
    next_a.Store(a_stage);
    next_b.Store(b_stage);
    __syncthreads();
    if (from + kDepth < depth) {
      next_a.Load(a, from + kDepth, depth);
      next_b.Load(b, from + kDepth, depth);
    }
    if (from + kDepth <= depth) {
#pragma unroll
      for (int d = 0; d < kDepth; ++d) MultiplyStep(a_stage, b_stage, d, sum);
    } else {  // a step of padding would turn -0 into +0
      for (int d = 0; d < depth - from; ++d) MultiplyStep(a_stage, b_stage, d, sum);
    }
    __syncthreads();
  }
}

// One row of the thread's outputs, of which `count` lie in the matrix.
template <typename T>
__device__ __forceinline__ void StoreRow(T* p, const Fp32 (&x)[kPerThread], int count,
                                         bool vectors) {
  if (vectors && count >= kPerThread) {
    StoreElements(p, x);
    return;
  }
#pragma unroll
  for (int j = 0; j < kPerThread; ++j) {
    if (j < count) StoreElement(p + j, x[j]);
  }
}

// Rows of one expert that a block takes; none where rows == 0.
struct TileOfRows {
  int expert, rows;
  std::int64_t first;
};

// The tile-th of all tiles, expert by expert. Every lane of the warp must call it.
__device__ __forceinline__ TileOfRows FindTile(const std::int64_t* offsets, int experts, int tile) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int first = 0; first < experts; first += 32) {
    const int e = first + lane;
    std::int64_t begin = 0, end = 0;
    if (e < experts) {
      begin = LoadCached(offsets + e);
      end = LoadCached(offsets + e + 1);
    }
    const int tiles = static_cast<int>((end - begin + kTile - 1) / kTile);
    int through = tiles;  // of experts first ... e
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(kAllLanes, through, step);
      if (lane >= step) through += other;
    }
    const unsigned reached = __ballot_sync(kAllLanes, through > tile ? 1 : 0);
    if (reached != 0) {
      const int source = __ffs(static_cast<int>(reached)) - 1;
      const int of_expert = tile - __shfl_sync(kAllLanes, through - tiles, source);
      begin = __shfl_sync(kAllLanes, begin, source) + std::int64_t{of_expert} * kTile;
      end = __shfl_sync(kAllLanes, end, source);
      return {
          first + source,
          static_cast<int>(min(static_cast<long long>(kTile), static_cast<long long>(end - begin))),
          begin};
    }
    tile -= __shfl_sync(kAllLanes, through, 31);
  }
  return {0, 0, 0};
}

template <typename T>
struct RowsArguments {
  const std::int64_t* offsets;
  Rows<const T> in, w;
  Rows<const float> bias;  // data may be null
  Rows<T> out;
  int experts;
  int w_rows;        // of an expert: N
  int depth, width;  // of a row of `in`, of `out`
  bool in_vectors, w_vectors, out_vectors;
};

// out = in W^T + bias where kForward, else in W. blockIdx: tile of rows, tile of columns.
template <typename T, bool kForward>
__global__ void __launch_bounds__(kThreads, 3) GroupedRowsKernel(const RowsArguments<T> a) {
  const TileOfRows tile = FindTile(a.offsets, a.experts, static_cast<int>(blockIdx.x));
  if (tile.rows == 0) return;  // the whole block
  const int column = static_cast<int>(blockIdx.y) * kTile;
  const std::int64_t w_row = static_cast<std::int64_t>(tile.expert) * a.w_rows;
  const Lines<T> in = {a.in.row(tile.first), a.in.stride, tile.rows, a.in_vectors};
  const Lines<T> w = {kForward ? a.w.row(w_row + column) : a.w.row(w_row) + column, a.w.stride,
                      min(kTile, a.width - column), a.w_vectors};
  Fp32 sum[kPerThread][kPerThread];
  Multiply<T, /*kAAlongDepth=*/true, /*kBAlongDepth=*/kForward>(in, w, a.depth, sum);
  const int count = w.count - FirstColumn();
  if (count <= 0) return;
  if (a.bias.data != nullptr) {
    const float* const bias = a.bias.row(tile.expert) + column + FirstColumn();
#pragma unroll
    for (int j = 0; j < kPerThread; ++j) {
      if (j >= count) break;
      const Fp32 b = LoadCached(bias + j);
#pragma unroll
      for (int i = 0; i < kPerThread; ++i) sum[i][j] = a.depth == 0 ? b : sum[i][j] + b;
    }
  }
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    const int row = FirstRow() + i;
    if (row >= tile.rows) break;
    StoreRow(a.out.row(tile.first + row) + column + FirstColumn(), sum[i], count, a.out_vectors);
  }
}

template <typename T>
struct WeightArguments {
  const std::int64_t* offsets;
  Rows<const T> dy, x;
  Rows<float> dw;
  int n, k;
  bool dy_vectors, x_vectors, dw_vectors;
};

// blockIdx: tile of k, tile of n, expert.
template <typename T>
__global__ void __launch_bounds__(kThreads, 3) GroupedWeightKernel(const WeightArguments<T> a) {
  const std::int64_t begin = LoadCached(a.offsets + blockIdx.z);
  const auto rows = static_cast<int>(LoadCached(a.offsets + blockIdx.z + 1) - begin);
  const int n = static_cast<int>(blockIdx.y) * kTile, k = static_cast<int>(blockIdx.x) * kTile;
  const Lines<T> dy = {a.dy.row(begin) + n, a.dy.stride, min(kTile, a.n - n), a.dy_vectors};
  const Lines<T> x = {a.x.row(begin) + k, a.x.stride, min(kTile, a.k - k), a.x_vectors};
  Fp32 sum[kPerThread][kPerThread];
  Multiply<T, /*kAAlongDepth=*/false, /*kBAlongDepth=*/false>(dy, x, rows, sum);
  const int count = x.count - FirstColumn();
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.z) * a.n + n;
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    const int row = FirstRow() + i;
    if (row >= dy.count) break;
    StoreRow(a.dw.row(first + row) + k + FirstColumn(), sum[i], count, a.dw_vectors);
  }
}

constexpr int kTreeWarps = 8;
constexpr int kTokens = static_cast<int>(kTokenTile);

// dbias, 32 columns of an expert: its tiles of rows are the leaves of a tree, of which each warp
// takes a complete subtree. blockIdx: columns, expert.
template <typename T>
__global__ void __launch_bounds__(32 * kTreeWarps)
    GroupedBiasKernel(const std::int64_t* offsets, const Rows<const T> dy, int width,
                      const Rows<float> dbias) {
  HW_SHARED(float, partial, 32 * kTreeWarps);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int column = static_cast<int>(blockIdx.x) * 32 + lane;
  const std::int64_t begin = LoadCached(offsets + blockIdx.y);
  const auto rows = static_cast<int>(LoadCached(offsets + blockIdx.y + 1) - begin);
  const int tiles = (rows + kTokens - 1) / kTokens;
  const int padded = tiles <= 1 ? 1 : 1 << (32 - __clz(tiles - 1));
  const int warps = min(padded, kTreeWarps), leaves = padded / warps;
  TreeSum<26> tree;  // 2^31 rows
  if (warp < warps && column < width) {
    for (int tile = warp * leaves; tile < (warp + 1) * leaves; ++tile) {
      Fp32 sum = 0.0f;
      const int end = min(rows, (tile + 1) * kTokens);
#pragma unroll 8
      for (int r = tile * kTokens; r < end; ++r) {
        sum = sum + LoadElement(dy.row(begin + r) + column);
      }
      tree.Push(sum.value);
    }
  }
  partial[warp * 32 + lane] = tree.Total();
  __syncthreads();
  if (warp != 0 || column >= width) return;
  SumAdjacentPairs(partial, lane, 32, warps);
  const float total = partial[lane];
  StoreGlobal(dbias.row(blockIdx.y) + column, total);
}

// The number of experts.
std::int64_t CheckedExperts(absl::Span<const std::int64_t> offsets, std::int64_t rows) {
  HW_CHECK(!offsets.empty()) << "offsets";
  HW_CHECK_LE(rows, std::numeric_limits<std::int32_t>::max() - kTile) << "rows";
  return static_cast<std::int64_t>(offsets.size()) - 1;
}

// Blocks of a grid's y or z.
absl::Status CheckSide(const char* name, const char* items, std::int64_t count) {
  constexpr std::int64_t kMost = 65535;
  if (count <= kMost) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s: found %d %s, expected at most %d on CUDA", name, count, items, kMost));
}

int Tiles(std::int64_t width) { return static_cast<int>((width + kTile - 1) / kTile); }

template <typename T>
bool Vectors(RowSpan<T> span) {
  return AlignedTo(4 * static_cast<int>(sizeof(T)), span);
}

template <typename T, bool kForward>
absl::Status LaunchRows(const char* name, absl::Span<const std::int64_t> offsets,
                        RowSpan<const T> in, RowSpan<const T> w, RowSpan<const float> bias,
                        RowSpan<T> out, CUstream_st* stream) {
  const std::int64_t experts = CheckedExperts(offsets, in.rows);
  if (out.rows == 0 || out.width == 0 || experts == 0) return absl::OkStatus();
  HW_CHECK_LE(std::max(in.width, out.width), std::numeric_limits<std::int32_t>::max() - kTile);
  HW_RETURN_IF_ERROR(CheckSide(name, "tiles of 64 columns", Tiles(out.width)));
  // An expert with rows wastes at most 63 of its last tile.
  const std::int64_t tiles =
      (out.rows + (kTile - 1) * std::min(experts, out.rows)) / std::int64_t{kTile};
  const RowsArguments<T> a = {.offsets = offsets.data(),
                              .in = MakeRows(in),
                              .w = MakeRows(w),
                              .bias = MakeRows(bias),
                              .out = MakeRows(out),
                              .experts = static_cast<int>(experts),
                              .w_rows = static_cast<int>(w.rows / experts),
                              .depth = static_cast<int>(in.width),
                              .width = static_cast<int>(out.width),
                              .in_vectors = Vectors(in),
                              .w_vectors = Vectors(w),
                              .out_vectors = Vectors(out)};
  std::int64_t blocks;
  HW_RETURN_IF_ERROR(CheckBlocks(name, "tiles of rows", tiles, 1, 1, blocks));
  const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(Tiles(out.width)));
  HW_LAUNCH((GroupedRowsKernel<T, kForward>), grid, kThreads, 0, stream, a);
  return LaunchStatus(name);
}

}  // namespace

template <typename T>
absl::Status GroupedLinearForward(absl::Span<const std::int64_t> offsets, RowSpan<const T> x,
                                  RowSpan<const T> w, RowSpan<const float> bias, RowSpan<T> y,
                                  CUstream_st* stream) {
  const std::int64_t experts = CheckedExperts(offsets, x.rows), n = y.width;
  HW_CHECK_EQ(x.rows, y.rows) << "rows of x and y";
  HW_CHECK_EQ(x.width, w.width) << "in_features of x and w";
  HW_CHECK_EQ(w.rows, experts * n) << "rows of w: experts times out_features";
  if (bias.data != nullptr) {
    HW_CHECK(bias.rows == experts && bias.width == n)
        << "bias is " << bias.rows << " x " << bias.width << ", must be " << experts << " x " << n;
  }
  return LaunchRows<T, true>("GroupedLinearForward", offsets, x, w, bias, y, stream);
}

template <typename T>
absl::Status GroupedLinearBackwardInput(absl::Span<const std::int64_t> offsets, RowSpan<const T> dy,
                                        RowSpan<const T> w, RowSpan<T> dx, CUstream_st* stream) {
  const std::int64_t experts = CheckedExperts(offsets, dy.rows), n = dy.width;
  HW_CHECK_EQ(dy.rows, dx.rows) << "rows of dy and dx";
  HW_CHECK_EQ(w.width, dx.width) << "in_features of w and dx";
  HW_CHECK_EQ(w.rows, experts * n) << "rows of w: experts times out_features";
  return LaunchRows<T, false>("GroupedLinearBackwardInput", offsets, dy, w, {}, dx, stream);
}

template <typename T>
absl::Status GroupedLinearBackwardWeight(absl::Span<const std::int64_t> offsets,
                                         RowSpan<const T> dy, RowSpan<const T> x, RowSpan<float> dw,
                                         CUstream_st* stream) {
  const std::int64_t experts = CheckedExperts(offsets, dy.rows), n = dy.width;
  HW_CHECK_EQ(dy.rows, x.rows) << "rows of dy and x";
  HW_CHECK_EQ(x.width, dw.width) << "in_features of x and dw";
  HW_CHECK_EQ(dw.rows, experts * n) << "rows of dw: experts times out_features";
  if (dw.rows == 0 || dw.width == 0) return absl::OkStatus();
  HW_CHECK_LE(std::max(n, x.width), std::numeric_limits<std::int32_t>::max() - kTile);
  HW_RETURN_IF_ERROR(CheckSide("GroupedLinearBackwardWeight", "experts", experts));
  HW_RETURN_IF_ERROR(CheckSide("GroupedLinearBackwardWeight", "tiles of 64 rows", Tiles(n)));
  const WeightArguments<T> a = {.offsets = offsets.data(),
                                .dy = MakeRows(dy),
                                .x = MakeRows(x),
                                .dw = MakeRows(dw),
                                .n = static_cast<int>(n),
                                .k = static_cast<int>(x.width),
                                .dy_vectors = Vectors(dy),
                                .x_vectors = Vectors(x),
                                .dw_vectors = Vectors(dw)};
  const dim3 grid(static_cast<unsigned>(Tiles(x.width)), static_cast<unsigned>(Tiles(n)),
                  static_cast<unsigned>(experts));
  HW_LAUNCH((GroupedWeightKernel<T>), grid, kThreads, 0, stream, a);
  return LaunchStatus("GroupedLinearBackwardWeight");
}

template <typename T>
absl::Status GroupedLinearBackwardBias(absl::Span<const std::int64_t> offsets, RowSpan<const T> dy,
                                       RowSpan<float> dbias, CUstream_st* stream) {
  const std::int64_t experts = CheckedExperts(offsets, dy.rows);
  HW_CHECK(dbias.rows == experts && dbias.width == dy.width)
      << "dbias is " << dbias.rows << " x " << dbias.width << ", must be " << experts << " x "
      << dy.width;
  if (dbias.rows == 0 || dbias.width == 0) return absl::OkStatus();
  HW_CHECK_LE(dy.width, std::numeric_limits<std::int32_t>::max() - kTile);
  HW_RETURN_IF_ERROR(CheckSide("GroupedLinearBackwardBias", "experts", experts));
  const dim3 grid(static_cast<unsigned>((dy.width + 31) / 32), static_cast<unsigned>(experts));
  HW_LAUNCH((GroupedBiasKernel<T>), grid, 32 * kTreeWarps, 0, stream, offsets.data(), MakeRows(dy),
            static_cast<int>(dy.width), MakeRows(dbias));
  return LaunchStatus("GroupedLinearBackwardBias");
}

#define HEADWISE_INSTANTIATE(T)                                                                    \
  template absl::Status GroupedLinearForward(absl::Span<const std::int64_t>, RowSpan<const T>,     \
                                             RowSpan<const T>, RowSpan<const float>, RowSpan<T>,   \
                                             CUstream_st*);                                        \
  template absl::Status GroupedLinearBackwardInput(absl::Span<const std::int64_t>,                 \
                                                   RowSpan<const T>, RowSpan<const T>, RowSpan<T>, \
                                                   CUstream_st*);                                  \
  template absl::Status GroupedLinearBackwardWeight(absl::Span<const std::int64_t>,                \
                                                    RowSpan<const T>, RowSpan<const T>,            \
                                                    RowSpan<float>, CUstream_st*);                 \
  template absl::Status GroupedLinearBackwardBias(absl::Span<const std::int64_t>,                  \
                                                  RowSpan<const T>, RowSpan<float>, CUstream_st*);
HEADWISE_INSTANTIATE(float)
HEADWISE_INSTANTIATE(BFloat16)
#undef HEADWISE_INSTANTIATE

}  // namespace headwise::HW_CUDA_NAMESPACE
