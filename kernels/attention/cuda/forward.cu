// AttentionForward on CUDA.
#include <cstdint>
#include <limits>

#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/dtype/bf16.h"
#include "kernels/attention/cuda.h"
#include "kernels/attention/cuda/group.cuh"
#include "kernels/attention/cuda/launch.cuh"
#include "kernels/attention/cuda/query_rows.cuh"
#include "kernels/common/cuda/fp32.cuh"
#include "kernels/common/cuda/math.cuh"
#include "kernels/common/cuda/rows.cuh"
#include "kernels/emulation/cuda_kernel.h"

namespace headwise::HW_CUDA_NAMESPACE {
namespace {

// Where things lie in shared memory, in floats.
template <int kPerLane>
struct Layout {
  static constexpr int kQueryStride = 32 * kPerLane;
  static constexpr int kKeyStride = 32 * kPerLane + 1;  // odd: lanes walk rows
  static constexpr int kKeys = kBlockRows * kQueryStride;
  static constexpr int kProbabilities = kKeys + kTileKeys * kKeyStride;
  static constexpr int kFloats = kProbabilities + kBlockRows * kTileKeys;
};

// The running softmax of a row, the same in every lane.
struct Softmax {
  Fp32 max = -std::numeric_limits<float>::infinity();
  Fp32 sum = 0.0f;

  // Takes in a tile of which the lane has the scores of keys `lane` and `lane + 32` where these are
  // seen; makes them probabilities and returns what earlier sums are multiplied with. Every lane of
  // the warp must call it.
  __device__ __forceinline__ Fp32 Step(bool seen0, bool seen1, Fp32& x0, Fp32& x1) {
    Fp32 top = -std::numeric_limits<float>::infinity();
    if (seen0) top = Max(x0, top);
    if (seen1) top = Max(x1, top);
#pragma unroll
    for (int h = 16; h > 0; h /= 2) top = Max(FromLaneAcross(top, h), top);
    const Fp32 new_max = Max(max, top);
    const Fp32 factor = Exp(max - new_max);
    max = new_max;
    x0 = seen0 ? Exp(x0 - max) : Fp32(0.0f);
    x1 = seen1 ? Exp(x1 - max) : Fp32(0.0f);
    // Chain j mod 16 of keys j, j + 16, j + 32, j + 48, in both lanes that have two of them.
    const Fp32 other0 = FromLaneAcross(x0, 16), other1 = FromLaneAcross(x1, 16);
    const bool lower = threadIdx.x % 32 < 16;
    Fp32 chain = Fp32(0.0f) + (lower ? x0 : other0);
    chain = chain + (lower ? other0 : x0);
    chain = chain + (lower ? x1 : other1);
    chain = chain + (lower ? other1 : x1);
#pragma unroll
    for (int h = 8; h > 0; h /= 2) chain = chain + FromLaneAcross(chain, h);
    sum = Fma(sum, factor, chain);
    return factor;
  }
};

template <typename T, int kPerLane>
__global__ void __launch_bounds__(kThreads, 4) AttentionForwardKernel(const Arguments<T> a) {
  using Shared = Layout<kPerLane>;
  HW_DYNAMIC_SHARED(float, shared, 0);
  AttentionSegment segment;
  if (!LoadSegment(a, blockIdx.z, segment)) return;
  const Group<T> group(a, segment, static_cast<int>(blockIdx.y));
  const std::int64_t block_row = static_cast<std::int64_t>(blockIdx.x) * kBlockRows;
  if (block_row >= group.num_rows()) return;
  const WarpRows<T> rows(group, block_row);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;

  Softmax softmax[kWarpRows];
  Fp32 sums[kWarpRows][kPerLane];
#pragma unroll
  for (int i = 0; i < kWarpRows; ++i) {
#pragma unroll
    for (int e = 0; e < kPerLane; ++e) sums[i][e] = 0.0f;
    if (a.sinks != nullptr && rows.first + i < group.num_rows()) {
      softmax[i].max = LoadCached(a.sinks + group.HeadOf(rows.first + i));
      softmax[i].sum = 1.0f;
    }
  }
  group.Stage(shared, 0, kBlockRows, Shared::kQueryStride, block_row, {0, group.num_rows()},
              [&](std::int64_t row) { return group.QueryHead(a.q, row); });

  for (std::int64_t tile = rows.seen.begin / kTileKeys * kTileKeys; tile < rows.seen.end;
       tile += kTileKeys) {
    group.Stage(shared, Shared::kKeys, kTileKeys, Shared::kKeyStride, tile, rows.seen,
                [&](std::int64_t position) { return group.KeyHead(a.k, position); });
    __syncthreads();
    Fp32 scores[2][kWarpRows];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      Chains(shared, warp * kWarpRows * Shared::kQueryStride, Shared::kQueryStride, shared,
             Shared::kKeys + (lane + 32 * half) * Shared::kKeyStride, a.head_dim, scores[half]);
    }
#pragma unroll
    for (int i = 0; i < kWarpRows; ++i) {
      const auto part = rows.InTile(i, tile);
      if (part.empty()) continue;  // the same in every lane
      Fp32 x0 = scores[0][i] * a.scale, x1 = scores[1][i] * a.scale;
      const Fp32 factor = softmax[i].Step(part.Has(lane), part.Has(lane + 32), x0, x1);
#pragma unroll
      for (int e = 0; e < kPerLane; ++e) sums[i][e] = sums[i][e] * factor;
      const int at = Shared::kProbabilities + (warp * kWarpRows + i) * kTileKeys + lane;
      shared[at] = x0.value;
      shared[at + 32] = x1.value;
    }
    __syncthreads();  // the keys have been read
    group.Stage(shared, Shared::kKeys, kTileKeys, Shared::kKeyStride, tile, rows.seen,
                [&](std::int64_t position) { return group.KeyHead(a.v, position); });
    __syncthreads();
    ExtendByTile(rows, tile, shared, Shared::kProbabilities, Shared::kKeys, Shared::kKeyStride,
                 sums);
    __syncthreads();  // the values have been read
  }

#pragma unroll
  for (int i = 0; i < kWarpRows; ++i) {
    const std::int64_t row = rows.first + i;
    if (row >= group.num_rows()) break;
    const bool blind = softmax[i].sum == 0.0f;
    const Fp32 inverse = blind ? Fp32(0.0f) : Fp32(1.0f) / softmax[i].sum;
    StoreHead(group.QueryHead(a.out, row), a.head_dim, sums[i], inverse);
    if (a.log_sum_exp.data != nullptr && lane == 0) {
      const Fp32 value = blind ? Fp32(-std::numeric_limits<float>::infinity())
                               : softmax[i].max + Log(softmax[i].sum);
      StoreGlobal(a.log_sum_exp.row(group.TokenOf(row)) + group.HeadOf(row), value.value);
    }
  }
}

template <typename T, int kPerLane>
absl::Status Launch(const Arguments<T>& a, const dim3& grid, CUstream_st* stream) {
  constexpr int kBytes = Layout<kPerLane>::kFloats * static_cast<int>(sizeof(float));
  HW_RETURN_IF_ERROR(AllowSharedMemory("attention", AttentionForwardKernel<T, kPerLane>, kBytes));
  HW_LAUNCH((AttentionForwardKernel<T, kPerLane>), grid, kThreads, kBytes, stream, a);
  return LaunchStatus("AttentionForward");
}

}  // namespace

