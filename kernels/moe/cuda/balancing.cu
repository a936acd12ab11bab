#include <cstdint>
#include <limits>

#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "kernels/common/cuda/fp32.cuh"
#include "kernels/common/cuda/row_chains.cuh"
#include "kernels/common/cuda/rows.cuh"
#include "kernels/common/cuda/sum_columns.h"
#include "kernels/common/reductions.h"
#include "kernels/emulation/cuda_kernel.h"
#include "kernels/moe/cuda.h"
#include "kernels/moe/cuda/softmax_row.cuh"

namespace headwise::HW_CUDA_NAMESPACE {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kGradientWarps = 4;  // a warp takes a token
constexpr int kTile = static_cast<int>(kTokenTile);

struct Logits {
  const float* logits;
  __device__ __forceinline__ Fp32 operator()(int e) const { return LoadCached(logits + e); }
};

// partials [tiles, E]: the probabilities of a tile of tokens, summed.
__global__ void __launch_bounds__(kThreads)
    BalancingSumsKernel(const Rows<const float> logits, std::int64_t tokens, int num_experts,
                        float* partials) {
  HW_SHARED(float, max_of, kTile);
  HW_SHARED(float, sum_of, kTile);
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * kTile;
  const int count =
      static_cast<int>(min(static_cast<long long>(kTile), static_cast<long long>(tokens - begin)));
  const int lane = threadIdx.x % 32;
  for (int t = static_cast<int>(threadIdx.x) / 32; t < count; t += kWarps) {
    const SoftmaxRow softmax(num_experts, lane, Logits{logits.row(begin + t)});
    if (lane == 0) max_of[t] = softmax.max.value;
    if (lane == 0) sum_of[t] = softmax.sum.value;
  }
  __syncthreads();
  float* const out = partials + static_cast<std::int64_t>(blockIdx.x) * num_experts;
  for (int e = threadIdx.x; e < num_experts; e += kThreads) {
    Fp32 total = 0.0f;
#pragma unroll 4
    for (int t = 0; t < count; ++t) {
      const float max = max_of[t], sum = sum_of[t];
      total = total + Exp(Logits{logits.row(begin + t)}(e)-max) / sum;
    }
    StoreGlobal(out + e, total.value);
  }
}

// One block: the chain over experts is thread 0's.
__global__ void __launch_bounds__(kThreads)
    BalancingLossKernel(const float* loads, const float* sums, int num_experts, double tokens,
                        double weight, double* total) {
  HW_SHARED(double, share_of, kThreads);
  HW_SHARED(double, mean_of, kThreads);
  double chain = 0;
  for (int first = 0; first < num_experts; first += kThreads) {
    const int e = first + static_cast<int>(threadIdx.x);
    if (e < num_experts) {
      share_of[threadIdx.x] = __ddiv_rn(static_cast<double>(LoadCached(loads + e)), tokens);
      mean_of[threadIdx.x] = __ddiv_rn(static_cast<double>(LoadCached(sums + e)), tokens);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int i = 0; i < min(kThreads, num_experts - first); ++i) {
        const double share = share_of[i], mean = mean_of[i];
        chain = __fma_rn(share, mean, chain);
      }
    }
    __syncthreads();
  }
  if (threadIdx.x != 0) return;
  const double loss = __dmul_rn(chain, static_cast<double>(num_experts));
  StoreGlobal(total, __dadd_rn(LoadGlobal(total), __dmul_rn(weight, loss)));
}

__global__ void __launch_bounds__(32 * kGradientWarps)
    BalancingGradientKernel(const Rows<const float> logits, std::int64_t rows, int num_experts,
                            const float* loads, double tokens, double weight,
                            const double* loss_scale, const Rows<float> dlogits) {
  HW_DYNAMIC_SHARED(float, shared, 0);  // a [experts], then p [experts] of each warp
  const double scale = __dmul_rn(__dmul_rn(LoadCached(loss_scale), weight), tokens);
  const double per_token = __ddiv_rn(__dmul_rn(scale, static_cast<double>(num_experts)), tokens);
  for (int e = threadIdx.x; e < num_experts; e += 32 * kGradientWarps) {
    const double share = __ddiv_rn(static_cast<double>(LoadCached(loads + e)), tokens);
    shared[e] = __double2float_rn(__dmul_rn(per_token, share));
  }
  __syncthreads();
  const int lane = threadIdx.x % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kGradientWarps + warp;
  if (row >= rows) return;  // whole warps; no barrier follows
  const int p_of = (1 + warp) * num_experts;
  const Logits z = {logits.row(row)};
  const SoftmaxRow softmax(num_experts, lane, z);
  for (int e = lane; e < num_experts; e += 32) {
    shared[p_of + e] = softmax.Probability(z(e)).value;
  }
  __syncwarp();
  Fp32 c = 0.0f;
#pragma unroll 4
  for (int e = 0; e < num_experts; ++e) {
    const float a = shared[e], p = shared[p_of + e];
    c = Fma(a, p, c);
  }
  float* const out = dlogits.row(row);
  for (int e = lane; e < num_experts; e += 32) {
    const float a = shared[e], p = shared[p_of + e];
    StoreGlobal(out + e, (LoadGlobal(out + e) + p * (Fp32(a) - c)).value);
  }
}

