// AttentionBackward on CUDA.
#include <cstdint>
#include <limits>

#include "absl/strings/str_format.h"
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
#include "kernels/common/cuda/storage.cuh"
#include "kernels/common/cuda/sum_columns.h"
#include "kernels/common/reductions.h"
#include "kernels/emulation/cuda_kernel.h"

namespace headwise::HW_CUDA_NAMESPACE {
namespace {

// delta = d_o . o of every query row of a segment: sixteen lanes a row, one chain each.
template <typename T>
__global__ void __launch_bounds__(kThreads) AttentionDeltaKernel(const Arguments<T> a) {
  AttentionSegment segment;
  if (!LoadSegment(a, blockIdx.z, segment)) return;
  const Group<T> group(a, segment, static_cast<int>(blockIdx.y));
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * (kThreads / 16) +
                           static_cast<std::int64_t>(threadIdx.x) / 16;
  const bool is_row = row < group.num_rows();
  const int lane = threadIdx.x % 16;
  Fp32 sum = 0.0f;
  if (is_row) {
    const T* const o = group.QueryHead(a.o, row);
    const T* const d_o = group.QueryHead(a.d_o, row);
    for (int first = 0; first < a.head_dim; first += 16) {
      const int d = first + lane;
      Fp32 x = 0.0f, y = 0.0f;  // zeros up to a multiple of 16 take part
      if (d < a.head_dim) {
        x = LoadElement(d_o + d);
        y = LoadElement(o + d);
      }
      sum = Fma(x, y, sum);
    }
  }
#pragma unroll
  for (int h = 8; h > 0; h /= 2) sum = sum + FromLaneAcross(sum, h);
  if (!is_row || lane != 0) return;
  const std::int64_t token = group.TokenOf(row);
  const int head = group.HeadOf(row);
  StoreGlobal(a.delta + token * a.query_heads + head, sum.value);
  if (a.in_segment != nullptr && head == 0) StoreGlobal(a.in_segment + token, 1.0f);
}

// Of a query row: what the probabilities and the gradients of its scores need.
struct RowStatistics {
  Fp32 log_sum_exp, delta;
};
template <typename T>
__device__ __forceinline__ RowStatistics LoadStatistics(const Arguments<T>& a,
                                                        const Group<T>& group, std::int64_t row) {
  const std::int64_t token = group.TokenOf(row);
  const int head = group.HeadOf(row);
  return {LoadCached(a.log_sum_exp_in.row(token) + head),
          LoadCached(a.delta + token * a.query_heads + head)};
}

// Where things lie in the shared memory of dq, in floats.
template <int kPerLane>
struct QueryLayout {
  static constexpr int kQueryStride = 32 * kPerLane;
  static constexpr int kKeyStride = 32 * kPerLane + 1;          // odd: lanes walk rows
  static constexpr int kGradients = kBlockRows * kQueryStride;  // of o
  static constexpr int kKeys = 2 * kBlockRows * kQueryStride;
  static constexpr int kScores = kKeys + kTileKeys * kKeyStride;  // their gradients
  static constexpr int kFloats = kScores + kBlockRows * kTileKeys;
};

template <typename T, int kPerLane>
__global__ void __launch_bounds__(kThreads, 4) AttentionQueryKernel(const Arguments<T> a) {
  using Shared = QueryLayout<kPerLane>;
  HW_DYNAMIC_SHARED(float, shared, 0);
  AttentionSegment segment;
  if (!LoadSegment(a, blockIdx.z, segment)) return;
  const Group<T> group(a, segment, static_cast<int>(blockIdx.y));
  const std::int64_t block_row = static_cast<std::int64_t>(blockIdx.x) * kBlockRows;
  if (block_row >= group.num_rows()) return;
  const WarpRows<T> rows(group, block_row);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;

  RowStatistics statistics[kWarpRows];
  Fp32 sums[kWarpRows][kPerLane];
#pragma unroll
  for (int i = 0; i < kWarpRows; ++i) {
#pragma unroll
    for (int e = 0; e < kPerLane; ++e) sums[i][e] = 0.0f;
    statistics[i] = {0.0f, 0.0f};
    if (rows.first + i < group.num_rows()) {
      statistics[i] = LoadStatistics(a, group, rows.first + i);
    }
  }
  const Range there = {0, group.num_rows()};
  group.Stage(shared, 0, kBlockRows, Shared::kQueryStride, block_row, there,
              [&](std::int64_t row) { return group.QueryHead(a.q, row); });
  group.Stage(shared, Shared::kGradients, kBlockRows, Shared::kQueryStride, block_row, there,
              [&](std::int64_t row) { return group.QueryHead(a.d_o, row); });

  for (std::int64_t tile = rows.seen.begin / kTileKeys * kTileKeys; tile < rows.seen.end;
       tile += kTileKeys) {
    const int of_warp = warp * kWarpRows * Shared::kQueryStride;
    Fp32 gradients[2][kWarpRows];  // of the probabilities
    group.Stage(shared, Shared::kKeys, kTileKeys, Shared::kKeyStride, tile, rows.seen,
                [&](std::int64_t position) { return group.KeyHead(a.v, position); });
    __syncthreads();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      Chains(shared, Shared::kGradients + of_warp, Shared::kQueryStride, shared,
             Shared::kKeys + (lane + 32 * half) * Shared::kKeyStride, a.head_dim, gradients[half]);
    }
    __syncthreads();  // the values have been read
    group.Stage(shared, Shared::kKeys, kTileKeys, Shared::kKeyStride, tile, rows.seen,
                [&](std::int64_t position) { return group.KeyHead(a.k, position); });
    __syncthreads();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      Fp32 scores[kWarpRows];
      Chains(shared, of_warp, Shared::kQueryStride, shared,
             Shared::kKeys + (lane + 32 * half) * Shared::kKeyStride, a.head_dim, scores);
#pragma unroll
      for (int i = 0; i < kWarpRows; ++i) {
        const Fp32 p = Exp(scores[i] * a.scale - statistics[i].log_sum_exp);
        const Fp32 ds = p * (gradients[half][i] - statistics[i].delta);
        shared[Shared::kScores + (warp * kWarpRows + i) * kTileKeys + lane + 32 * half] = ds.value;
      }
    }
    __syncwarp();  // a warp reads its own rows
    ExtendByTile(rows, tile, shared, Shared::kScores, Shared::kKeys, Shared::kKeyStride, sums);
    __syncthreads();  // the keys have been read
  }

#pragma unroll
  for (int i = 0; i < kWarpRows; ++i) {
    const std::int64_t row = rows.first + i;
    if (row >= group.num_rows()) break;
    StoreHead(group.QueryHead(a.dq, row), a.head_dim, sums[i], Fp32(a.scale));
  }
}

