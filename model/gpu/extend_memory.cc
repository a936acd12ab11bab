#include "model/gpu/extend_memory.h"

#include <cstddef>
#include <cstring>
#include <type_traits>

#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "model/gpu/tensors.h"
#include "model/ops/fault.h"

namespace headwise {
namespace {

constexpr std::int64_t kWord = sizeof(std::int64_t);
constexpr std::int64_t kSegmentWords = sizeof(AttentionSegment) / kWord;
static_assert(std::is_trivially_copyable_v<AttentionSegment> &&
              sizeof(AttentionSegment) == kSegmentWords * kWord);
// Floats in front of the logits, which keep their alignment.
constexpr std::int64_t kFaultFloats = 64;
static_assert(ops::kFaults * kWord <= kFaultFloats * std::int64_t{sizeof(float)});

std::size_t Count(std::int64_t count) { return static_cast<std::size_t>(count); }

// Values into words; the last one may be filled up.
template <typename T>
void Put(absl::Span<const T> values, std::int64_t* to) {
  if (!values.empty()) std::memcpy(to, values.data(), values.size() * sizeof(T));
}

}  // namespace

std::int64_t ExtendMemory::SegmentsAt(std::int64_t window) const {
  return window * size_.rows * kSegmentWords;
}
std::int64_t ExtendMemory::DestinationsAt(std::int64_t window) const {
  return SegmentsAt(size_.windows) + window * tokens_;
}

std::int64_t ExtendMemory::Bytes(const Size& size) {
  const std::int64_t words = size.windows * (size.rows * kSegmentWords + size.tokens) +
                             size.tokens + (size.tokens + 1) / 2;
  return words * kWord + (kFaultFloats + size.rows * size.vocab_size) * std::int64_t{sizeof(float)};
}

ExtendMemory::ExtendMemory(Gpu& gpu, const Size& size) : gpu_(&gpu), size_(size) {
  const std::int64_t outcome = kFaultFloats + size.rows * size.vocab_size;
  const std::int64_t words = (Bytes(size) - outcome * std::int64_t{sizeof(float)}) / kWord;
  words_ = EmptyOnGpu(gpu, {words}, DType::kI64);
  outcome_ = EmptyOnGpu(gpu, {outcome}, DType::kF32);
  logits_ = outcome_.Slice(kFaultFloats, outcome - kFaultFloats).View({size.rows, size.vocab_size});
}

absl::Status ExtendMemory::Upload(const Inputs& inputs) {
  tokens_ = static_cast<std::int64_t>(inputs.tokens.size());
  HW_CHECK(tokens_ <= size_.tokens && inputs.positions.size() == inputs.tokens.size() &&
           static_cast<std::int64_t>(inputs.windows.size()) == size_.windows)
      << "a pass of " << tokens_ << " tokens in memory of " << size_.tokens;
  staging_.assign(Count(TokensAt() + (tokens_ + 1) / 2), 0);
  for (std::int64_t w = 0; w < size_.windows; ++w) {
    const WindowInputs& window = inputs.windows[w];
    HW_CHECK(static_cast<std::int64_t>(window.segments.size()) <= size_.rows &&
             window.destinations.size() == inputs.tokens.size());
    Put(window.segments, staging_.data() + SegmentsAt(w));
    Put(window.destinations, staging_.data() + DestinationsAt(w));
  }
  Put(inputs.positions, staging_.data() + PositionsAt());
  Put(inputs.tokens, staging_.data() + TokensAt());
  return gpu_->Upload(words_.raw_data(), staging_.data(),
                      static_cast<std::int64_t>(staging_.size()) * kWord);
}

absl::Span<const std::int32_t> ExtendMemory::tokens() const {
  return {reinterpret_cast<const std::int32_t*>(words_.data<std::int64_t>() + TokensAt()),
          Count(tokens_)};
}
absl::Span<const std::int64_t> ExtendMemory::positions() const {
  return {words_.data<std::int64_t>() + PositionsAt(), Count(tokens_)};
}
absl::Span<const AttentionSegment> ExtendMemory::segments(std::int64_t window) const {
  return {
      reinterpret_cast<const AttentionSegment*>(words_.data<std::int64_t>() + SegmentsAt(window)),
      Count(size_.rows)};
}
absl::Span<const std::int64_t> ExtendMemory::destinations(std::int64_t window) const {
  return {words_.data<std::int64_t>() + DestinationsAt(window), Count(tokens_)};
}

std::uint64_t* ExtendMemory::faults() const {
  return static_cast<std::uint64_t*>(outcome_.raw_data());
}

absl::Status ExtendMemory::ClearFaults() const {
  return gpu_->Fill(faults(), 0xff, ops::kFaults * kWord);
}

absl::StatusOr<Tensor> ExtendMemory::ReadLogits() const {
  HW_ASSIGN_OR_RETURN(const Tensor outcome, Download(*gpu_, outcome_));
  HW_RETURN_IF_ERROR(
      ops::FaultStatus({static_cast<const std::uint64_t*>(outcome.raw_data()), ops::kFaults}));
  return outcome.Slice(kFaultFloats, logits_.size()).View(logits_.shape());
}

}  // namespace headwise
