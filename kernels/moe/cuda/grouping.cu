// A counting sort in three launches. Choices are cut into tiles; counts [tiles, E]: first how many
// choices of a tile are an expert's, then how many of earlier tiles are.
#include <algorithm>
#include <cstdint>
#include <limits>

#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "kernels/common/cuda/fp32.cuh"
#include "kernels/common/cuda/rows.cuh"
#include "kernels/emulation/cuda_kernel.h"
#include "kernels/moe/cuda.h"
#include "kernels/moe/cuda/softmax_row.cuh"
#include "kernels/moe/cuda/tiles.h"

namespace headwise::HW_CUDA_NAMESPACE {
namespace {

constexpr int kThreads = 256;
constexpr int kTile = moe::kChoicesOfTile;
constexpr int kOwn = kTile / kThreads;  // choices of a thread: i, i + kThreads, ...
constexpr int kBatch = 8;               // tiles whose counts are loaded at once
constexpr int kNobody = -1;             // in place of an expert out of range

struct Choices {
  Rows<const std::int32_t> experts;
  int count, chosen;  // T k, k
  int num_experts;
  unsigned long long* first_bad_expert;  // NOLINT(google-runtime-int): atomicMin's type

  // The expert of choice i. Where it is out of range, `reports` keeps the smallest such token.
  __device__ __forceinline__ int Expert(int i, bool reports) const {
    const int token = i / chosen;
    const int expert = LoadCached(experts.row(token) + (i - token * chosen));
    if (expert >= 0 && expert < num_experts) return expert;
    if (reports) atomicMin(first_bad_expert, static_cast<unsigned long long>(token));
    return kNobody;
  }
};

__global__ void __launch_bounds__(kThreads)
    GroupCountKernel(const Choices choices, std::int32_t* counts) {
  HW_DYNAMIC_SHARED(int, mine, 0);  // [experts]
  for (int e = threadIdx.x; e < choices.num_experts; e += kThreads) mine[e] = 0;
  __syncthreads();
  const int begin = static_cast<int>(blockIdx.x) * kTile;
  const int end = min(choices.count, begin + kTile);
  for (int i = begin + static_cast<int>(threadIdx.x); i < end; i += kThreads) {
    const int expert = choices.Expert(i, /*reports=*/true);
    if (expert != kNobody) atomicAdd(&mine[expert], 1);
  }
  __syncthreads();
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * choices.num_experts;
  for (int e = threadIdx.x; e < choices.num_experts; e += kThreads) {
    StoreGlobal(counts + row + e, static_cast<std::int32_t>(mine[e]));
  }
}

// One block, a thread an expert: sums of counts over earlier tiles, and of all counts over earlier
// experts.
__global__ void __launch_bounds__(kThreads)
    GroupScanKernel(int num_experts, int tiles, std::int32_t* counts, std::int64_t* offsets) {
  HW_SHARED(int, warp_sums, kThreads / 32);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int before = 0;  // rows of earlier rounds' experts
  for (int first = 0; first < num_experts; first += kThreads) {
    const int e = first + static_cast<int>(threadIdx.x);
    int sum = 0;
    for (int tile = 0; e < num_experts && tile < tiles; tile += kBatch) {
      std::int32_t* const column = counts + static_cast<std::int64_t>(tile) * num_experts + e;
      int count[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        count[i] = 0;
        if (tile + i < tiles) {
          count[i] = LoadGlobal(column + static_cast<std::int64_t>(i) * num_experts);
        }
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (tile + i >= tiles) break;
        StoreGlobal(column + static_cast<std::int64_t>(i) * num_experts, sum);
        sum += count[i];
      }
    }
    int through = sum;  // of the warp's experts up to this one
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(kAllLanes, through, step);
      if (lane >= step) through += other;
    }
    if (lane == 31) warp_sums[warp] = through;
    __syncthreads();
    int round = 0, earlier = 0;
    for (int w = 0; w < kThreads / 32; ++w) {
      const int warp_sum = warp_sums[w];
      if (w < warp) earlier += warp_sum;
      round += warp_sum;
    }
    __syncthreads();
    if (e < num_experts) StoreGlobal(offsets + e, std::int64_t{before + earlier + through - sum});
    before += round;
  }
  if (threadIdx.x == 0) StoreGlobal(offsets + num_experts, std::int64_t{before});
}

__global__ void __launch_bounds__(kThreads)
    GroupRankKernel(const Choices choices, const std::int32_t* counts, const std::int64_t* offsets,
                    std::int64_t* row_of) {
  HW_SHARED(int, experts, kTile);
  const int begin = static_cast<int>(blockIdx.x) * kTile;
  const int count = min(kTile, choices.count - begin);
  int own[kOwn], before[kOwn];
#pragma unroll
  for (int q = 0; q < kOwn; ++q) {
    const int i = static_cast<int>(threadIdx.x) + q * kThreads;
    own[q] = i < count ? choices.Expert(begin + i, /*reports=*/false) : kNobody;
    before[q] = 0;
    experts[i] = own[q];
  }
  __syncthreads();
#pragma unroll 4
  for (int other = 0; other < count; ++other) {
    const int expert = experts[other];
#pragma unroll
    for (int q = 0; q < kOwn; ++q) {
      const int i = static_cast<int>(threadIdx.x) + q * kThreads;
      before[q] += other < i && expert == own[q] ? 1 : 0;
    }
  }
  const std::int32_t* const earlier =
      counts + static_cast<std::int64_t>(blockIdx.x) * choices.num_experts;
#pragma unroll
  for (int q = 0; q < kOwn; ++q) {
    const int i = static_cast<int>(threadIdx.x) + q * kThreads;
    if (i >= count) break;
    std::int64_t row = kNobody;
    if (own[q] != kNobody) {
      row = LoadCached(offsets + own[q]) + LoadCached(earlier + own[q]) + before[q];
    }
    StoreGlobal(row_of + begin + i, row);
  }
}

__global__ void __launch_bounds__(kThreads)
    CountLoadsKernel(const std::int64_t* offsets, int num_experts, float* loads) {
  const int e = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (e >= num_experts) return;
  const std::int64_t load = LoadCached(offsets + e + 1) - LoadCached(offsets + e);
  StoreGlobal(loads + e, __int2float_rn(static_cast<int>(load)));
}

}  // namespace

