#include <cstdint>
#include <limits>

#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "kernels/common/cuda/fp32.cuh"
#include "kernels/common/cuda/math.cuh"
#include "kernels/common/cuda/row_chains.cuh"
#include "kernels/common/cuda/rows.cuh"
#include "kernels/emulation/cuda_kernel.h"
#include "kernels/moe/cuda.h"
#include "kernels/moe/cuda/softmax_row.cuh"
#include "kernels/moe/router.h"

namespace headwise::HW_CUDA_NAMESPACE {
namespace {

constexpr int kWarps = 4;  // a warp takes a token
constexpr int kThreads = 32 * kWarps;
constexpr float kSigmoidSumEpsilon = 1e-20f;

struct Arguments {
  Rows<const float> logits;
  std::int64_t tokens;
  int num_experts, chosen;
  bool softmax, normalize;
  float scale, multiplier;
};

// The token of this warp; beyond the tokens there is none.
__device__ __forceinline__ std::int64_t WarpToken() {
  return static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
}

struct Logits {
  const float* logits;
  float multiplier;

  __device__ __forceinline__ Fp32 operator()(int e) const {
    return Fp32(LoadCached(logits + e)) * multiplier;
  }
};

// A warp's part of the block's shared memory: floats [experts + chosen], then integers [chosen] of
// every warp. Choice j is lane j mod 32's.
struct WarpMemory {
  SharedArray<float> floats;
  SharedArray<int> choices;
  int row;     // [experts] from here on
  int unit;    // [chosen]
  int choice;  // [chosen], of choices

