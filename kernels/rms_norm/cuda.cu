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
#include "kernels/rms_norm/cuda.h"

namespace headwise::HW_CUDA_NAMESPACE {
namespace {

constexpr int kRowThreads = 256;       // a warp takes a row
constexpr int kGradientThreads = 128;  // a thread takes two columns of a tile of tokens
constexpr int kBatch = 4;              // its tokens that are loaded at once
constexpr int kTile = static_cast<int>(kTokenTile);

// What a style does to an element. The choices are the same for a whole launch.
struct Style {
  const float* weight;
  float centre;
  bool scales_input;   // kInputScaled
  bool scales_output;  // kWeighted, kGainCentered
  bool centred;        // w' = centre + w

  __device__ __forceinline__ Fp32 Scale(int i) const {
    const Fp32 w = LoadCached(weight + i);
    return centred ? Fp32(centre) + w : w;
  }
  // u, of element i of x.
  template <typename T>
  __device__ __forceinline__ Fp32 Input(Fp32 x, int i) const {
    return scales_input ? RoundToStorage<T>(x * Scale(i)) : x;
  }
  template <typename T>
  __device__ __forceinline__ Pair Input(Pair x, int i, bool both) const {
    return {Input<T>(x.first, i), both ? Input<T>(x.second, i + 1) : x.second};
  }
  // v * w' of a style that scales after it has normalised, else v.
  __device__ __forceinline__ Fp32 Output(Fp32 v, int i) const {
    return scales_output ? v * Scale(i) : v;
  }
  __device__ __forceinline__ Pair Output(Pair v, int i, bool both) const {
    return {Output(v.first, i), both ? Output(v.second, i + 1) : v.second};
  }
};

template <typename T>
struct Arguments {
  Rows<const T> x, dy;
  Rows<T> y;        // or dx
  float* r;         // [rows]: backward
  float* c;         // [rows]
  float* partials;  // [tiles, width]; null without a weight
  std::int64_t rows;
  int width;
  float epsilon;
  Style style;
  bool paired;  // x, dy and y: two elements may move at once
};

__device__ __forceinline__ Pair Times(Pair a, Fp32 b) { return {a.first * b, a.second * b}; }

// The row of this warp; beyond the rows there is none.
__device__ __forceinline__ std::int64_t WarpRow() {
  return static_cast<std::int64_t>(blockIdx.x) * (kRowThreads / 32) + threadIdx.x / 32;
}

// r of a row. Every lane of the warp must call it.
template <typename T>
__device__ __forceinline__ Fp32 ReciprocalRms(const Arguments<T>& a, const T* x, int lane) {
  PairChains squares;
  ForEachPair(a.width, lane, [&](int i, bool both) {
    const Pair u = a.style.template Input<T>(LoadPair(x + i, both, a.paired), i, both);
    squares.Add(u, u, both);
  });
  return ReciprocalRoot(squares.Sum() / static_cast<float>(a.width) + Fp32(a.epsilon));
}

template <typename T>
__global__ void __launch_bounds__(kRowThreads) RmsNormForwardKernel(const Arguments<T> a) {
  const std::int64_t row = WarpRow();
  if (row >= a.rows) return;  // whole warps; the block has no barrier
  const int lane = threadIdx.x % 32;
  const T* const x = a.x.row(row);
  T* const y = a.y.row(row);
  const Fp32 r = ReciprocalRms(a, x, lane);
  ForEachPair(a.width, lane, [&](int i, bool both) {
    const Pair u = a.style.template Input<T>(LoadPair(x + i, both, a.paired), i, both);
    StorePair(y + i, a.style.Output(Times(u, r), i, both), both, a.paired);
  });
}

// r and c of every row.
template <typename T>
__global__ void __launch_bounds__(kRowThreads) RmsNormStatisticsKernel(const Arguments<T> a) {
  const std::int64_t row = WarpRow();
  if (row >= a.rows) return;  // whole warps; the block has no barrier
  const int lane = threadIdx.x % 32;
  const T* const x = a.x.row(row);
  const T* const dy = a.dy.row(row);
  const Fp32 r = ReciprocalRms(a, x, lane);
  PairChains sum;
  ForEachPair(a.width, lane, [&](int i, bool both) {
    const Pair u = a.style.template Input<T>(LoadPair(x + i, both, a.paired), i, both);
    const Pair h = a.style.Output(LoadPair(dy + i, both, a.paired), i, both);
    sum.Add(h, Times(u, r), both);
  });
  const Fp32 c = sum.Sum() / static_cast<float>(a.width);
  if (lane != 0) return;
  StoreGlobal(a.r + row, r.value);
  StoreGlobal(a.c + row, c.value);
}

// dx, and the weight's gradient of a tile of tokens: a block takes 256 columns.
template <typename T>
__global__ void __launch_bounds__(kGradientThreads, 8)
    RmsNormGradientKernel(const Arguments<T> a, unsigned blocks_per_tile) {
  HW_SHARED(float, r_of, kTile);
  HW_SHARED(float, c_of, kTile);
  const std::int64_t tile = blockIdx.x / blocks_per_tile;
  const unsigned block = blockIdx.x % blocks_per_tile;
  const std::int64_t begin = tile * kTile;
  const int tokens =
      static_cast<int>(min(static_cast<long long>(kTile), static_cast<long long>(a.rows - begin)));
  for (int t = threadIdx.x; t < tokens; t += kGradientThreads) {
    r_of[t] = LoadCached(a.r + begin + t);
    c_of[t] = LoadCached(a.c + begin + t);
  }
  __syncthreads();
  const int i = static_cast<int>(2 * (block * kGradientThreads + threadIdx.x));
  if (i >= a.width) return;
  const bool both = i + 1 < a.width;
  Pair scale = {1.0f, 1.0f};
  if (a.style.weight != nullptr) {
    scale.first = a.style.Scale(i);
    if (both) scale.second = a.style.Scale(i + 1);
  }
  Fp32 sum[2] = {0.0f, 0.0f};
  for (int first = 0; first < tokens; first += kBatch) {
    Pair in[kBatch], gradient[kBatch];
#pragma unroll
    for (int t = 0; t < kBatch; ++t) {
      if (first + t >= tokens) break;
      in[t] = LoadPair(a.x.row(begin + first + t) + i, both, a.paired);
      gradient[t] = LoadPair(a.dy.row(begin + first + t) + i, both, a.paired);
    }
#pragma unroll
    for (int t = 0; t < kBatch; ++t) {
      if (first + t >= tokens) break;
      const Fp32 r = static_cast<float>(r_of[first + t]), c = static_cast<float>(c_of[first + t]);
      const Fp32 x[2] = {in[t].first, in[t].second};
      const Fp32 g[2] = {gradient[t].first, gradient[t].second};
      const Fp32 w[2] = {scale.first, scale.second};
      Fp32 dx[2];
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const Fp32 u = a.style.scales_input ? RoundToStorage<T>(x[k] * w[k]) : x[k];
        const Fp32 uh = u * r;
        const Fp32 h = a.style.scales_output ? g[k] * w[k] : g[k];
        const Fp32 du = r * Fma(-uh, c, h);
        dx[k] = a.style.scales_input ? du * w[k] : du;
        sum[k] = a.style.scales_input ? Fma(du, x[k], sum[k]) : Fma(g[k], uh, sum[k]);
      }
      StorePair(a.y.row(begin + first + t) + i, {dx[0], dx[1]}, both, a.paired);
    }
  }
  if (a.partials == nullptr) return;
  float* const partial = a.partials + tile * a.width + i;
  StoreGlobal(partial, sum[0].value);
  if (both) StoreGlobal(partial + 1, sum[1].value);
}

template <typename S>
void CheckShape(const S& span, std::int64_t rows, std::int64_t width) {
  HW_CHECK_EQ(span.rows, rows);
  HW_CHECK_EQ(span.width, width);
}

template <typename T>
Arguments<T> MakeArguments(const RmsNorm& op, RowSpan<const T> x, absl::Span<const float> weight) {
  const bool scaleless = op.style == RmsNormStyle::kScaleless;
  HW_CHECK_EQ(static_cast<std::int64_t>(weight.size()), scaleless ? 0 : x.width)
      << (scaleless ? "kScaleless has no weight" : "weight against the width of x");
  HW_CHECK_LE(x.width, std::numeric_limits<int>::max() / 2);
  return {.x = MakeRows(x),
          .rows = x.rows,
          .width = static_cast<int>(x.width),
          .epsilon = op.epsilon,
          .style = {.weight = scaleless ? nullptr : weight.data(),
                    .centre = op.centre,
                    .scales_input = op.style == RmsNormStyle::kInputScaled,
                    .scales_output = op.style == RmsNormStyle::kWeighted ||
                                     op.style == RmsNormStyle::kGainCentered,
                    .centred = op.style != RmsNormStyle::kWeighted}};
}

}  // namespace