constexpr int kBlockKeys = 16;  // of dk and dv
constexpr int kWarpKeys = kBlockKeys / kWarps;

// Where things lie in the shared memory of dk and dv, in floats.
template <int kPerLane>
struct KeyLayout {
  static constexpr int kStride = 32 * kPerLane + 1;  // odd: lanes walk rows
  static constexpr int kQueries = 0;
  static constexpr int kGradients = kQueries + kBlockRows * kStride;  // of o
  static constexpr int kKeys = kGradients + kBlockRows * kStride;
  static constexpr int kValues = kKeys + kBlockKeys * kStride;
  static constexpr int kProbabilities = kValues + kBlockKeys * kStride;
  static constexpr int kScores = kProbabilities + kBlockRows * kBlockKeys;  // their gradients
  static constexpr int kFloats = kScores + kBlockRows * kBlockKeys;
};

template <typename T, int kPerLane>
__global__ void __launch_bounds__(kThreads, 4) AttentionKeyKernel(const Arguments<T> a) {
  using Shared = KeyLayout<kPerLane>;
  HW_DYNAMIC_SHARED(float, shared, 0);
  AttentionSegment segment;
  if (!LoadSegment(a, blockIdx.z, segment)) return;
  const Group<T> group(a, segment, static_cast<int>(blockIdx.y));
  const Range keys = group.keys();
  const std::int64_t first_key = keys.begin + static_cast<std::int64_t>(blockIdx.x) * kBlockKeys;
  if (first_key >= keys.end) return;
  const std::int64_t last_key = Least(first_key + kBlockKeys, keys.end) - 1;
  const Range seeing = {group.RowsOf(first_key).begin, group.RowsOf(last_key).end};
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;

  Range rows_of[kWarpKeys];
  Fp32 dk[kWarpKeys][kPerLane], dv[kWarpKeys][kPerLane];
#pragma unroll
  for (int i = 0; i < kWarpKeys; ++i) {
    const std::int64_t key = first_key + warp * kWarpKeys + i;
    rows_of[i] = {0, 0};
    if (key < keys.end) rows_of[i] = group.RowsOf(key);
#pragma unroll
    for (int e = 0; e < kPerLane; ++e) dk[i][e] = dv[i][e] = 0.0f;
  }
  group.Stage(shared, Shared::kKeys, kBlockKeys, Shared::kStride, first_key, keys,
              [&](std::int64_t position) { return group.KeyHead(a.k, position); });
  group.Stage(shared, Shared::kValues, kBlockKeys, Shared::kStride, first_key, keys,
              [&](std::int64_t position) { return group.KeyHead(a.v, position); });

  for (std::int64_t row = seeing.begin; row < seeing.end; row += kBlockRows) {
    group.Stage(shared, Shared::kQueries, kBlockRows, Shared::kStride, row, seeing,
                [&](std::int64_t r) { return group.QueryHead(a.q, r); });
    group.Stage(shared, Shared::kGradients, kBlockRows, Shared::kStride, row, seeing,
                [&](std::int64_t r) { return group.QueryHead(a.d_o, r); });
    __syncthreads();
    // A lane takes key lane % 16 and two rows of the warp's four.
    constexpr int kRows = kBlockRows / kWarps / 2;
    const int key = lane % kBlockKeys, first_row = warp * 2 * kRows + lane / kBlockKeys * kRows;
    Fp32 scores[kRows], gradients[kRows];
    Chains(shared, Shared::kQueries + first_row * Shared::kStride, Shared::kStride, shared,
           Shared::kKeys + key * Shared::kStride, a.head_dim, scores);
    Chains(shared, Shared::kGradients + first_row * Shared::kStride, Shared::kStride, shared,
           Shared::kValues + key * Shared::kStride, a.head_dim, gradients);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      Fp32 p = 0.0f, ds = 0.0f;
      if (row + first_row + i < seeing.end) {
        const RowStatistics statistics = LoadStatistics(a, group, row + first_row + i);
        p = Exp(scores[i] * a.scale - statistics.log_sum_exp);
        ds = p * (gradients[i] - statistics.delta);
      }
      const int at = (first_row + i) * kBlockKeys + key;
      shared[Shared::kProbabilities + at] = p.value;
      shared[Shared::kScores + at] = ds.value;
    }
    __syncthreads();
    for (int r = 0; r < kBlockRows && row + r < seeing.end; ++r) {
      Fp32 x[kPerLane], g[kPerLane];
#pragma unroll
      for (int e = 0; e < kPerLane; ++e) {
        const int at = r * Shared::kStride + lane + 32 * e;
        x[e] = static_cast<float>(shared[Shared::kQueries + at]);
        g[e] = static_cast<float>(shared[Shared::kGradients + at]);
      }
#pragma unroll
      for (int i = 0; i < kWarpKeys; ++i) {
        if (!rows_of[i].Has(row + r)) continue;
        const int at = r * kBlockKeys + warp * kWarpKeys + i;
        const Fp32 p = static_cast<float>(shared[Shared::kProbabilities + at]);
        const Fp32 ds = static_cast<float>(shared[Shared::kScores + at]);
#pragma unroll
        for (int e = 0; e < kPerLane; ++e) {
          dv[i][e] = Fma(p, g[e], dv[i][e]);
          dk[i][e] = Fma(ds, x[e], dk[i][e]);
        }
      }
    }
    __syncthreads();  // the rows have been read
  }