  // Choice j, of the lane's own.
  __device__ __forceinline__ int Choice(int j) const { return choices[choice + j]; }
};

// Bytes of all warps' floats.
__device__ __forceinline__ int FloatBytes(const Arguments& a) {
  return kWarps * (a.num_experts + a.chosen) * static_cast<int>(sizeof(float));
}
__device__ __forceinline__ WarpMemory MemoryOfWarp(const Arguments& a,
                                                   const SharedArray<float>& floats,
                                                   const SharedArray<int>& choices) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int row = warp * (a.num_experts + a.chosen);
  return {floats, choices, row, row + a.num_experts, warp * a.chosen};
}

// Leaves in memory.unit the weights of the choices before the scale; returns what normalized scores
// were divided by. Every lane must call it; the choices are there.
__device__ __forceinline__ Fp32 UnitWeights(const Arguments& a, const Logits& z,
                                            const WarpMemory& memory, int lane) {
  if (a.softmax && !a.normalize) {
    const SoftmaxRow softmax(a.num_experts, lane, z);
    for (int j = lane; j < a.chosen; j += 32) {
      memory.floats[memory.unit + j] = softmax.Probability(z(memory.Choice(j))).value;
    }
    __syncwarp();
    return 1.0f;
  }
  Fp32 max = -std::numeric_limits<float>::infinity();
  if (a.softmax) {
    for (int j = lane; j < a.chosen; j += 32) max = Max(z(memory.Choice(j)), max);
    max = WarpMax(max);
  }
  for (int j = lane; j < a.chosen; j += 32) {
    const Fp32 logit = z(memory.Choice(j));
    memory.floats[memory.unit + j] = (a.softmax ? Exp(logit - max) : Sigmoid(logit)).value;
  }
  __syncwarp();
  if (!a.normalize) return 1.0f;
  Fp32 sum = 0.0f;
  for (int j = 0; j < a.chosen; ++j) {
    const float unit = memory.floats[memory.unit + j];
    sum = sum + unit;
  }
  if (!a.softmax) sum = sum + kSigmoidSumEpsilon;
  __syncwarp();
  for (int j = lane; j < a.chosen; j += 32) {
    const float unit = memory.floats[memory.unit + j];
    memory.floats[memory.unit + j] = (Fp32(unit) / sum).value;
  }
  __syncwarp();
  return sum;
}

// What experts are sorted by; a lane's are its pairs' (row_chains.cuh).
__device__ __forceinline__ void Keys(const Arguments& a, const Logits& z, const float* bias,
                                     const WarpMemory& memory, int lane) {
  const auto keep = [&](int e, Fp32 key) {
    // NaN is the only one that is not equal to itself.
    const Fp32 kept = key == key ? key : Fp32(-std::numeric_limits<float>::infinity());
    memory.floats[memory.row + e] = kept.value;
  };
  const auto keep_pairs = [&](const auto& key) {
    ForEachPair(a.num_experts, lane, [&](int e, bool both) {
      keep(e, key(e));
      if (both) keep(e + 1, key(e + 1));
    });
  };
  if (bias == nullptr) return keep_pairs(z);
  if (!a.softmax) return keep_pairs([&](int e) { return Sigmoid(z(e)) + LoadCached(bias + e); });
  const SoftmaxRow softmax(a.num_experts, lane, z);
  keep_pairs([&](int e) { return softmax.Probability(z(e)) + LoadCached(bias + e); });
}

// Whether (key, expert) is wanted more than (other, other_expert).
__device__ __forceinline__ bool Before(float key, int expert, float other, int other_expert) {
  return key > other || (key == other && expert < other_expert);
}

__global__ void __launch_bounds__(kThreads, 8)
    RouterForwardKernel(const Arguments a, const float* bias, const Rows<std::int32_t> experts,
                        const Rows<float> weights) {
  const std::int64_t token = WarpToken();
  if (token >= a.tokens) return;  // whole warps; the block has no barrier
  const int lane = threadIdx.x % 32;
  const Logits z = {a.logits.row(token), a.multiplier};
  HW_DYNAMIC_SHARED(float, floats, 0);
  HW_DYNAMIC_SHARED(int, choices, FloatBytes(a));
  const WarpMemory memory = MemoryOfWarp(a, floats, choices);
  Keys(a, z, bias, memory, lane);
  // Each round takes the first of the experts that come after the last one.
  float last = std::numeric_limits<float>::infinity();
  int last_expert = -1;
  for (int j = 0; j < a.chosen; ++j) {
    float best = -std::numeric_limits<float>::infinity();
    int best_expert = a.num_experts;
    const auto consider = [&](int e) {
      const float key = memory.floats[memory.row + e];
      if (Before(last, last_expert, key, e) && Before(key, e, best, best_expert)) {
        best = key, best_expert = e;
      }
    };
    ForEachPair(a.num_experts, lane, [&](int e, bool both) {
      consider(e);
      if (both) consider(e + 1);
    });
#pragma unroll
    for (int h = 16; h > 0; h /= 2) {
      const float other = __shfl_xor_sync(kAllLanes, best, h);
      const int other_expert = __shfl_xor_sync(kAllLanes, best_expert, h);
      if (Before(other, other_expert, best, best_expert)) {
        best = other, best_expert = other_expert;
      }
    }
    if (lane == j % 32) memory.choices[memory.choice + j] = best_expert;
    last = best, last_expert = best_expert;
  }
  UnitWeights(a, z, memory, lane);
  for (int j = lane; j < a.chosen; j += 32) {
    const float unit = memory.floats[memory.unit + j];
    StoreGlobal(experts.row(token) + j, memory.Choice(j));
    StoreGlobal(weights.row(token) + j, (Fp32(unit) * a.scale).value);
  }
}

__global__ void __launch_bounds__(kThreads, 8)
    RouterBackwardKernel(const Arguments a, const Rows<const std::int32_t> experts,
                         const Rows<const float> dweights, const Rows<float> dlogits,
                         unsigned long long* first_bad_expert) {  // NOLINT(google-runtime-int)
  const std::int64_t token = WarpToken();
  if (token >= a.tokens) return;  // whole warps; the block has no barrier
  const int lane = threadIdx.x % 32;
  const Logits z = {a.logits.row(token), a.multiplier};
  HW_DYNAMIC_SHARED(float, floats, 0);
  HW_DYNAMIC_SHARED(int, choices, FloatBytes(a));
  const WarpMemory memory = MemoryOfWarp(a, floats, choices);
  bool bad = false;
  for (int j = lane; j < a.chosen; j += 32) {
    const int expert = LoadCached(experts.row(token) + j);
    bad = bad || expert < 0 || expert >= a.num_experts;
    memory.choices[memory.choice + j] = expert;
  }
  if (__any_sync(kAllLanes, bad ? 1 : 0) != 0) {
    if (lane == 0) atomicMin(first_bad_expert, static_cast<unsigned long long>(token));
    return;
  }
  const Fp32 normalizer = UnitWeights(a, z, memory, lane);
  const auto gradient = [&](int j) { return Fp32(LoadCached(dweights.row(token) + j)) * a.scale; };
  Fp32 c = 0.0f;
  for (int j = 0; j < a.chosen; ++j) {
    const float unit = memory.floats[memory.unit + j];
    c = Fma(gradient(j), unit, c);
  }
  for (int e = lane; e < a.num_experts; e += 32) memory.floats[memory.row + e] = 0.0f;
  __syncwarp();
  const bool all_experts = a.softmax && !a.normalize;
  for (int j = lane; j < a.chosen; j += 32) {
    const int expert = memory.Choice(j);
    const Fp32 g = gradient(j);
    Fp32 dz = g;
    if (!all_experts && a.softmax) {
      const float unit = memory.floats[memory.unit + j];
      dz = (unit * (g - c)) * a.multiplier;
    } else if (!all_experts) {
      const Sigmoids sigmoid(z(expert));
      const Fp32 dscore = a.normalize ? (g - c) / normalizer : g;
      dz = (dscore * (sigmoid.value * sigmoid.complement)) * a.multiplier;
    }
    memory.floats[memory.row + expert] = dz.value;
  }
  __syncwarp();
  float* const out = dlogits.row(token);
  if (!all_experts) {
    for (int e = lane; e < a.num_experts; e += 32) {
      const float dz = memory.floats[memory.row + e];
      StoreGlobal(out + e, dz);
    }
    return;
  }
  const SoftmaxRow softmax(a.num_experts, lane, z);
  for (int e = lane; e < a.num_experts; e += 32) {
    const float g = memory.floats[memory.row + e];
    const Fp32 dz = softmax.Probability(z(e)) * (Fp32(g) - c);
    StoreGlobal(out + e, (dz * a.multiplier).value);
  }
}

template <typename T>
void CheckChoices(const Router& op, RowSpan<const float> logits, RowSpan<T> span,
                  const char* what) {
  HW_CHECK(op.chosen >= 1 && op.chosen <= logits.width)
      << op.chosen << " chosen of " << logits.width << " experts";
  HW_CHECK(span.rows == logits.rows && span.width == op.chosen)
      << what << " is " << span.rows << " x " << span.width << ", must be " << logits.rows << " x "
      << op.chosen;
}

Arguments MakeArguments(const Router& op, RowSpan<const float> logits) {
  return {.logits = MakeRows(logits),
          .tokens = logits.rows,
          .num_experts = static_cast<int>(logits.width),
          .chosen = static_cast<int>(op.chosen),
          .softmax = op.score == RouterScore::kSoftmax,
          .normalize = op.normalize,
          .scale = static_cast<float>(op.scale),
          .multiplier = static_cast<float>(op.multiplier)};
}

int SharedBytes(const Arguments& a) {
  return kWarps * (a.num_experts + 2 * a.chosen) * static_cast<int>(sizeof(float));
}

}  // namespace

