#include "model/bench/operands.h"

#include <cstring>
#include <utility>

#include "core/base/status_macros.h"
#include "model/config.h"
#include "model/qkv_preparation.h"

namespace headwise {
namespace {

constexpr std::int64_t kSegmentWords = sizeof(AttentionSegment) / sizeof(std::int64_t);
static_assert(sizeof(AttentionSegment) == kSegmentWords * sizeof(std::int64_t));

}  // namespace

absl::StatusOr<std::shared_ptr<QkvOperands>> MakeQkv(BenchDevice& device, const OpContext& ctx,
                                                     const RunConfig& config, std::int64_t tokens) {
  const AttentionConfig& a = config.model().attention();
  const std::int64_t length = std::min(tokens, config.training().sequence_length());
  auto operands = std::make_shared<QkvOperands>();
  HW_ASSIGN_OR_RETURN(operands->table,
                      RotaryTable::Create({.length = length,
                                           .rotary_dim = a.rope().rotary_dim(),
                                           .theta = a.rope().theta(),
                                           .pairing = a.rope().pairing() == INTERLEAVED
                                                          ? RotaryPairing::kInterleaved
                                                          : RotaryPairing::kHalf}));
  std::vector<std::int64_t> positions;
  for (std::int64_t t = 0; t < tokens; ++t) positions.push_back(t % length);
  operands->positions = OnDevice(device, positions.data(), tokens);
  const std::int64_t angles = length * operands->table->rotary_dim() / 2;
  operands->cos = OnDevice(device, operands->table->Cos(0), angles);
  operands->sin = OnDevice(device, operands->table->Sin(0), angles);
  HW_ASSIGN_OR_RETURN(const PackedQkv layout, QkvLayout(a));
  operands->op = QkvPreparationOf(config.model(), 0, nullptr);
  operands->op->rotary = &*operands->table;
  const std::int64_t q = layout.query_heads() * layout.head_dim();
  const std::int64_t kv = layout.kv_heads() * layout.head_dim();
  operands->packed = device.Random({tokens, layout.row_width()}, ctx.compute);
  operands->gradients = {.q = device.Random({tokens, q}, ctx.compute),
                         .k = device.Random({tokens, kv}, ctx.compute),
                         .v = device.Random({tokens, kv}, ctx.compute)};
  if (HasWeight(operands->op->norm)) {
    const Shape per_group = {layout.kv_heads(), layout.head_dim()};
    operands->q_weight = device.Random({layout.head_dim()}, DType::kF32);
    operands->k_weight = device.Random({layout.head_dim()}, DType::kF32);
    operands->dq_weight = device.Zeros(per_group, DType::kF32);
    operands->dk_weight = device.Zeros(per_group, DType::kF32);
  }
  return operands;
}

std::vector<AttentionSegment> Segments(std::int64_t tokens, std::int64_t length) {
  std::vector<AttentionSegment> segments;
  for (std::int64_t begin = 0; begin < tokens; begin += length) {
    const std::int64_t count = std::min(length, tokens - begin);
    segments.push_back(
        {.query_begin = begin, .num_queries = count, .key_begin = begin, .num_keys = count});
  }
  return segments;
}

Tensor OnDevice(BenchDevice& device, const std::vector<AttentionSegment>& segments) {
  const auto count = static_cast<std::int64_t>(segments.size());
  const Tensor host = Tensor::Empty({count, kSegmentWords}, DType::kI64, Device::kCpu);
  std::memcpy(host.raw_data(), segments.data(), static_cast<std::size_t>(host.bytes()));
  return device.ToDevice(host);
}
absl::Span<const AttentionSegment> SegmentsOf(const Tensor& words) {
  return {static_cast<const AttentionSegment*>(words.raw_data()),
          static_cast<std::size_t>(words.dim(0))};
}

ops::ExpertRows OnDevice(BenchDevice& device, ops::ExpertRows rows) {
  rows.offsets_on_gpu =
      OnDevice(device, rows.offsets.data(), static_cast<std::int64_t>(rows.offsets.size()));
  return rows;
}

std::function<void()> Restore(const OpContext& ctx, const std::vector<Tensor>& tensors) {
  std::vector<Tensor> values;
  values.reserve(tensors.size());
  for (const Tensor& t : tensors) {
    values.push_back(ctx.Empty(t.shape(), t.dtype()));
    ops::CopyRows(ctx, t, 0, values.back(), 0, t.dim(0));
  }
  return [=] {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      ops::CopyRows(ctx, values[i], 0, tensors[i], 0, tensors[i].dim(0));
    }
  };
}

}  // namespace headwise