absl::Status GroupByExpert(RowSpan<const std::int32_t> experts, absl::Span<std::int64_t> offsets,
                           absl::Span<std::int64_t> row_of, std::int32_t* scratch,
                           std::uint64_t* first_bad_expert, CUstream_st* stream) {
  const std::int64_t count = experts.rows * experts.width;
  const auto num_experts = static_cast<std::int64_t>(offsets.size()) - 1;
  HW_CHECK_GE(num_experts, 1) << "offsets";
  HW_CHECK_EQ(static_cast<std::int64_t>(row_of.size()), count) << "row_of";
  HW_CHECK_LE(count, std::numeric_limits<std::int32_t>::max() - kTile) << "choices";
  HW_CHECK((scratch != nullptr && first_bad_expert != nullptr) || count == 0)
      << "scratch, first_bad_expert";
  HW_RETURN_IF_ERROR(CheckExperts("GroupByExpert", num_experts));
  const Choices choices = {
      .experts = MakeRows(experts),
      .count = static_cast<int>(count),
      .chosen = static_cast<int>(std::max<std::int64_t>(experts.width, 1)),
      .num_experts = static_cast<int>(num_experts),
      .first_bad_expert = reinterpret_cast<unsigned long long*>(first_bad_expert)};
  const int tiles = (choices.count + kTile - 1) / kTile;
  if (tiles > 0) {
    HW_LAUNCH(GroupCountKernel, static_cast<unsigned>(tiles), kThreads,
              choices.num_experts * static_cast<int>(sizeof(int)), stream, choices, scratch);
    HW_RETURN_IF_ERROR(LaunchStatus("GroupCount"));
  }
  HW_LAUNCH(GroupScanKernel, 1, kThreads, 0, stream, choices.num_experts, tiles, scratch,
            offsets.data());
  HW_RETURN_IF_ERROR(LaunchStatus("GroupScan"));
  if (tiles == 0) return absl::OkStatus();
  HW_LAUNCH(GroupRankKernel, static_cast<unsigned>(tiles), kThreads, 0, stream, choices, scratch,
            offsets.data(), row_of.data());
  return LaunchStatus("GroupRank");
}

absl::Status CountLoads(absl::Span<const std::int64_t> offsets, absl::Span<float> loads,
                        CUstream_st* stream) {
  HW_CHECK_EQ(offsets.size(), loads.size() + 1) << "offsets and loads";
  if (loads.empty()) return absl::OkStatus();
  const auto num_experts = static_cast<int>(loads.size());
  HW_LAUNCH(CountLoadsKernel, static_cast<unsigned>((num_experts + kThreads - 1) / kThreads),
            kThreads, 0, stream, offsets.data(), num_experts, loads.data());
  return LaunchStatus("CountLoads");
}

}  // namespace headwise::HW_CUDA_NAMESPACE
