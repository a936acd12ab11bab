#include "model/gpu/batch.h"

#include <array>
#include <bit>
#include <cstddef>
#include <type_traits>

#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "model/gpu/tensors.h"
#include "model/ops.h"

namespace headwise {
namespace {

constexpr std::int64_t kSegmentWords = sizeof(AttentionSegment) / sizeof(std::int64_t);
static_assert(std::is_trivially_copyable_v<AttentionSegment> &&
              sizeof(AttentionSegment) == kSegmentWords * sizeof(std::int64_t));

template <typename T>
absl::Span<const T> SpanOf(const Tensor& tensor) {
  return {tensor.data<T>(), static_cast<std::size_t>(tensor.size())};
}

template <typename T>
absl::Status UploadAll(Gpu& gpu, const std::vector<T>& values, const Tensor& to) {
  return gpu.Upload(to.raw_data(), values.data(),
                    static_cast<std::int64_t>(values.size() * sizeof(T)));
}

}  // namespace

GpuBatch::GpuBatch(Gpu& gpu, const Size& size)
    : gpu_(&gpu),
      size_(size),
      inputs_(EmptyOnGpu(gpu, {size.tokens}, DType::kI32)),
      targets_(EmptyOnGpu(gpu, {size.tokens}, DType::kI32)),
      positions_(EmptyOnGpu(gpu, {size.tokens}, DType::kI64)),
      segments_(EmptyOnGpu(gpu, {size.segments, kSegmentWords}, DType::kI64)),
      loss_scale_(EmptyOnGpu(gpu, {1}, DType::kF64)),
      outcome_(EmptyOnGpu(gpu, {2 + ops::kFaults}, DType::kI64)) {}

bool GpuBatch::Fits(const TokenBatch& batch) const {
  return static_cast<std::int64_t>(batch.inputs.size()) == size_.tokens &&
         static_cast<std::int64_t>(batch.segments.size()) <= size_.segments;
}

absl::Status GpuBatch::Upload(const TokenBatch& batch, double loss_scale) {
  HW_CHECK(Fits(batch)) << "a batch of " << batch.inputs.size() << " tokens and "
                        << batch.segments.size() << " segments for memory of " << size_.tokens
                        << " and " << size_.segments;
  HW_CHECK_EQ(batch.targets.size(), batch.inputs.size());
  HW_CHECK_EQ(batch.positions.size(), batch.inputs.size());
  ops::CheckSegments("GpuBatch", batch.segments, size_.tokens, size_.tokens);
  std::vector<AttentionSegment> segments = batch.segments;
  segments.resize(static_cast<std::size_t>(size_.segments));
  HW_RETURN_IF_ERROR(UploadAll(*gpu_, batch.inputs, inputs_));
  HW_RETURN_IF_ERROR(UploadAll(*gpu_, batch.targets, targets_));
  HW_RETURN_IF_ERROR(UploadAll(*gpu_, batch.positions, positions_));
  HW_RETURN_IF_ERROR(UploadAll(*gpu_, segments, segments_));
  return gpu_->Upload(loss_scale_.raw_data(), &loss_scale, sizeof(loss_scale));
}

absl::Span<const std::int32_t> GpuBatch::inputs() const { return SpanOf<std::int32_t>(inputs_); }
absl::Span<const std::int32_t> GpuBatch::targets() const { return SpanOf<std::int32_t>(targets_); }
absl::Span<const std::int64_t> GpuBatch::positions() const {
  return SpanOf<std::int64_t>(positions_);
}
absl::Span<const AttentionSegment> GpuBatch::segments() const {
  return {static_cast<const AttentionSegment*>(segments_.raw_data()),
          static_cast<std::size_t>(size_.segments)};
}

absl::Status GpuBatch::ClearOutcome() const {
  HW_RETURN_IF_ERROR(gpu_->Fill(auxiliary_loss(), 0, sizeof(double)));
  return gpu_->Fill(faults(), 0xff, ops::kFaults * sizeof(std::uint64_t));
}

absl::StatusOr<GpuBatch::Outcome> GpuBatch::ReadOutcome() const {
  std::array<std::uint64_t, 2 + ops::kFaults> outcome;
  HW_RETURN_IF_ERROR(gpu_->Download(outcome.data(), outcome_.raw_data(), outcome_.bytes()));
  HW_RETURN_IF_ERROR(ops::FaultStatus(absl::MakeSpan(outcome).subspan(2)));
  return Outcome{.loss = std::bit_cast<double>(outcome[0]),
                 .auxiliary_loss = std::bit_cast<double>(outcome[1])};
}

absl::StatusOr<double> GpuBatch::ReadLoss() const {
  HW_ASSIGN_OR_RETURN(const Outcome outcome, ReadOutcome());
  return outcome.loss;
}

}  // namespace headwise
