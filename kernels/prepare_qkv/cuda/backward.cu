// Launchers of the backward and of the sums of its weight gradients.
#include <algorithm>
#include <cstdint>
#include <numeric>

#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "core/base/status_macros.h"
#include "kernels/common/cuda/rows.cuh"
#include "kernels/common/cuda/sum_columns.h"
#include "kernels/emulation/cuda_kernel.h"
#include "kernels/prepare_qkv/cuda.h"
#include "kernels/prepare_qkv/cuda/backward_any.cuh"
#include "kernels/prepare_qkv/cuda/backward_vector.cuh"
#include "kernels/prepare_qkv/cuda/launch.cuh"
#include "kernels/prepare_qkv/validate.h"

namespace headwise::HW_CUDA_NAMESPACE {
namespace {

// Kv groups of a block: few enough that the block's heads fit its threads, enough that these are
// whole warps, or at least a hundred.
int GroupsPerBlock(int lanes_per_group, int kv_heads) {
  const int whole_warps = 32 / std::gcd(lanes_per_group, 32);
  const int most = std::min(kv_heads, kBackwardThreads / lanes_per_group);
  const int wanted =
      lanes_per_group * whole_warps >= 96 ? whole_warps : (127 + lanes_per_group) / lanes_per_group;
  return std::clamp(wanted, 1, most);
}

template <typename T, int kDim>
absl::Status LaunchVector(Rope rope, BackwardArguments<T> a, std::int64_t tiles,
                          const QkvLaunch& launch) {
  const int lanes_per_group = (a.heads.group_size + 2) * (kDim / 16);
  a.groups_per_block = GroupsPerBlock(lanes_per_group, a.heads.kv_heads);
  a.blocks_per_tile = (a.heads.kv_heads + a.groups_per_block - 1) / a.groups_per_block;
  std::int64_t blocks;
  HW_RETURN_IF_ERROR(CheckBlocks("packed", "tiles of tokens", tiles, a.blocks_per_tile, 1, blocks));
  const dim3 grid(static_cast<unsigned>(blocks));
  const dim3 block((a.groups_per_block * lanes_per_group + 31) / 32 * 32);
  switch (rope) {
    case Rope::kNone:
      HW_LAUNCH((PrepareQkvBackwardVector<T, kDim, Rope::kNone>), grid, block,
                kBackwardSharedBytes<kDim>, launch.stream, a);
      break;
    case Rope::kHalf:
      HW_LAUNCH((PrepareQkvBackwardVector<T, kDim, Rope::kHalf>), grid, block,
                kBackwardSharedBytes<kDim>, launch.stream, a);
      break;
    case Rope::kInterleaved:
      HW_LAUNCH((PrepareQkvBackwardVector<T, kDim, Rope::kInterleaved>), grid, block,
                kBackwardSharedBytes<kDim>, launch.stream, a);
      break;
  }
  return LaunchStatus("PrepareQkvBackwardVector");
}

template <typename T, int kPairs>
absl::Status LaunchAny(Rope rope, const BackwardArguments<T>& a, std::int64_t tiles,
                       const QkvLaunch& launch) {
  std::int64_t blocks;
  HW_RETURN_IF_ERROR(CheckBlocks("packed", "tiles of tokens", tiles, a.heads.kv_heads, 1, blocks));
  const int shared = AnyBackwardSharedFloats(a.heads.head_dim) * static_cast<int>(sizeof(float));
  HW_RETURN_IF_ERROR(AllowSharedMemory("prepare_qkv", PrepareQkvBackwardAny<T, kPairs>, shared));
  HW_LAUNCH((PrepareQkvBackwardAny<T, kPairs>), dim3(static_cast<unsigned>(blocks)),
            kAnyBackwardThreads, shared, launch.stream, a, rope);
  return LaunchStatus("PrepareQkvBackwardAny");
}

template <typename T>
absl::Status LaunchBackward(const QkvPreparation& op, BackwardArguments<T> a, bool aligned,
                            const QkvLaunch& launch) {
  const std::int64_t tiles = (a.tokens + kWeightGradientTile - 1) / kWeightGradientTile;
  const Rope rope = MakeRope(op);
  const int dim = a.heads.head_dim;
  if (aligned && FitsVectors(op, a.q_weight, a.k_weight, launch) &&
      (a.heads.group_size + 2) * (dim / 16) <= kBackwardThreads) {
    return dim == 64 ? LaunchVector<T, 64>(rope, a, tiles, launch)
                     : LaunchVector<T, 128>(rope, a, tiles, launch);
  }
  if (dim <= 64) return LaunchAny<T, 1>(rope, a, tiles, launch);
  if (dim <= 128) return LaunchAny<T, 2>(rope, a, tiles, launch);
  if (dim <= 256) return LaunchAny<T, 4>(rope, a, tiles, launch);
  return LaunchAny<T, 8>(rope, a, tiles, launch);
}

}  // namespace

template <typename T>
absl::Status PrepareQkvBackward(const QkvPreparation& op, const QkvInputs<T>& in,
                                const QkvGradients<T>& gradients, const PackedGradients<T>& out,
                                const QkvLaunch& launch) {
  const PositionsIn positions = WherePositionsAre(op, in);
  HW_RETURN_IF_ERROR(ValidateBackward(op, in, gradients, out, positions));
  HW_RETURN_IF_ERROR(CheckLaunch(op, in.packed.rows, positions, launch));
  const PackedQkv& layout = op.layout;
  const std::int64_t tokens = in.packed.rows;
  if (HasWeight(op.norm) && layout.group_size() > kMaxGroupSize) {
    return absl::InvalidArgumentError(
        absl::StrFormat("layout: found %d query heads a kv group, expected at most %d on CUDA",
                        layout.group_size(), kMaxGroupSize));
  }
  if (HasWeight(op.norm) && tokens > 0 && launch.weight_gradient_scratch == nullptr) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "launch.weight_gradient_scratch: found a null pointer, expected device memory for %d "
        "floats (WeightGradientScratch)",
        WeightGradientScratch(op, tokens)));
  }
  HW_RETURN_IF_ERROR(ValidateScratch(
      absl::MakeConstSpan(launch.weight_gradient_scratch,
                          static_cast<std::size_t>(WeightGradientScratch(op, tokens))),
      in, gradients, out));
  if (tokens > 0) {
    HW_RETURN_IF_ERROR(CopyPositions(op, in, launch));
    BackwardArguments<T> a = {.packed = MakeRows(in.packed),
                              .dq = MakeRows(gradients.dq),
                              .dk = MakeRows(gradients.dk),
                              .dv = MakeRows(gradients.dv),
                              .dpacked = MakeRows(out.dpacked),
                              .q_weight = in.q_weight.data(),
                              .k_weight = in.k_weight.data(),
                              .weight_partials = launch.weight_gradient_scratch,
                              .tokens = tokens,
                              .heads = MakeHeads(layout),
                              .maths = MakeMaths(op),
                              .rotation = MakeRotation(op, launch)};
    const auto aligned = [&](int bytes) {
      return AlignedTo(bytes, in.packed) && AlignedTo(bytes, gradients.dq) &&
             AlignedTo(bytes, gradients.dk) && AlignedTo(bytes, gradients.dv) &&
             AlignedTo(bytes, out.dpacked);
    };
    a.paired = aligned(2 * sizeof(T));
    HW_RETURN_IF_ERROR(LaunchBackward(op, a, aligned(16), launch));
  }
  if (!HasWeight(op.norm)) return absl::OkStatus();

  const RowSpan<const float> partials(launch.weight_gradient_scratch,
                                      (tokens + kWeightGradientTile - 1) / kWeightGradientTile,
                                      2 * layout.kv_heads() * layout.head_dim());
  return SumColumns(partials, out.dq_weight_per_group, out.dk_weight_per_group, launch.stream);
}