template <typename T>
absl::Status AttentionForward(const Attention& op, absl::Span<const AttentionSegment> segments,
                              RowSpan<const T> q, RowSpan<const T> k, RowSpan<const T> v,
                              absl::Span<const float> sinks, RowSpan<T> o,
                              RowSpan<float> log_sum_exp, const AttentionLaunch& launch) {
  attention::CheckSameShape(q, o, "q and o");
  attention::CheckSameShape(k, v, "k and v");
  HW_RETURN_IF_ERROR(
      CheckCall(op, segments, q.rows, q.width, k.rows, k.width, sinks.size(), launch));
  if (log_sum_exp.data != nullptr) {
    HW_CHECK_EQ(log_sum_exp.rows, q.rows) << "tokens of log_sum_exp";
    HW_CHECK_EQ(log_sum_exp.width, op.query_heads) << "heads of log_sum_exp";
  }
  if (segments.empty() || q.rows == 0) return absl::OkStatus();
  Arguments<T> a = MakeArguments(op, segments, q, k, v, sinks, launch);
  a.out = MakeRows(o);
  a.log_sum_exp = MakeRows(log_sum_exp);
  const dim3 grid = GridOf(q.rows * (op.query_heads / op.kv_heads), kBlockRows, op, segments);
  switch (PerLane(op.head_dim)) {
    case 1:
      return Launch<T, 1>(a, grid, launch.stream);
    case 2:
      return Launch<T, 2>(a, grid, launch.stream);
    case 4:
      return Launch<T, 4>(a, grid, launch.stream);
    default:
      return Launch<T, 8>(a, grid, launch.stream);
  }
}

#define HEADWISE_INSTANTIATE(T)                                                                \
  template absl::Status AttentionForward(const Attention&, absl::Span<const AttentionSegment>, \
                                         RowSpan<const T>, RowSpan<const T>, RowSpan<const T>, \
                                         absl::Span<const float>, RowSpan<T>, RowSpan<float>,  \
                                         const AttentionLaunch&);
HEADWISE_INSTANTIATE(float)
HEADWISE_INSTANTIATE(BFloat16)
#undef HEADWISE_INSTANTIATE

}  // namespace headwise::HW_CUDA_NAMESPACE