// One block.
__global__ void __launch_bounds__(kThreads)
    SelectionBiasKernel(const float* loads, int num_experts, float rate, const std::uint32_t* skip,
                        float* bias) {
  HW_SHARED(long long, sums, kWarps);
  if (skip != nullptr && LoadCached(skip) != 0) return;  // the whole block
  long long total = 0;
  for (int e = threadIdx.x; e < num_experts; e += kThreads) {
    total += static_cast<long long>(LoadCached(loads + e));
  }
#pragma unroll
  for (int h = 16; h > 0; h /= 2) total += __shfl_xor_sync(kAllLanes, total, h);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = total;
  __syncthreads();
  total = 0;
  for (int w = 0; w < kWarps; ++w) total += sums[w];
  for (int e = threadIdx.x; e < num_experts; e += kThreads) {
    const long long load = num_experts * static_cast<long long>(LoadCached(loads + e));
    const Fp32 old = LoadGlobal(bias + e);
    if (load > total) StoreGlobal(bias + e, (old - rate).value);
    if (load < total) StoreGlobal(bias + e, (old + rate).value);
  }
}

}  // namespace

absl::Status LoadBalancingLoss(RowSpan<const float> logits, absl::Span<const float> loads,
                               std::int64_t tokens, double weight, double* total, float* scratch,
                               CUstream_st* stream) {
  HW_CHECK_EQ(static_cast<std::int64_t>(loads.size()), logits.width) << "experts of loads";
  HW_CHECK_GE(tokens, logits.rows);
  if (tokens == 0 || logits.width == 0) return absl::OkStatus();
  HW_CHECK(total != nullptr && scratch != nullptr) << "total, scratch";
  HW_RETURN_IF_ERROR(CheckExperts("LoadBalancingLoss", logits.width));
  const auto num_experts = static_cast<int>(logits.width);
  const std::int64_t tiles = (logits.rows + kTile - 1) / kTile;
  float* const sums = scratch + tiles * logits.width;
  if (tiles > 0) {
    std::int64_t blocks;
    HW_RETURN_IF_ERROR(CheckBlocks("logits", "rows", logits.rows, 1, kTile, blocks));
    HW_LAUNCH(BalancingSumsKernel, static_cast<unsigned>(blocks), kThreads, 0, stream,
              MakeRows(logits), logits.rows, num_experts, scratch);
    HW_RETURN_IF_ERROR(LaunchStatus("BalancingSums"));
  }
  HW_RETURN_IF_ERROR(SumColumns(RowSpan<const float>(scratch, tiles, logits.width),
                                RowSpan<float>(sums, 1, logits.width), {}, stream));
  HW_LAUNCH(BalancingLossKernel, 1, kThreads, 0, stream, loads.data(), sums, num_experts,
            static_cast<double>(tokens), weight, total);
  return LaunchStatus("BalancingLoss");
}

absl::Status LoadBalancingBackward(RowSpan<const float> logits, absl::Span<const float> loads,
                                   std::int64_t tokens, double weight, const double* loss_scale,
                                   RowSpan<float> dlogits, CUstream_st* stream) {
  HW_CHECK_EQ(static_cast<std::int64_t>(loads.size()), logits.width) << "experts of loads";
  HW_CHECK_EQ(dlogits.rows, logits.rows) << "tokens of dlogits";
  HW_CHECK_EQ(dlogits.width, logits.width) << "experts of dlogits";
  if (logits.rows == 0 || logits.width == 0) return absl::OkStatus();
  HW_CHECK_GE(tokens, logits.rows);
  HW_CHECK(loss_scale != nullptr) << "loss_scale";
  HW_RETURN_IF_ERROR(CheckExperts("LoadBalancingBackward", logits.width));
  const auto num_experts = static_cast<int>(logits.width);
  const int bytes = (1 + kGradientWarps) * num_experts * static_cast<int>(sizeof(float));
  std::int64_t blocks;
  HW_RETURN_IF_ERROR(CheckBlocks("logits", "rows", logits.rows, 1, kGradientWarps, blocks));
  HW_RETURN_IF_ERROR(AllowSharedMemory("LoadBalancingBackward", BalancingGradientKernel, bytes));
  HW_LAUNCH(BalancingGradientKernel, static_cast<unsigned>(blocks), 32 * kGradientWarps, bytes,
            stream, MakeRows(logits), logits.rows, num_experts, loads.data(),
            static_cast<double>(tokens), weight, loss_scale, MakeRows(dlogits));
  return LaunchStatus("LoadBalancingBackward");
}

absl::Status UpdateSelectionBias(absl::Span<const float> loads, float rate,
                                 const std::uint32_t* skip, absl::Span<float> bias,
                                 CUstream_st* stream) {
  HW_CHECK_EQ(loads.size(), bias.size()) << "experts of loads and bias";
  HW_CHECK_LE(loads.size(), std::size_t{std::numeric_limits<std::int32_t>::max()});
  if (loads.empty()) return absl::OkStatus();
  HW_LAUNCH(SelectionBiasKernel, 1, kThreads, 0, stream, loads.data(),
            static_cast<int>(loads.size()), rate, skip, bias.data());
  return LaunchStatus("UpdateSelectionBias");
}

}  // namespace headwise::HW_CUDA_NAMESPACE