absl::Status ReduceHeadNormGradient(RowSpan<const float> per_group, absl::Span<float> out,
                                    CUstream_st* stream) {
  if (static_cast<std::int64_t>(out.size()) != per_group.width) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "out: found %d values, expected per_group's width %d", out.size(), per_group.width));
  }
  if (out.empty()) return absl::OkStatus();
  if (out.data() == nullptr || (per_group.rows > 0 && per_group.data == nullptr)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: found a null pointer, expected device memory",
                        out.data() == nullptr ? "out" : "per_group"));
  }
  if (per_group.rows < 0 || (per_group.rows > 1 && per_group.stride < per_group.width)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("per_group: found %d rows of stride %d, expected G >= 0 of at least its "
                        "width %d",
                        per_group.rows, per_group.stride, per_group.width));
  }
  return SumColumns(per_group, RowSpan<float>(out.data(), 1, per_group.width), {}, stream);
}

template absl::Status PrepareQkvBackward(const QkvPreparation&, const QkvInputs<float>&,
                                         const QkvGradients<float>&, const PackedGradients<float>&,
                                         const QkvLaunch&);
template absl::Status PrepareQkvBackward(const QkvPreparation&, const QkvInputs<BFloat16>&,
                                         const QkvGradients<BFloat16>&,
                                         const PackedGradients<BFloat16>&, const QkvLaunch&);

}  // namespace headwise::HW_CUDA_NAMESPACE
