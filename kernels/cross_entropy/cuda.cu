#include <cstdint>
#include <limits>

#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/dtype/bf16.h"
#include "kernels/common/cuda/block_tree.cuh"
#include "kernels/common/cuda/fp32.cuh"
#include "kernels/common/cuda/map_rows.cuh"
#include "kernels/common/cuda/math.cuh"
#include "kernels/common/cuda/row_chains.cuh"
#include "kernels/common/cuda/rows.cuh"
#include "kernels/common/cuda/storage.cuh"
#include "kernels/cross_entropy/cuda.h"
#include "kernels/emulation/cuda_kernel.h"

namespace headwise::HW_CUDA_NAMESPACE {
namespace {

constexpr int kThreads = 128;  // a warp takes a row

// What is done to an element (logit_steps.h), with the constants rounded once.
template <bool kCapped>
struct Steps {
  float k, cap;

  // The tanh of a logit; the logit itself where there is no cap.
  __device__ __forceinline__ Fp32 Inner(Fp32 z) const { return kCapped ? Tanh(z * k) : z * k; }
  __device__ __forceinline__ Fp32 Logit(Fp32 inner) const { return kCapped ? cap * inner : inner; }
  // dz; p is the probability, less 1 for the target.
  __device__ __forceinline__ Fp32 Gradient(Fp32 p, Fp32 inner, Fp32 g) const {
    return kCapped ? (p * g) * Fma(-inner, inner, 1.0f) : p * g;
  }
};

template <bool kCapped>
Steps<kCapped> MakeSteps(const LogitTransform& op) {
  return {static_cast<float>(kCapped ? op.multiplier / op.cap : op.multiplier),
          static_cast<float>(op.cap)};
}

template <typename T>
struct Arguments {
  Rows<const float> z;
  Rows<T> dz;  // data may be null
  const std::int32_t* targets;
  float* losses;
  unsigned long long* first_bad_target;  // NOLINT(google-runtime-int): atomicMin's type
  std::int64_t rows;
  int width;
  const double* loss_scale;  // not null with dz
  double multiplier;
  bool z_paired, dz_paired;  // two elements may move at once
};

template <typename T, bool kCapped>
__global__ void __launch_bounds__(kThreads)
    CrossEntropyKernel(const Arguments<T> a, const Steps<kCapped> steps) {
  const std::int64_t row =
      static_cast<std::int64_t>(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32;
  if (row >= a.rows) return;  // whole warps; the block has no barrier
  const int lane = threadIdx.x % 32, width = a.width;
  const float* const z = a.z.row(row);
  T* const dz = a.dz.data == nullptr ? nullptr : a.dz.row(row);
  const std::int32_t target = LoadCached(a.targets + row);
  if (target == kIgnoredTarget) {
    if (lane == 0) StoreGlobal(a.losses + row, 0.0f);
    if (dz == nullptr) return;
    ForEachPair(width, lane, [&](int i, bool both) {
      StorePair(dz + i, {0.0f, 0.0f}, both, a.dz_paired);
    });
    return;
  }
  if (target < 0 || target >= width) {
    if (lane == 0) atomicMin(a.first_bad_target, static_cast<unsigned long long>(row));
    return;
  }
  const Fp32 target_logit = steps.Logit(steps.Inner(LoadGlobal(z + target)));

  // NaN takes no part.
  Fp32 max = -std::numeric_limits<float>::infinity();
  ForEachPair(width, lane, [&](int i, bool both) {
    const Pair x = LoadPair(z + i, both, a.z_paired);
    max = Max(steps.Logit(steps.Inner(x.first)), max);
    if (both) max = Max(steps.Logit(steps.Inner(x.second)), max);
  });
#pragma unroll
  for (int h = 16; h > 0; h /= 2) max = Max(FromLaneAcross(max, h), max);

  PairChains chains;
  ForEachPair(width, lane, [&](int i, bool both) {
    const Pair x = LoadPair(z + i, both, a.z_paired);
    chains.first = chains.first + Exp(steps.Logit(steps.Inner(x.first)) - max);
    if (both) chains.second = chains.second + Exp(steps.Logit(steps.Inner(x.second)) - max);
  });
  const Fp32 sum = chains.Sum();
  if (lane == 0) StoreGlobal(a.losses + row, (Log(sum) - (target_logit - max)).value);
  if (dz == nullptr) return;

  const Fp32 g = __double2float_rn(__dmul_rn(LoadCached(a.loss_scale), a.multiplier));
  const Fp32 inverse = Fp32(1.0f) / sum;
  const auto gradient = [&](Fp32 x, int i) {
    const Fp32 inner = steps.Inner(x);
    const Fp32 p = Exp(steps.Logit(inner) - max) * inverse;
    return steps.Gradient(i == target ? p - 1.0f : p, inner, g);
  };
  ForEachPair(width, lane, [&](int i, bool both) {
    const Pair x = LoadPair(z + i, both, a.z_paired);
    Pair y = {gradient(x.first, i), 0.0f};
    if (both) y.second = gradient(x.second, i + 1);
    StorePair(dz + i, y, both, a.dz_paired);
  });
}

__global__ void __launch_bounds__(kBlockTreeThreads)
    SumLossesKernel(const float* losses, std::int64_t count, double* sum) {
  HW_SHARED(double, of_warps, kBlockTreeWarps);
  const double total = BlockTree(
      count, of_warps, [&](std::int64_t i) { return static_cast<double>(LoadGlobal(losses + i)); });
  if (threadIdx.x == 0) StoreGlobal(sum, total);
}

template <bool kCapped>
struct TransformBody {
  static constexpr bool kFlattens = true;
  Steps<kCapped> steps;
  Rows<const float> z;
  Rows<float> logits;

  template <int N>
  __device__ __forceinline__ void Run(std::int64_t row, std::int64_t column) const {
    Fp32 x[N];
    LoadElements(z.row(row) + column, x);
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = steps.Logit(steps.Inner(x[i]));
    StoreElements(logits.row(row) + column, x);
  }
};

template <bool kCapped>
absl::Status Transform(const LogitTransform& op, RowSpan<const float> z, RowSpan<float> logits,
                       CUstream_st* stream) {
  const TransformBody<kCapped> body = {MakeSteps<kCapped>(op), MakeRows(z), MakeRows(logits)};
  return MapRows("TransformLogits", body, stream, /*aligned=*/true, z, logits);
}

}  // namespace

template <typename T>
absl::Status CrossEntropy(const LogitTransform& op, RowSpan<const float> z,
                          absl::Span<const std::int32_t> targets, const double* loss_scale,
                          absl::Span<float> losses, RowSpan<T> dz, std::uint64_t* first_bad_target,
                          CUstream_st* stream) {
  HW_CHECK(op.cap >= 0) << "cap " << op.cap;
  HW_CHECK_EQ(static_cast<std::int64_t>(targets.size()), z.rows);
  HW_CHECK_EQ(losses.size(), targets.size());
  if (dz.data != nullptr) {
    HW_CHECK_EQ(dz.rows, z.rows);
    HW_CHECK_EQ(dz.width, z.width);
    HW_CHECK(loss_scale != nullptr) << "loss_scale";
  }
  HW_CHECK_LE(z.width, std::numeric_limits<int>::max() / 2);
  if (z.rows == 0) return absl::OkStatus();
  HW_CHECK(first_bad_target != nullptr) << "first_bad_target";
  const Arguments<T> a = {
      .z = MakeRows(z),
      .dz = MakeRows(dz),
      .targets = targets.data(),
      .losses = losses.data(),
      .first_bad_target = reinterpret_cast<unsigned long long*>(first_bad_target),
      .rows = z.rows,
      .width = static_cast<int>(z.width),
      .loss_scale = loss_scale,
      .multiplier = op.multiplier,
      .z_paired = AlignedTo(2 * sizeof(float), z),
      .dz_paired = AlignedTo(2 * sizeof(T), dz)};
  std::int64_t blocks;
  HW_RETURN_IF_ERROR(CheckBlocks("z", "rows", z.rows, 1, kThreads / 32, blocks));
  const auto grid = static_cast<unsigned>(blocks);
  if (op.cap > 0) {
    HW_LAUNCH((CrossEntropyKernel<T, true>), grid, kThreads, 0, stream, a, MakeSteps<true>(op));
  } else {
    HW_LAUNCH((CrossEntropyKernel<T, false>), grid, kThreads, 0, stream, a, MakeSteps<false>(op));
  }
  return LaunchStatus("CrossEntropy");
}

absl::Status TransformLogits(const LogitTransform& op, RowSpan<const float> z,
                             RowSpan<float> logits, CUstream_st* stream) {
  HW_CHECK(op.cap >= 0) << "cap " << op.cap;
  return op.cap > 0 ? Transform<true>(op, z, logits, stream)
                    : Transform<false>(op, z, logits, stream);
}

absl::Status SumLosses(absl::Span<const float> losses, double* sum, CUstream_st* stream) {
  HW_CHECK(sum != nullptr) << "sum";
  HW_LAUNCH(SumLossesKernel, 1, kBlockTreeThreads, 0, stream, losses.data(),
            static_cast<std::int64_t>(losses.size()), sum);
  return LaunchStatus("SumLosses");
}

#define HEADWISE_INSTANTIATE(T)                                                     \
  template absl::Status CrossEntropy(const LogitTransform&, RowSpan<const float>,   \
                                     absl::Span<const std::int32_t>, const double*, \
                                     absl::Span<float>, RowSpan<T>, std::uint64_t*, CUstream_st*);
HEADWISE_INSTANTIATE(float)
HEADWISE_INSTANTIATE(BFloat16)
#undef HEADWISE_INSTANTIATE

}  // namespace headwise::HW_CUDA_NAMESPACE
