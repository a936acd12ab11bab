// Launcher of the forward.
#include <cstdint>

#include "core/base/status_macros.h"
#include "kernels/emulation/cuda_kernel.h"
#include "kernels/prepare_qkv/cuda.h"
#include "kernels/prepare_qkv/cuda/forward_any.cuh"
#include "kernels/prepare_qkv/cuda/forward_vector.cuh"
#include "kernels/prepare_qkv/cuda/launch.cuh"
#include "kernels/prepare_qkv/validate.h"

namespace headwise::HW_CUDA_NAMESPACE {
namespace {

template <typename T, int kDim>
absl::Status LaunchVector(Rope rope, ForwardArguments<T> a, const QkvLaunch& launch) {
  constexpr int kPerWarp = kForwardHeadsPerWarp<T, kDim>;
  a.warps_per_token = (a.heads_per_token + kPerWarp - 1) / kPerWarp;
  std::int64_t blocks;
  HW_RETURN_IF_ERROR(
      CheckBlocks("packed", "tokens", a.tokens, a.warps_per_token, kForwardThreads / 32, blocks));
  const dim3 grid(static_cast<unsigned>(blocks));
  switch (rope) {
    case Rope::kNone:
      HW_LAUNCH((PrepareQkvForwardVector<T, kDim, Rope::kNone>), grid, kForwardThreads, 0,
                launch.stream, a);
      break;
    case Rope::kHalf:
      HW_LAUNCH((PrepareQkvForwardVector<T, kDim, Rope::kHalf>), grid, kForwardThreads, 0,
                launch.stream, a);
      break;
    case Rope::kInterleaved:
      HW_LAUNCH((PrepareQkvForwardVector<T, kDim, Rope::kInterleaved>), grid, kForwardThreads, 0,
                launch.stream, a);
      break;
  }
  return LaunchStatus("PrepareQkvForwardVector");
}

template <typename T>
absl::Status LaunchAny(Rope rope, const ForwardArguments<T>& a, const QkvLaunch& launch) {
  std::int64_t blocks;
  HW_RETURN_IF_ERROR(CheckBlocks("packed", "tokens", a.tokens, a.heads_per_token,
                                 kAnyForwardThreads / 32, blocks));
  const int shared =
      kAnyForwardThreads / 32 * PaddedLength(a.heads.head_dim) * static_cast<int>(sizeof(float));
  HW_LAUNCH((PrepareQkvForwardAny<T>), dim3(static_cast<unsigned>(blocks)), kAnyForwardThreads,
            shared, launch.stream, a, rope);
  return LaunchStatus("PrepareQkvForwardAny");
}

}  // namespace

template <typename T>
absl::Status PrepareQkv(const QkvPreparation& op, const QkvInputs<T>& in, const QkvOutputs<T>& out,
                        const QkvLaunch& launch) {
  const PositionsIn positions = WherePositionsAre(op, in);
  HW_RETURN_IF_ERROR(ValidateForward(op, in, out, positions));
  HW_RETURN_IF_ERROR(CheckLaunch(op, in.packed.rows, positions, launch));
  if (in.packed.rows == 0) return absl::OkStatus();
  HW_RETURN_IF_ERROR(CopyPositions(op, in, launch));

  const PackedQkv& layout = op.layout;
  const bool writes_v = out.v.data != nullptr;
  ForwardArguments<T> a = {
      .packed = MakeRows(in.packed),
      .q = MakeRows(out.q),
      .k = MakeRows(out.k),
      .v = MakeRows(out.v),
      .q_weight = in.q_weight.data(),
      .k_weight = in.k_weight.data(),
      .tokens = in.packed.rows,
      .heads = MakeHeads(layout),
      .maths = MakeMaths(op),
      .rotation = MakeRotation(op, launch),
      .heads_per_token = static_cast<int>(layout.slots() - (writes_v ? 0 : layout.kv_heads())),
      .heads_per_group = static_cast<int>(layout.group_size() + (writes_v ? 2 : 1))};
  a.group_reciprocal = Reciprocal(a.heads_per_group);
  const auto aligned = [&](int bytes) {
    return AlignedTo(bytes, in.packed) && AlignedTo(bytes, out.q) && AlignedTo(bytes, out.k) &&
           (!writes_v || AlignedTo(bytes, out.v));
  };
  a.paired = aligned(2 * sizeof(T));
  if (!aligned(16) || !FitsVectors(op, a.q_weight, a.k_weight, launch)) {
    return LaunchAny(MakeRope(op), a, launch);
  }
  return layout.head_dim() == 64 ? LaunchVector<T, 64>(MakeRope(op), a, launch)
                                 : LaunchVector<T, 128>(MakeRope(op), a, launch);
}

template absl::Status PrepareQkv(const QkvPreparation&, const QkvInputs<float>&,
                                 const QkvOutputs<float>&, const QkvLaunch&);
template absl::Status PrepareQkv(const QkvPreparation&, const QkvInputs<BFloat16>&,
                                 const QkvOutputs<BFloat16>&, const QkvLaunch&);

}  // namespace headwise::HW_CUDA_NAMESPACE
