// What the launchers share: arguments from the contract's, which mapping runs, and the grid.
#ifndef HEADWISE_KERNELS_PREPARE_QKV_CUDA_LAUNCH_CUH_
#define HEADWISE_KERNELS_PREPARE_QKV_CUDA_LAUNCH_CUH_

#include <cstdint>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "core/tensor/row_span.h"
#include "kernels/common/cuda/rows.cuh"
#include "kernels/emulation/cuda_kernel.h"
#include "kernels/prepare_qkv/contract.h"
#include "kernels/prepare_qkv/cuda.h"
#include "kernels/prepare_qkv/cuda/arguments.cuh"
#include "kernels/prepare_qkv/validate.h"

namespace headwise::HW_CUDA_NAMESPACE {

template <typename T>
PositionsIn WherePositionsAre(const QkvPreparation& op, const QkvInputs<T>& in) {
  return op.rotary != nullptr && in.positions.empty() && in.packed.rows > 0
             ? PositionsIn::kDeviceMemory
             : PositionsIn::kHostMemory;
}

// The members of `launch` that this op needs.
inline absl::Status CheckLaunch(const QkvPreparation& op, std::int64_t tokens,
                                PositionsIn positions, const QkvLaunch& launch) {
  const auto missing = [](const char* name, const char* why) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "launch.%s: found a null pointer, expected device memory for %s", name, why));
  };
  if (op.layout.slots() > std::numeric_limits<int>::max() / kMaxHeadDim) {
    return absl::InvalidArgumentError(
        absl::StrFormat("layout: found %d heads in a packed row, expected at most %d on CUDA",
                        op.layout.slots(), std::numeric_limits<int>::max() / kMaxHeadDim));
  }
  if (op.rotary == nullptr || tokens == 0) return absl::OkStatus();
  if (op.rotary->rotary_dim() > 0 && op.rotary->length() > 0) {
    if (launch.cos == nullptr) return missing("cos", "the rotary table, [length, R/2]");
    if (launch.sin == nullptr) return missing("sin", "the rotary table, [length, R/2]");
  }
  if (launch.positions == nullptr) {
    return positions == PositionsIn::kDeviceMemory
               ? missing("positions", "the positions, [T], since none are given in host memory")
               : missing("positions", "a copy of the positions, [T]");
  }
  if (positions == PositionsIn::kDeviceMemory && launch.first_bad_token == nullptr) {
    return missing("first_bad_token", "the first token without a table row");
  }
  return absl::OkStatus();
}

// Enqueues the copy of positions that were given in host memory.
template <typename T>
absl::Status CopyPositions(const QkvPreparation& op, const QkvInputs<T>& in,
                           const QkvLaunch& launch) {
  if (op.rotary == nullptr || in.positions.empty()) return absl::OkStatus();
  const cudaError_t error = cudaMemcpyAsync(launch.positions, in.positions.data(),
                                            in.positions.size() * sizeof(std::int64_t),
                                            cudaMemcpyHostToDevice, launch.stream);
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::InternalError(
      absl::StrFormat("prepare_qkv: copying positions failed: %s", cudaGetErrorString(error)));
}

inline Heads MakeHeads(const PackedQkv& layout) {
  return {.query_heads = static_cast<int>(layout.query_heads()),
          .kv_heads = static_cast<int>(layout.kv_heads()),
          .group_size = static_cast<int>(layout.group_size()),
          .head_dim = static_cast<int>(layout.head_dim()),
          .interleaved = layout.packing() == Packing::kInterleavedPerKvGroup};
}

inline HeadMaths MakeMaths(const QkvPreparation& op) {
  return {.copy = op.norm == HeadNorm::kNone && op.rotary == nullptr,
          .norm = op.norm != HeadNorm::kNone,
          .weighted = HasWeight(op.norm),
          .gain_centered = op.norm == HeadNorm::kGainCentered,
          .round_before = op.rounding == Rounding::kBeforeWeight,
          .round_between = op.rounding != Rounding::kOnlyAtEnd,
          .epsilon = op.epsilon,
          .query_scale = op.query_scale};
}

inline Rotation MakeRotation(const QkvPreparation& op, const QkvLaunch& launch) {
  if (op.rotary == nullptr) return {};
  return {.cos = launch.cos,
          .sin = launch.sin,
          .length = op.rotary->length(),
          .rotary_dim = static_cast<int>(op.rotary->rotary_dim()),
          .positions = launch.positions,
          .first_bad_token = reinterpret_cast<unsigned long long*>(launch.first_bad_token)};
}

inline Rope MakeRope(const QkvPreparation& op) {
  if (op.rotary == nullptr) return Rope::kNone;
  return op.rotary->pairing() == RotaryPairing::kHalf ? Rope::kHalf : Rope::kInterleaved;
}

// Whether the vector mapping can take this head, apart from the alignment of matrices.
inline bool FitsVectors(const QkvPreparation& op, const float* q_weight, const float* k_weight,
                        const QkvLaunch& launch) {
  const std::int64_t dim = op.layout.head_dim();
  if (dim != 64 && dim != 128) return false;
  for (const float* values : {q_weight, k_weight, launch.cos, launch.sin}) {
    if (reinterpret_cast<std::uintptr_t>(values) % 16 != 0) return false;
  }
  if (op.rotary == nullptr) return true;
  const std::int64_t rotary = op.rotary->rotary_dim();
  const std::int64_t multiple = op.rotary->pairing() == RotaryPairing::kHalf ? 16 : 8;
  return rotary > 0 && rotary % multiple == 0;
}

}  // namespace headwise::HW_CUDA_NAMESPACE

#endif  // HEADWISE_KERNELS_PREPARE_QKV_CUDA_LAUNCH_CUH_
