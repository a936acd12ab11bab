// operands: what kernel_cases.cc times kernels on, in a device's memory.
#ifndef HEADWISE_MODEL_BENCH_OPERANDS_H_
#define HEADWISE_MODEL_BENCH_OPERANDS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/proto/config.pb.h"
#include "core/rope/rotary_table.h"
#include "core/tensor/tensor.h"
#include "kernels/attention/attention.h"
#include "model/bench/device.h"
#include "model/ops.h"

namespace headwise {

// Numbers where kernels read them: [count] of the tensor's type.
template <typename T>
Tensor OnDevice(BenchDevice& device, const T* values, std::int64_t count) {
  const Tensor host = Tensor::Empty({count}, kDType<T>, Device::kCpu);
  std::copy_n(values, count, host.data<T>());
  return device.ToDevice(host);
}

template <typename T>
absl::Span<const T> SpanOf(const Tensor& tensor) {
  return {tensor.data<T>(), static_cast<std::size_t>(tensor.size())};
}

// What prepare_qkv needs, of the configuration alone.
struct QkvOperands {
  std::optional<RotaryTable> table;
  Tensor positions, cos, sin;  // on the device
  std::optional<QkvPreparation> op;
  Tensor packed, q_weight, k_weight, dq_weight, dk_weight;
  ops::Qkv gradients;

  OpContext context(OpContext ctx) const {
    ctx.rotary = {.cos = cos.data<float>(), .sin = sin.data<float>()};
    return ctx;
  }
  ops::QkvArguments arguments(bool unfused) const {
    return {.op = *op,
            .q_weight = q_weight,
            .k_weight = k_weight,
            .positions = {.values = SpanOf<std::int64_t>(positions)},
            .unfused = unfused};
  }
};

// Of a layer with RoPE.
absl::StatusOr<std::shared_ptr<QkvOperands>> MakeQkv(BenchDevice& device, const OpContext& ctx,
                                                     const RunConfig& config, std::int64_t tokens);

// Of sequences of a length, the last one what is left.
std::vector<AttentionSegment> Segments(std::int64_t tokens, std::int64_t length);
Tensor OnDevice(BenchDevice& device, const std::vector<AttentionSegment>& segments);
// Those in device memory.
absl::Span<const AttentionSegment> SegmentsOf(const Tensor& words);

// With the offsets where kernels read them.
ops::ExpertRows OnDevice(BenchDevice& device, ops::ExpertRows rows);

// Gives tensors that a call overwrites their values back: run over and over, gradients of gradients
// would fade into subnormal numbers, which are slow.
std::function<void()> Restore(const OpContext& ctx, const std::vector<Tensor>& tensors);

}  // namespace headwise

#endif  // HEADWISE_MODEL_BENCH_OPERANDS_H_
