// One attention layer's prepare_qkv on a GPU, for the benchmark: Muse geometry (16 kv groups of 8
// query heads, a key and a value, head_dim 64), bf16, gain-centred head norms, RoPE by halves or
// NoPE. Inputs are random; there are several sets of all activations, to be used in rotation.
#ifndef HEADWISE_KERNELS_PREPARE_QKV_GPU_LAYER_H_
#define HEADWISE_KERNELS_PREPARE_QKV_GPU_LAYER_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/cuda/device_memory.h"
#include "core/dtype/bf16.h"
#include "core/rope/rotary_table.h"
#include "core/tensor/tensor.h"
#include "kernels/prepare_qkv/contract.h"
#include "kernels/prepare_qkv/cuda.h"
#include "kernels/prepare_qkv/cuda_unfused.h"

namespace headwise {

class GpuLayer {
 public:
  static constexpr std::int64_t kGroups = 16, kGroupSize = 8, kHeads = kGroups * kGroupSize;
  static constexpr std::int64_t kDim = 64, kSlots = kHeads + 2 * kGroups;
  static constexpr std::int64_t kTableLength = 32768;

  // What the fused kernels must read and write once, apart from weights, table and positions.
  // Backward does not read v from `packed`.
  static constexpr std::int64_t kForwardBytesPerToken = 2 * kSlots * kDim * 2;
  static constexpr std::int64_t kBackwardBytesPerToken = (3 * kSlots - kGroups) * kDim * 2;
  // What the unfused kernels read and write, with RoPE and without.
  static std::int64_t UnfusedForwardBytesPerToken(bool rope);
  static std::int64_t UnfusedBackwardBytesPerToken(bool rope);
  // Device memory of one set.
  static std::int64_t BytesOfSet(std::int64_t tokens);

  struct Options {
    bool rope = true;
    Rounding rounding = Rounding::kAfterWeight;
    std::int64_t tokens = 0;
    std::int64_t first_position = 0;  // positions ascend from it
    int sets = 1;
  };
  static absl::StatusOr<GpuLayer> Create(const Options& options);

  // Each enqueues one pass on the buffers of one set. The unfused backward needs an unfused forward
  // of the set before it, once.
  absl::Status Forward(int set, CUstream_st* stream) const;
  absl::Status Backward(int set, CUstream_st* stream) const;
  absl::Status ForwardUnfused(int set, CUstream_st* stream) const;
  absl::Status BackwardUnfused(int set, CUstream_st* stream) const;
  // Copies as many bytes as `packed` has, by CUDA's copy or by a plain kernel.
  absl::Status CudaCopy(int set, CUstream_st* stream) const;
  absl::Status KernelCopy(int set, CUstream_st* stream) const;
  std::int64_t CopiedBytes() const { return 2 * tokens_ * kSlots * kDim * 2; }  // read and written

  // Waits. Inputs, outputs and gradients of set 0 in host memory, by name: packed, q_weight,
  // k_weight, positions, cos, sin, q, k, v, dq, dk, dv, dpacked, and the weight gradients per group.
  // After Forward and Backward of that set.
  absl::StatusOr<std::vector<std::pair<std::string, Tensor>>> Download() const;

 private:
  // Rows of elements one behind the other.
  struct Set {
    DeviceArray<BFloat16> packed, dpacked, out, gradient, unfused;
    DeviceArray<float> dq_weight, dk_weight, partials, scratch;
  };

  GpuLayer() = default;
  QkvPreparation op() const;
  QkvInputs<BFloat16> Inputs(const Set& set) const;
  QkvOutputs<BFloat16> Outputs(const Set& set) const;
  QkvGradients<BFloat16> Gradients(const Set& set) const;
  PackedGradients<BFloat16> PackedGradientsOf(const Set& set) const;
  UnfusedWorkspace<BFloat16> Workspace(const Set& set) const;
  QkvLaunch Launch(const Set& set, CUstream_st* stream) const;

  std::int64_t tokens_ = 0;
  Rounding rounding_ = Rounding::kAfterWeight;
  std::vector<RotaryTable> table_;  // one, or none: NoPE
  DeviceArray<float> cos_, sin_, q_weight_, k_weight_;
  DeviceArray<std::int64_t> positions_;
  DeviceArray<std::uint64_t> first_bad_token_;
  std::vector<Set> sets_;
};

}  // namespace headwise

#endif  // HEADWISE_KERNELS_PREPARE_QKV_GPU_LAYER_H_