#pragma unroll
  for (int i = 0; i < kWarpKeys; ++i) {
    const std::int64_t key = first_key + warp * kWarpKeys + i;
    if (key >= keys.end) break;
    StoreHead(group.KeyHead(a.dk, key), a.head_dim, dk[i], Fp32(a.scale));
    StoreHead(group.KeyHead(a.dv, key), a.head_dim, dv[i], Fp32(1.0f));
  }
}

constexpr int kSinkThreads = 128;

// partials[tile][h]: the sinks' gradient of a tile of 64 rows of q.
template <typename T>
__global__ void __launch_bounds__(kSinkThreads)
    AttentionSinkKernel(const Arguments<T> a, float* partials) {
  const std::int64_t unit = static_cast<std::int64_t>(blockIdx.x) * kSinkThreads + threadIdx.x;
  const std::int64_t tile = DivideUnits(unit, a.query_heads), begin = tile * kTokenTile;
  if (begin >= a.query_rows) return;
  const int head = static_cast<int>(unit - tile * a.query_heads);
  const Fp32 sink = LoadCached(a.sinks + head);
  Fp32 sum = 0.0f;
  for (std::int64_t t = begin; t < Least(begin + kTokenTile, a.query_rows); ++t) {
    if (LoadCached(a.in_segment + t) == 0.0f) continue;
    const Fp32 log_sum_exp = LoadCached(a.log_sum_exp_in.row(t) + head);
    if (log_sum_exp == -std::numeric_limits<float>::infinity()) continue;
    const Fp32 delta = LoadCached(a.delta + t * a.query_heads + head);
    sum = Fma(-Exp(sink - log_sum_exp), delta, sum);
  }
  StoreGlobal(partials + unit, sum.value);
}