template <typename T>
absl::Status RmsNormForward(const RmsNorm& op, RowSpan<const T> x, absl::Span<const float> weight,
                            RowSpan<T> y, CUstream_st* stream) {
  Arguments<T> a = MakeArguments(op, x, weight);
  CheckShape(y, x.rows, x.width);
  if (x.rows == 0 || x.width == 0) return absl::OkStatus();
  a.y = MakeRows(y);
  a.paired = AlignedTo(2 * sizeof(T), x) && AlignedTo(2 * sizeof(T), y);
  std::int64_t blocks;
  HW_RETURN_IF_ERROR(CheckBlocks("x", "rows", x.rows, 1, kRowThreads / 32, blocks));
  HW_LAUNCH((RmsNormForwardKernel<T>), static_cast<unsigned>(blocks), kRowThreads, 0, stream, a);
  return LaunchStatus("RmsNormForward");
}

template <typename T>
absl::Status RmsNormBackward(const RmsNorm& op, RowSpan<const T> x, absl::Span<const float> weight,
                             RowSpan<const T> dy, RowSpan<T> dx, absl::Span<float> dweight,
                             float* scratch, CUstream_st* stream) {
  Arguments<T> a = MakeArguments(op, x, weight);
  CheckShape(dy, x.rows, x.width);
  CheckShape(dx, x.rows, x.width);
  HW_CHECK_EQ(dweight.size(), weight.size());
  if (x.width == 0) return absl::OkStatus();
  HW_CHECK(scratch != nullptr || x.rows == 0) << "scratch";
  const std::int64_t tiles = (x.rows + kTile - 1) / kTile;
  if (x.rows > 0) {
    a.dy = MakeRows(dy);
    a.y = MakeRows(dx);
    a.r = scratch;
    a.c = scratch + x.rows;
    a.partials = dweight.empty() ? nullptr : scratch + 2 * x.rows;
    a.paired =
        AlignedTo(2 * sizeof(T), x) && AlignedTo(2 * sizeof(T), dy) && AlignedTo(2 * sizeof(T), dx);
    std::int64_t blocks;
    HW_RETURN_IF_ERROR(CheckBlocks("x", "rows", x.rows, 1, kRowThreads / 32, blocks));
    HW_LAUNCH((RmsNormStatisticsKernel<T>), static_cast<unsigned>(blocks), kRowThreads, 0, stream,
              a);
    HW_RETURN_IF_ERROR(LaunchStatus("RmsNormStatistics"));
    const int columns = 2 * kGradientThreads;
    const unsigned blocks_per_tile = (a.width + columns - 1) / columns;
    HW_RETURN_IF_ERROR(CheckBlocks("x", "tiles of rows", tiles, blocks_per_tile, 1, blocks));
    HW_LAUNCH((RmsNormGradientKernel<T>), static_cast<unsigned>(blocks), kGradientThreads, 0,
              stream, a, blocks_per_tile);
    HW_RETURN_IF_ERROR(LaunchStatus("RmsNormGradient"));
  }
  if (dweight.empty()) return absl::OkStatus();
  return SumColumns(RowSpan<const float>(a.partials, tiles, x.width),
                    RowSpan<float>(dweight.data(), 1, x.width), {}, stream);
}

#define HEADWISE_INSTANTIATE(T)                                                                    \
  template absl::Status RmsNormForward(const RmsNorm&, RowSpan<const T>, absl::Span<const float>,  \
                                       RowSpan<T>, CUstream_st*);                                  \
  template absl::Status RmsNormBackward(const RmsNorm&, RowSpan<const T>, absl::Span<const float>, \
                                        RowSpan<const T>, RowSpan<T>, absl::Span<float>, float*,   \
                                        CUstream_st*);
HEADWISE_INSTANTIATE(float)
HEADWISE_INSTANTIATE(BFloat16)
#undef HEADWISE_INSTANTIATE

}  // namespace headwise::HW_CUDA_NAMESPACE
