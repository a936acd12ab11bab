// ExtendMemory: memory of a GPU for passes of Decoder::Extend over one cache: what a pass is fed
// with, which goes there in one copy, and what comes of it, which comes back in one.
//
//   ExtendMemory memory(gpu, {.tokens = 8 * 256, .rows = 8, .windows = 2, .vocab_size = 202048});
//   HW_RETURN_IF_ERROR(memory.Upload(inputs));
//   ... kernels read tokens(), positions(), destinations(w), segments(w), write logits() ...
//   HW_ASSIGN_OR_RETURN(const Tensor logits, memory.ReadLogits());
//
// Addresses depend on the number of tokens of a pass only, so that a captured pass takes the inputs
// of each launch.
#ifndef HEADWISE_MODEL_GPU_EXTEND_MEMORY_H_
#define HEADWISE_MODEL_GPU_EXTEND_MEMORY_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/cuda/gpu.h"
#include "core/tensor/tensor.h"
#include "kernels/attention/attention.h"

namespace headwise {

// Movable. The Gpu must outlive it.
class ExtendMemory {
 public:
  struct Size {
    std::int64_t tokens = 0;   // the most of a pass
    std::int64_t rows = 0;     // of the cache; the most segments of a window
    std::int64_t windows = 0;  // that layers have: each has segments and destinations of its own
    std::int64_t vocab_size = 0;
  };
  static std::int64_t Bytes(const Size& size);

  ExtendMemory(Gpu& gpu, const Size& size);

  struct WindowInputs {
    absl::Span<const AttentionSegment> segments;  // at most `rows`
    absl::Span<const std::int64_t> destinations;  // [T]
  };
  struct Inputs {
    absl::Span<const std::int32_t> tokens;     // [T]
    absl::Span<const std::int64_t> positions;  // [T]
    std::vector<WindowInputs> windows;         // [windows]
  };
  // Waits, and copies a pass's inputs, which must fit (checked).
  absl::Status Upload(const Inputs& inputs);

  // Device memory: the inputs that were uploaded last. Segments past those given are empty.
  absl::Span<const std::int32_t> tokens() const;
  absl::Span<const std::int64_t> positions() const;
  absl::Span<const AttentionSegment> segments(std::int64_t window) const;  // [rows]
  absl::Span<const std::int64_t> destinations(std::int64_t window) const;

  // Device memory: what a pass writes. Logits kF32 [rows, V]; ops::kFaults words for faults.
  const Tensor& logits() const { return logits_; }
  std::uint64_t* faults() const;
  // Enqueued: no faults so far. What every pass begins with.
  absl::Status ClearFaults() const;

  // Waits. The logits on the host; kInvalidArgument for a fault.
  absl::StatusOr<Tensor> ReadLogits() const;

 private:
  // Where the parts of `words_` begin.
  std::int64_t SegmentsAt(std::int64_t window) const;
  std::int64_t DestinationsAt(std::int64_t window) const;
  std::int64_t PositionsAt() const { return DestinationsAt(size_.windows); }
  std::int64_t TokensAt() const { return PositionsAt() + tokens_; }

  Gpu* gpu_;
  Size size_;
  std::int64_t tokens_ = 0;            // of the pass
  std::vector<std::int64_t> staging_;  // on the host
  Tensor words_;                       // its copy
  Tensor outcome_;                     // bytes of faults and logits
  Tensor logits_;                      // a part of it
};

}  // namespace headwise

#endif  // HEADWISE_MODEL_GPU_EXTEND_MEMORY_H_