absl::Status RouterForward(const Router& op, RowSpan<const float> logits,
                           absl::Span<const float> selection_bias, RowSpan<std::int32_t> experts,
                           RowSpan<float> weights, CUstream_st* stream) {
  CheckChoices(op, logits, experts, "experts");
  CheckChoices(op, logits, weights, "weights");
  HW_CHECK(selection_bias.empty() ||
           static_cast<std::int64_t>(selection_bias.size()) == logits.width)
      << "selection_bias has " << selection_bias.size() << " elements, logits are " << logits.width
      << " wide";
  if (logits.rows == 0) return absl::OkStatus();
  HW_RETURN_IF_ERROR(CheckExperts("RouterForward", logits.width));
  const Arguments a = MakeArguments(op, logits);
  std::int64_t blocks;
  HW_RETURN_IF_ERROR(CheckBlocks("logits", "rows", logits.rows, 1, kWarps, blocks));
  HW_RETURN_IF_ERROR(AllowSharedMemory("RouterForward", RouterForwardKernel, SharedBytes(a)));
  HW_LAUNCH(RouterForwardKernel, static_cast<unsigned>(blocks), kThreads, SharedBytes(a), stream, a,
            selection_bias.empty() ? nullptr : selection_bias.data(), MakeRows(experts),
            MakeRows(weights));
  return LaunchStatus("RouterForward");
}

absl::Status RouterBackward(const Router& op, RowSpan<const float> logits,
                            RowSpan<const std::int32_t> experts, RowSpan<const float> dweights,
                            RowSpan<float> dlogits, std::uint64_t* first_bad_expert,
                            CUstream_st* stream) {
  CheckChoices(op, logits, experts, "experts");
  CheckChoices(op, logits, dweights, "dweights");
  HW_CHECK_EQ(dlogits.rows, logits.rows) << "tokens of dlogits";
  HW_CHECK_EQ(dlogits.width, logits.width) << "experts of dlogits";
  if (logits.rows == 0) return absl::OkStatus();
  HW_CHECK(first_bad_expert != nullptr) << "first_bad_expert";
  HW_RETURN_IF_ERROR(CheckExperts("RouterBackward", logits.width));
  const Arguments a = MakeArguments(op, logits);
  std::int64_t blocks;
  HW_RETURN_IF_ERROR(CheckBlocks("logits", "rows", logits.rows, 1, kWarps, blocks));
  HW_RETURN_IF_ERROR(AllowSharedMemory("RouterBackward", RouterBackwardKernel, SharedBytes(a)));
  HW_LAUNCH(RouterBackwardKernel, static_cast<unsigned>(blocks), kThreads, SharedBytes(a), stream,
            a, MakeRows(experts), MakeRows(dweights), MakeRows(dlogits),
            reinterpret_cast<unsigned long long*>(first_bad_expert));
  return LaunchStatus("RouterBackward");
}

}  // namespace headwise::HW_CUDA_NAMESPACE
