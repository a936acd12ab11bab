// prepare_qkv on NVIDIA GPUs as the separate kernels that it fuses, plainly written: split, head
// norm, RoPE, and the concatenation of the packed gradient, each one pass over memory in 16-byte
// vectors. What the fused kernels are measured against and compared with: the same bits, and no line
// of device code in common. A decoder runs them with attention.unfused_qkv.
//
//   forward    split; norm of q, of k, with the query scale; RoPE of q, of k
//   backward   RoPE of dq, of dk; norm of q, of k; concatenation; with norm weights three more that
//              sum their gradients
//
// The backward reads the split q and k of the workspace: the forward's, or SplitQkvUnfused's.
//
// Less than the contract allows; kUnimplemented otherwise:
//
//   CheckUnfused()   D 64 or 128, a norm, Rounding::kAfterWeight, RoPE by halves over the whole head
//                    or NoPE; any query scale
//   memory           contiguous rows; rows, weights and rotary table start on multiples of 16 bytes
//
// T = 0 launches nothing, except that weight gradients become +0.
//
// Arguments are otherwise PrepareQkv's and PrepareQkvBackward's of cuda.h, with positions in device
// memory, and not validated. A position outside of the table is noted in first_bad_token, as there;
// what is written for such a token, and the weight gradients, are then unspecified.
#ifndef HEADWISE_KERNELS_PREPARE_QKV_CUDA_UNFUSED_H_
#define HEADWISE_KERNELS_PREPARE_QKV_CUDA_UNFUSED_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/prepare_qkv/contract.h"
#include "kernels/prepare_qkv/cuda.h"

namespace headwise {

// The tensors between the kernels, in device memory, aligned to 16 bytes. T tokens.
template <typename T>
struct UnfusedWorkspace {
  T* q;             // [T, H D]: split by the forward, read by the backward
  T* k;             // [T, G D]
  T* q_norm;        // [T, H D]: between norm and RoPE, and on the way back
  T* k_norm;        // [T, G D]
  T* dq;            // [T, H D]: gradients of the split q and k; backward only
  T* dk;            // [T, G D]
  float* partials;  // UnfusedPartials() floats; backward with norm weights only
};

// OK if the kernels take `op`; else kUnimplemented, by what they do not take.
absl::Status CheckUnfused(const QkvPreparation& op);

// Elements of all those tensors together, and partial gradients of the norm weights: of each head
// and of each kv group in every tile of tokens.
std::int64_t UnfusedElements(const QkvPreparation& op, std::int64_t tokens);
std::int64_t UnfusedPartials(const QkvPreparation& op, std::int64_t tokens);

// The tensors one behind the other in `elements`.
template <typename T>
UnfusedWorkspace<T> MakeUnfusedWorkspace(const QkvPreparation& op, std::int64_t tokens, T* elements,
                                         float* partials) {
  const std::int64_t q = tokens * op.layout.query_heads() * op.layout.head_dim();
  const std::int64_t k = tokens * op.layout.kv_heads() * op.layout.head_dim();
  T* const ks = elements + 3 * q;
  return {.q = elements,
          .k = ks,
          .q_norm = elements + q,
          .k_norm = ks + k,
          .dq = elements + 2 * q,
          .dk = ks + 2 * k,
          .partials = partials};
}

#define HW_DECLARE_UNFUSED                                                                       \
  template <typename T>                                                                          \
  absl::Status PrepareQkvUnfused(const QkvPreparation& op, const QkvInputs<T>& in,               \
                                 const QkvOutputs<T>& out, const UnfusedWorkspace<T>& workspace, \
                                 const QkvLaunch& launch);                                       \
  template <typename T>                                                                          \
  absl::Status PrepareQkvBackwardUnfused(                                                        \
      const QkvPreparation& op, const QkvInputs<T>& in, const QkvGradients<T>& gradients,        \
      const PackedGradients<T>& out, const UnfusedWorkspace<T>& workspace,                       \
      const QkvLaunch& launch);                                                                  \
  /* q and k of the workspace, as the forward leaves them there. */                              \
  template <typename T>                                                                          \
  absl::Status SplitQkvUnfused(const QkvPreparation& op, const QkvInputs<T>& in,                 \
                               const UnfusedWorkspace<T>& workspace, const QkvLaunch& launch);   \
  /* A copy of a multiple of 16 bytes between multiples of 16: the benchmark's ceiling. */       \
  absl::Status CopyVectors(const void* from, void* to, std::int64_t bytes, CUstream_st* stream);
namespace cuda {
HW_DECLARE_UNFUSED
}  // namespace cuda
namespace cuda_emulated {
HW_DECLARE_UNFUSED
}  // namespace cuda_emulated
#undef HW_DECLARE_UNFUSED

}  // namespace headwise

#endif  // HEADWISE_KERNELS_PREPARE_QKV_CUDA_UNFUSED_H_
