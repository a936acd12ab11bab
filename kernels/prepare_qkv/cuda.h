// prepare_qkv on NVIDIA GPUs: launchers of the CUDA kernels, in two builds of the same .cu text.
//
//   headwise::cuda            by nvcc, for the GPU (//kernels/prepare_qkv:cuda)
//   headwise::cuda_emulated   by the host compiler, on the CPU (//kernels/prepare_qkv:cuda_emulated)
//
// Both return the bits of the reference (docs/numerics.md). Forward is one launch; backward one,
// and with norm weights a second that sums their gradients over token tiles. A launcher checks its
// arguments, enqueues on `stream` and returns; it never allocates and never waits, so that a launch
// can be captured in a CUDA graph. T = 0 launches nothing, except that weight gradients become +0.
//
// Two mappings. Heads of 64 and 128 elements whose addresses and strides are multiples of 16 bytes
// move in 16-byte vectors, both elements of a rotary pair in one lane (R a multiple of 16 with
// kHalf, of 8 with kInterleaved). Any other even D, alignment and R takes the mapping of one warp a
// head, staged through shared memory. Which one runs shows in no bit.
//
// Example (positions already on the GPU; `bad_token` was set to all ones):
//
//   const QkvLaunch launch = {.stream = stream, .cos = cos, .sin = sin, .positions = positions,
//                             .first_bad_token = bad_token};
//   HW_RETURN_IF_ERROR(cuda::PrepareQkv<BFloat16>(op, {packed, q_weight, k_weight}, {q, k, v},
//                                                 launch));
//
// No CUDA header is included here.
#ifndef HEADWISE_KERNELS_PREPARE_QKV_CUDA_H_
#define HEADWISE_KERNELS_PREPARE_QKV_CUDA_H_

#include <cstdint>

#include "absl/status/status.h"
#include "core/tensor/row_span.h"
#include "kernels/prepare_qkv/contract.h"

struct CUstream_st;

namespace headwise {

// What a launch needs besides the arguments of the contract. All memory is device memory, owned by
// the caller and left alone until the stream has passed the launch. What is written (positions that
// are copied, first_bad_token, scratch) overlaps nothing else; of the scratch that is checked.
struct QkvLaunch {
  CUstream_st* stream = nullptr;  // a cudaStream_t

  // The values of op.rotary, row-major [length, R/2]; required with RoPE and R > 0.
  const float* cos = nullptr;
  const float* sin = nullptr;

  // [T]; required with RoPE. If QkvInputs::positions are given (host memory), they are checked
  // before the launch and then copied here on the stream: keep them until the stream has passed,
  // and in pinned memory if the call must not wait for the copy. If they are empty, positions are
  // read from here.
  std::int64_t* positions = nullptr;
  // Required where positions are read from device memory. Nothing is written for a token whose
  // position is outside the table, and the smallest such token is kept here (atomic minimum); set
  // it to all ones beforehand, and read it at your next synchronisation: still all ones (-1) means
  // that every position had a row. The weight gradients leave such tokens out.
  std::uint64_t* first_bad_token = nullptr;

  // Backward with norm weights: WeightGradientScratch() floats, contents irrelevant.
  float* weight_gradient_scratch = nullptr;
};

// Floats of scratch that the backward of `tokens` tokens needs: one partial per (tile of 64 tokens,
// kv group, q or k, element) with norm weights, else none.
std::int64_t WeightGradientScratch(const QkvPreparation& op, std::int64_t tokens);

// T is float or BFloat16. Every pointer but QkvInputs::positions and op.rotary is device memory.
//
// PrepareQkv, PrepareQkvBackward: as the functions of these names in prepare_qkv.h, with their
// errors; besides, kInvalidArgument for a missing member of `launch` or a grid of more than 2^31 - 1
// blocks, and kInternal with CUDA's message if the launch fails.
//
// ReduceHeadNormGradient: out [D] = adjacent-pair tree over the kv groups of per_group [G, D].
#define HW_DECLARE_LAUNCHERS                                                                       \
  template <typename T>                                                                            \
  absl::Status PrepareQkv(const QkvPreparation& op, const QkvInputs<T>& in,                        \
                          const QkvOutputs<T>& out, const QkvLaunch& launch);                      \
  template <typename T>                                                                            \
  absl::Status PrepareQkvBackward(const QkvPreparation& op, const QkvInputs<T>& in,                \
                                  const QkvGradients<T>& gradients, const PackedGradients<T>& out, \
                                  const QkvLaunch& launch);                                        \
  absl::Status ReduceHeadNormGradient(RowSpan<const float> per_group, absl::Span<float> out,       \
                                      CUstream_st* stream);
namespace cuda {
HW_DECLARE_LAUNCHERS
}  // namespace cuda
namespace cuda_emulated {
HW_DECLARE_LAUNCHERS
}  // namespace cuda_emulated
#undef HW_DECLARE_LAUNCHERS

}  // namespace headwise

#endif  // HEADWISE_KERNELS_PREPARE_QKV_CUDA_H_