template <typename T, int kPerLane>
absl::Status LaunchQueriesAndKeys(const Arguments<T>& a, const dim3& query_grid,
                                  const dim3& key_grid, CUstream_st* stream) {
  constexpr int kFloat = sizeof(float);
  constexpr int kQueryBytes = QueryLayout<kPerLane>::kFloats * kFloat;
  constexpr int kKeyBytes = KeyLayout<kPerLane>::kFloats * kFloat;
  if (a.query_rows > 0) {
    HW_RETURN_IF_ERROR(
        AllowSharedMemory("attention", AttentionQueryKernel<T, kPerLane>, kQueryBytes));
    HW_LAUNCH((AttentionQueryKernel<T, kPerLane>), query_grid, kThreads, kQueryBytes, stream, a);
    HW_RETURN_IF_ERROR(LaunchStatus("AttentionQueries"));
  }
  if (a.key_rows == 0) return absl::OkStatus();
  HW_RETURN_IF_ERROR(AllowSharedMemory("attention", AttentionKeyKernel<T, kPerLane>, kKeyBytes));
  HW_LAUNCH((AttentionKeyKernel<T, kPerLane>), key_grid, kThreads, kKeyBytes, stream, a);
  return LaunchStatus("AttentionKeys");
}

// After the deltas.
template <typename T>
absl::Status LaunchSinks(const Arguments<T>& a, float* partials, absl::Span<float> d_sinks,
                         CUstream_st* stream) {
  const std::int64_t tiles = (a.query_rows + kTokenTile - 1) / kTokenTile;
  if (tiles > 0) {
    std::int64_t blocks;
    HW_RETURN_IF_ERROR(
        CheckBlocks("q", "tiles of rows", tiles, a.query_heads, kSinkThreads, blocks));
    HW_LAUNCH((AttentionSinkKernel<T>), static_cast<unsigned>(blocks), kSinkThreads, 0, stream, a,
              partials);
    HW_RETURN_IF_ERROR(LaunchStatus("AttentionSinks"));
  }
  return SumColumns(RowSpan<const float>(partials, tiles, a.query_heads),
                    RowSpan<float>(d_sinks.data(), 1, a.query_heads), {}, stream);
}

}  // namespace

