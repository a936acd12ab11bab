#include <cmath>
#include <cstdint>
#include <limits>

#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "kernels/common/cuda/block_tree.cuh"
#include "kernels/common/cuda/find_entry.cuh"
#include "kernels/common/cuda/fp32.cuh"
#include "kernels/emulation/cuda_kernel.h"
#include "kernels/gradient_norm/cuda.h"
#include "kernels/gradient_norm/row_squares.h"

namespace headwise::HW_CUDA_NAMESPACE {
namespace {

using gradient_norm::kGroupRows;
using gradient_norm::ScratchLayout;
using gradient_norm::TableEntry;

constexpr int kRowWarps = 4;         // a warp takes a group of rows
constexpr int kTileColumns = 32;     // of its rows, in shared memory
constexpr int kTileStride = 32 + 1;  // so that a column of a tile lies in 32 banks
constexpr unsigned kNone = ~0u;      // of indices
constexpr unsigned kMagnitude = ~0u / 2;

struct Arguments {
  const TableEntry* entries;  // [gradients]
  std::int64_t gradients, groups;
  double* row_sums;          // [groups, kGroupRows]
  double* parameter_sums;    // [gradients]
  unsigned* group_unusable;  // [groups]
  unsigned* unusable;        // [gradients]
};

__global__ void __launch_bounds__(32 * kRowWarps, 6) RowSquaresKernel(const Arguments a) {
  HW_SHARED(float, tiles, kRowWarps* kGroupRows* kTileStride);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const std::int64_t group = static_cast<std::int64_t>(blockIdx.x) * kRowWarps + warp;
  if (group >= a.groups) return;  // whole warps; the block has no barrier
  const TableEntry* const entry =
      FindEntry<&TableEntry::first_group>(a.entries, a.gradients, group);
  const std::int64_t first = (group - LoadCached(&entry->first_group)) * kGroupRows;
  const std::int64_t stride = LoadCached(&entry->stride), width = LoadCached(&entry->width);
  const int rows = static_cast<int>(min(static_cast<long long>(kGroupRows),
                                        static_cast<long long>(LoadCached(&entry->rows) - first)));
  const float* const begin =
      reinterpret_cast<const float*>(LoadCached(&entry->data)) + first * stride;
  const int tile = warp * kGroupRows * kTileStride;

  // Where there is no element, a zero: the sums are never -0, so its square changes no bit.
  float next[kGroupRows];
  const auto load = [&](std::int64_t column) {
    const float* p = begin + column + lane;
    const bool inside = column + lane < width;
#pragma unroll
    for (int r = 0; r < kGroupRows; ++r) {
      next[r] = inside && r < rows ? LoadStreaming(p) : 0.0f;
      p += stride;
    }
  };
  double sum = 0.0;
  unsigned largest = 0;
  load(0);
  for (std::int64_t column = 0; column < width; column += kTileColumns) {
#pragma unroll
    for (int r = 0; r < kGroupRows; ++r) tiles[tile + r * kTileStride + lane] = next[r];
    __syncwarp();
    load(column + kTileColumns);
#pragma unroll 8
    for (int c = 0; c < kTileColumns; ++c) {
      const float g = tiles[tile + lane * kTileStride + c];
      const double x = static_cast<double>(g);
      sum = __fma_rn(x, x, sum);  // the square is exact
      largest = max(largest, __float_as_uint(g) & kMagnitude);
    }
    __syncwarp();
  }
  StoreGlobal(a.row_sums + group * kGroupRows + lane, sum);
  const int unusable = __any_sync(kAllLanes, largest >= kUnusableBits);
  if (lane == 0) StoreGlobal(a.group_unusable + group, unusable != 0 ? 1u : 0u);
}

__global__ void __launch_bounds__(kBlockTreeThreads) ParameterSquaresKernel(const Arguments a) {
  HW_SHARED(double, of_warps, kBlockTreeWarps);
  HW_SHARED(unsigned, unusable_of_warps, kBlockTreeWarps);
  const TableEntry* const entry = a.entries + blockIdx.x;
  const std::int64_t rows = LoadCached(&entry->rows), group = LoadCached(&entry->first_group);
  const std::int64_t groups = (rows + kGroupRows - 1) / kGroupRows;
  bool unusable = false;
  for (std::int64_t i = threadIdx.x; i < groups; i += kBlockTreeThreads) {
    if (LoadGlobal(a.group_unusable + group + i) != 0) unusable = true;
  }
  const int of_warp = __any_sync(kAllLanes, unusable ? 1 : 0);
  if (threadIdx.x % 32 == 0) unusable_of_warps[threadIdx.x / 32] = of_warp != 0 ? 1u : 0u;
  const double* const sums = a.row_sums + group * kGroupRows;
  const double sum =
      BlockTree(rows, of_warps, [&](std::int64_t i) { return LoadGlobal(sums + i); });
  if (threadIdx.x != 0) return;
  StoreGlobal(a.parameter_sums + blockIdx.x, sum);
  unsigned any = 0;
  for (int i = 0; i < kBlockTreeWarps; ++i) any = max(any, unusable_of_warps[i]);
  StoreGlobal(a.unusable + blockIdx.x, any);
}

// Pointers but the decision's may be null.
struct Words {
  GradientDecision* decision;
  float* adamw_scale;
  std::uint32_t* adamw_skip;
  double* muon_scale;
  std::uint32_t* muon_skip;
};

__global__ void __launch_bounds__(kBlockTreeThreads)
    DecisionKernel(const Arguments a, double clip_norm, const Words words) {
  HW_SHARED(double, of_warps, kBlockTreeWarps);
  HW_SHARED(unsigned, first_of_warps, kBlockTreeWarps);
  unsigned first = kNone;
  for (std::int64_t i = threadIdx.x; i < a.gradients && first == kNone; i += kBlockTreeThreads) {
    if (LoadGlobal(a.unusable + i) != 0) first = static_cast<unsigned>(i);
  }
#pragma unroll
  for (int h = 16; h > 0; h /= 2) first = min(first, __shfl_xor_sync(kAllLanes, first, h));
  if (threadIdx.x % 32 == 0) first_of_warps[threadIdx.x / 32] = first;
  const double sum = BlockTree(a.gradients, of_warps,
                               [&](std::int64_t i) { return LoadGlobal(a.parameter_sums + i); });
  if (threadIdx.x != 0) return;
  for (int i = 0; i < kBlockTreeWarps; ++i) first = min(first, first_of_warps[i]);
  const double norm = __dsqrt_rn(sum);
  const unsigned skip = first != kNone ? 1 : 0;
  double clip_factor = 1.0;
  if (skip == 0 && clip_norm > 0.0 && norm > clip_norm) clip_factor = __ddiv_rn(clip_norm, norm);
  StoreGlobal(&words.decision->norm, norm);
  StoreGlobal(&words.decision->clip_factor, clip_factor);
  StoreGlobal(&words.decision->skip, skip);
  StoreGlobal(&words.decision->first_unusable, first);
  if (words.adamw_scale != nullptr) StoreGlobal(words.adamw_scale, __double2float_rn(clip_factor));
  if (words.adamw_skip != nullptr) StoreGlobal(words.adamw_skip, skip);
  if (words.muon_scale != nullptr) StoreGlobal(words.muon_scale, clip_factor);
  if (words.muon_skip != nullptr) StoreGlobal(words.muon_skip, skip);
}

}  // namespace

absl::Status DecideStep(const GradientNormPlan& plan, const GradientNormLaunch& launch) {
  HW_CHECK(launch.clip_norm >= 0 && std::isfinite(launch.clip_norm)) << launch.clip_norm;
  HW_CHECK(launch.decision != nullptr) << "decision";
  HW_CHECK(plan.gradients() == 0 || (launch.table != nullptr && launch.scratch != nullptr))
      << "table or scratch";
  const ScratchLayout layout = gradient_norm::LayoutOf(plan);
  const Arguments a = {
      .entries = reinterpret_cast<const TableEntry*>(launch.table),
      .gradients = plan.gradients(),
      .groups = plan.groups(),
      .row_sums = reinterpret_cast<double*>(launch.scratch + layout.row_sums),
      .parameter_sums = reinterpret_cast<double*>(launch.scratch + layout.parameter_sums),
      .group_unusable = reinterpret_cast<unsigned*>(launch.scratch + layout.group_unusable),
      .unusable = reinterpret_cast<unsigned*>(launch.scratch + layout.unusable)};
  if (plan.groups() > 0) {
    const auto blocks = static_cast<unsigned>((plan.groups() + kRowWarps - 1) / kRowWarps);
    HW_LAUNCH(RowSquaresKernel, blocks, 32 * kRowWarps, 0, launch.stream, a);
    HW_RETURN_IF_ERROR(LaunchStatus("RowSquares"));
  }
  if (plan.gradients() > 0) {
    HW_LAUNCH(ParameterSquaresKernel, static_cast<unsigned>(plan.gradients()), kBlockTreeThreads, 0,
              launch.stream, a);
    HW_RETURN_IF_ERROR(LaunchStatus("ParameterSquares"));
  }
  HW_LAUNCH(DecisionKernel, 1, kBlockTreeThreads, 0, launch.stream, a, launch.clip_norm,
            Words{.decision = launch.decision,
                  .adamw_scale = launch.adamw_scale,
                  .adamw_skip = launch.adamw_skip,
                  .muon_scale = launch.muon_scale,
                  .muon_skip = launch.muon_skip});
  return LaunchStatus("Decision");
}

}  // namespace headwise::HW_CUDA_NAMESPACE
