#include "kernels/prepare_qkv/gpu_layer.h"

#include <algorithm>

#include "core/base/status_macros.h"

namespace headwise {
namespace {

using Named = std::vector<std::pair<std::string, Tensor>>;

// Uniform in [-2, 2).
std::vector<BFloat16> RandomValues(std::int64_t size, std::uint32_t seed) {
  std::vector<BFloat16> values(size);
  std::uint32_t random = seed;
  for (BFloat16& x : values) {
    random = random * 1664525u + 1013904223u;
    x = RoundToBFloat16(static_cast<float>(static_cast<std::int32_t>(random)) * 0x1p-30f);
  }
  return values;
}

template <typename T>
absl::Status CopyOut(const char* name, const T* device, const Shape& shape, Named& named) {
  Tensor tensor = Tensor::Empty(shape, kDType<T>, Device::kCpu);
  HW_RETURN_IF_ERROR(CopyToHost(tensor.raw_data(), device, tensor.bytes()));
  named.emplace_back(name, std::move(tensor));
  return absl::OkStatus();
}

}  // namespace

std::int64_t GpuLayer::UnfusedForwardBytesPerToken(bool rope) {
  constexpr std::int64_t kSplit = 2 * kSlots * kDim * 2, kPass = 2 * (kHeads + kGroups) * kDim * 2;
  return kSplit + (rope ? 2 : 1) * kPass;  // norm, and RoPE
}

std::int64_t GpuLayer::UnfusedBackwardBytesPerToken(bool rope) {
  constexpr std::int64_t kConcat = 2 * kSlots * kDim * 2, kTensor = (kHeads + kGroups) * kDim * 2;
  return kConcat + (rope ? 2 : 0) * kTensor + 3 * kTensor;  // norm: x, g and dx
}

std::int64_t GpuLayer::BytesOfSet(std::int64_t tokens) {
  // packed, dpacked, outputs, gradients: 4 rows; the unfused tensors: 3 of q's and k's.
  const std::int64_t elements = tokens * kDim * (4 * kSlots + 3 * (kHeads + kGroups));
  const std::int64_t tiles = (tokens + kWeightGradientTile - 1) / kWeightGradientTile;
  const std::int64_t floats = tiles * kDim * (kHeads + 4 * kGroups) + 2 * kGroups * kDim;
  return 2 * elements + 4 * floats;
}

absl::StatusOr<GpuLayer> GpuLayer::Create(const Options& options) {
  GpuLayer layer;
  const std::int64_t tokens = options.tokens;
  layer.tokens_ = tokens;
  layer.rounding_ = options.rounding;
  if (options.rope) {
    HW_ASSIGN_OR_RETURN(RotaryTable table,
                        RotaryTable::Create({.length = kTableLength, .rotary_dim = kDim}));
    const std::size_t values = kTableLength * kDim / 2;
    HW_ASSIGN_OR_RETURN(layer.cos_, DeviceArray<float>::Of({table.Cos(0), values}));
    HW_ASSIGN_OR_RETURN(layer.sin_, DeviceArray<float>::Of({table.Sin(0), values}));
    layer.table_.push_back(std::move(table));
  }
  std::vector<std::int64_t> positions(tokens);
  for (std::int64_t t = 0; t < tokens; ++t) positions[t] = options.first_position + t;
  HW_ASSIGN_OR_RETURN(layer.positions_, DeviceArray<std::int64_t>::Of(positions));
  const std::uint64_t none = ~std::uint64_t{0};
  HW_ASSIGN_OR_RETURN(layer.first_bad_token_, DeviceArray<std::uint64_t>::Of({&none, 1}));
  std::vector<float> weight(kDim);
  for (std::int64_t d = 0; d < kDim; ++d) weight[d] = static_cast<float>(d % 7 - 3) / 16;
  HW_ASSIGN_OR_RETURN(layer.q_weight_, DeviceArray<float>::Of(weight));
  std::reverse(weight.begin(), weight.end());
  HW_ASSIGN_OR_RETURN(layer.k_weight_, DeviceArray<float>::Of(weight));

  const QkvPreparation op = layer.op();
  const std::int64_t row = kSlots * kDim;
  const std::vector<BFloat16> values = RandomValues(2 * tokens * row, 1);
  const absl::Span<const BFloat16> packed(values.data(), tokens * row);
  const absl::Span<const BFloat16> gradient(values.data() + tokens * row, tokens * row);
  for (int i = 0; i < options.sets; ++i) {
    Set set;
    HW_ASSIGN_OR_RETURN(set.packed, DeviceArray<BFloat16>::Of(packed));
    HW_ASSIGN_OR_RETURN(set.gradient, DeviceArray<BFloat16>::Of(gradient));
    HW_ASSIGN_OR_RETURN(set.dpacked, DeviceArray<BFloat16>::Allocate(tokens * row));
    HW_ASSIGN_OR_RETURN(set.out, DeviceArray<BFloat16>::Allocate(tokens * row));
    HW_ASSIGN_OR_RETURN(set.unfused, DeviceArray<BFloat16>::Allocate(UnfusedElements(op, tokens)));
    HW_ASSIGN_OR_RETURN(set.dq_weight, DeviceArray<float>::Allocate(kGroups * kDim));
    HW_ASSIGN_OR_RETURN(set.dk_weight, DeviceArray<float>::Allocate(kGroups * kDim));
    HW_ASSIGN_OR_RETURN(set.partials, DeviceArray<float>::Allocate(UnfusedPartials(op, tokens)));
    HW_ASSIGN_OR_RETURN(set.scratch,
                        DeviceArray<float>::Allocate(WeightGradientScratch(op, tokens)));
    layer.sets_.push_back(std::move(set));
  }
  return layer;
}

absl::Status GpuLayer::Forward(int set, CUstream_st* stream) const {
  const Set& s = sets_[set];
  return cuda::PrepareQkv<BFloat16>(op(), Inputs(s), Outputs(s), Launch(s, stream));
}

absl::Status GpuLayer::Backward(int set, CUstream_st* stream) const {
  const Set& s = sets_[set];
  return cuda::PrepareQkvBackward<BFloat16>(op(), Inputs(s), Gradients(s), PackedGradientsOf(s),
                                            Launch(s, stream));
}

absl::Status GpuLayer::ForwardUnfused(int set, CUstream_st* stream) const {
  const Set& s = sets_[set];
  return cuda::PrepareQkvUnfused<BFloat16>(op(), Inputs(s), Outputs(s), Workspace(s),
                                           Launch(s, stream));
}

absl::Status GpuLayer::BackwardUnfused(int set, CUstream_st* stream) const {
  const Set& s = sets_[set];
  return cuda::PrepareQkvBackwardUnfused<BFloat16>(
      op(), Inputs(s), Gradients(s), PackedGradientsOf(s), Workspace(s), Launch(s, stream));
}

absl::Status GpuLayer::CudaCopy(int set, CUstream_st* stream) const {
  return CopyOnDevice(sets_[set].dpacked.data(), sets_[set].packed.data(), CopiedBytes() / 2,
                      stream);
}

absl::Status GpuLayer::KernelCopy(int set, CUstream_st* stream) const {
  return cuda::CopyVectors(sets_[set].packed.data(), sets_[set].dpacked.data(), CopiedBytes() / 2,
                           stream);
}

absl::StatusOr<Named> GpuLayer::Download() const {
  const Set& set = sets_[0];
  const QkvOutputs<BFloat16> out = Outputs(set);
  const QkvGradients<BFloat16> d = Gradients(set);
  const Shape packed = {tokens_, kSlots * kDim}, q = {tokens_, kHeads, kDim},
              k = {tokens_, kGroups, kDim}, table = {kTableLength, kDim / 2};
  Named named;
  HW_RETURN_IF_ERROR(CopyOut("packed", set.packed.data(), packed, named));
  HW_RETURN_IF_ERROR(CopyOut("q_weight", q_weight_.data(), {kDim}, named));
  HW_RETURN_IF_ERROR(CopyOut("k_weight", k_weight_.data(), {kDim}, named));
  HW_RETURN_IF_ERROR(CopyOut("positions", positions_.data(), {tokens_}, named));
  if (!table_.empty()) {
    HW_RETURN_IF_ERROR(CopyOut("cos", cos_.data(), table, named));
    HW_RETURN_IF_ERROR(CopyOut("sin", sin_.data(), table, named));
  }
  HW_RETURN_IF_ERROR(CopyOut("q", out.q.data, q, named));
  HW_RETURN_IF_ERROR(CopyOut("k", out.k.data, k, named));
  HW_RETURN_IF_ERROR(CopyOut("v", out.v.data, k, named));
  HW_RETURN_IF_ERROR(CopyOut("dq", const_cast<BFloat16*>(d.dq.data), q, named));
  HW_RETURN_IF_ERROR(CopyOut("dk", const_cast<BFloat16*>(d.dk.data), k, named));
  HW_RETURN_IF_ERROR(CopyOut("dv", const_cast<BFloat16*>(d.dv.data), k, named));
  HW_RETURN_IF_ERROR(CopyOut("dpacked", set.dpacked.data(), packed, named));
  HW_RETURN_IF_ERROR(CopyOut("dq_weight_per_group", set.dq_weight.data(), {kGroups, kDim}, named));
  HW_RETURN_IF_ERROR(CopyOut("dk_weight_per_group", set.dk_weight.data(), {kGroups, kDim}, named));
  return named;
}

QkvPreparation GpuLayer::op() const {
  return {.layout = *PackedQkv::Interleaved(
              {.query_heads = kHeads, .kv_heads = kGroups, .head_dim = kDim}),
          .norm = HeadNorm::kGainCentered,
          .rotary = table_.empty() ? nullptr : table_.data(),
          .rounding = rounding_};
}

QkvInputs<BFloat16> GpuLayer::Inputs(const Set& set) const {
  return {RowSpan<const BFloat16>(set.packed.data(), tokens_, kSlots * kDim), q_weight_.span(),
          k_weight_.span()};
}

// q, then k, then v.
QkvOutputs<BFloat16> GpuLayer::Outputs(const Set& set) const {
  BFloat16* const k = set.out.data() + tokens_ * kHeads * kDim;
  return {RowSpan<BFloat16>(set.out.data(), tokens_, kHeads * kDim),
          RowSpan<BFloat16>(k, tokens_, kGroups * kDim),
          RowSpan<BFloat16>(k + tokens_ * kGroups * kDim, tokens_, kGroups * kDim)};
}

QkvGradients<BFloat16> GpuLayer::Gradients(const Set& set) const {
  const BFloat16* const k = set.gradient.data() + tokens_ * kHeads * kDim;
  return {RowSpan<const BFloat16>(set.gradient.data(), tokens_, kHeads * kDim),
          RowSpan<const BFloat16>(k, tokens_, kGroups * kDim),
          RowSpan<const BFloat16>(k + tokens_ * kGroups * kDim, tokens_, kGroups * kDim)};
}

PackedGradients<BFloat16> GpuLayer::PackedGradientsOf(const Set& set) const {
  return {RowSpan<BFloat16>(set.dpacked.data(), tokens_, kSlots * kDim),
          RowSpan<float>(set.dq_weight.data(), kGroups, kDim),
          RowSpan<float>(set.dk_weight.data(), kGroups, kDim)};
}

UnfusedWorkspace<BFloat16> GpuLayer::Workspace(const Set& set) const {
  return MakeUnfusedWorkspace(op(), tokens_, set.unfused.data(), set.partials.data());
}

QkvLaunch GpuLayer::Launch(const Set& set, CUstream_st* stream) const {
  return {.stream = stream,
          .cos = cos_.data(),
          .sin = sin_.data(),
          .positions = positions_.data(),
          .first_bad_token = first_bad_token_.data(),
          .weight_gradient_scratch = set.scratch.data()};
}

}  // namespace headwise