template <typename T>
absl::Status AttentionBackward(const Attention& op, absl::Span<const AttentionSegment> segments,
                               RowSpan<const T> q, RowSpan<const T> k, RowSpan<const T> v,
                               absl::Span<const float> sinks, RowSpan<const T> o,
                               RowSpan<const float> log_sum_exp, RowSpan<const T> d_o,
                               RowSpan<T> dq, RowSpan<T> dk, RowSpan<T> dv,
                               absl::Span<float> d_sinks, const AttentionLaunch& launch) {
  attention::CheckSameShape(k, v, "k and v");
  attention::CheckSameShape(q, o, "q and o");
  attention::CheckSameShape(q, d_o, "q and d_o");
  attention::CheckSameShape(q, dq, "q and dq");
  attention::CheckSameShape(k, dk, "k and dk");
  attention::CheckSameShape(k, dv, "k and dv");
  HW_RETURN_IF_ERROR(
      CheckCall(op, segments, q.rows, q.width, k.rows, k.width, sinks.size(), launch));
  HW_CHECK_EQ(sinks.size(), d_sinks.size()) << "sinks and d_sinks";
  HW_CHECK_EQ(log_sum_exp.rows, q.rows) << "tokens of log_sum_exp";
  HW_CHECK_EQ(log_sum_exp.width, op.query_heads) << "heads of log_sum_exp";
  HW_CHECK(launch.scratch != nullptr || q.rows == 0) << "scratch";
  const std::int64_t deltas = q.rows * op.query_heads;
  Arguments<T> a = MakeArguments(op, segments, q, k, v, sinks, launch);
  a.o = MakeRows(o);
  a.d_o = MakeRows(d_o);
  a.log_sum_exp_in = MakeRows(log_sum_exp);
  a.dq = MakeRows(dq);
  a.dk = MakeRows(dk);
  a.dv = MakeRows(dv);
  a.delta = launch.scratch;
  if (!sinks.empty() && q.rows > 0) {
    a.in_segment = launch.scratch + deltas;
    const cudaError_t error =
        cudaMemsetAsync(a.in_segment, 0, q.rows * sizeof(float), launch.stream);
    if (error != cudaSuccess) {
      return absl::InternalError(
          absl::StrFormat("attention: filling scratch: %s", cudaGetErrorString(error)));
    }
  }
  if (!segments.empty()) {
    const std::int64_t rows = q.rows * (op.query_heads / op.kv_heads);
    if (rows > 0) {
      HW_LAUNCH((AttentionDeltaKernel<T>), GridOf(rows, kThreads / 16, op, segments), kThreads, 0,
                launch.stream, a);
      HW_RETURN_IF_ERROR(LaunchStatus("AttentionDeltas"));
    }
    const dim3 query_grid = GridOf(rows, kBlockRows, op, segments);
    const dim3 key_grid = GridOf(k.rows, kBlockKeys, op, segments);
    const auto run = [&]<int kPerLane>() {
      return LaunchQueriesAndKeys<T, kPerLane>(a, query_grid, key_grid, launch.stream);
    };
    switch (PerLane(op.head_dim)) {
      case 1:
        HW_RETURN_IF_ERROR(run.template operator()<1>());
        break;
      case 2:
        HW_RETURN_IF_ERROR(run.template operator()<2>());
        break;
      case 4:
        HW_RETURN_IF_ERROR(run.template operator()<4>());
        break;
      default:
        HW_RETURN_IF_ERROR(run.template operator()<8>());
    }
  }
  if (sinks.empty()) return absl::OkStatus();
  return LaunchSinks(a, launch.scratch + deltas + q.rows, d_sinks, launch.stream);
}

#define HEADWISE_INSTANTIATE(T)                                                                 \
  template absl::Status AttentionBackward(                                                      \
      const Attention&, absl::Span<const AttentionSegment>, RowSpan<const T>, RowSpan<const T>, \
      RowSpan<const T>, absl::Span<const float>, RowSpan<const T>, RowSpan<const float>,        \
      RowSpan<const T>, RowSpan<T>, RowSpan<T>, RowSpan<T>, absl::Span<float>,                  \
      const AttentionLaunch&);
HEADWISE_INSTANTIATE(float)
HEADWISE_INSTANTIATE(BFloat16)
#undef HEADWISE_INSTANTIATE

}  // namespace headwise::HW_CUDA_NAMESPACE
