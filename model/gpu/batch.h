// GpuBatch: memory of a GPU for batches of one size, and for what comes of a pass over them. Its
// addresses never change, so that a captured pass takes the batch of each launch.
//
//   GpuBatch batch(gpu, {.tokens = 8 * 1024, .segments = 64});
//   HW_RETURN_IF_ERROR(batch.Upload(first, loss_scale));
//   decoder.EnqueueForwardBackward(batch);
//   HW_ASSIGN_OR_RETURN(const double loss, batch.ReadLoss());
#ifndef HEADWISE_MODEL_GPU_BATCH_H_
#define HEADWISE_MODEL_GPU_BATCH_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/cuda/gpu.h"
#include "core/tensor/tensor.h"
#include "kernels/attention/attention.h"
#include "model/ops/fault.h"
#include "model/token_batch.h"

namespace headwise {

// Movable. The Gpu must outlive it.
class GpuBatch {
 public:
  struct Size {
    std::int64_t tokens = 0;    // of every batch
    std::int64_t segments = 0;  // the most of a batch; others are empty
  };
  GpuBatch(Gpu& gpu, const Size& size);

  const Size& size() const { return size_; }
  bool Fits(const TokenBatch& batch) const;

  // Waits, and copies the batch, which must fit (checked), and what the backward multiplies its
  // losses by. Segments that do not cover its tokens in order fail an HW_CHECK. Tokens, targets and
  // positions are not looked at: where one is out of range, ReadLoss() says so.
  absl::Status Upload(const TokenBatch& batch, double loss_scale);

  // Device memory, for ops.
  absl::Span<const std::int32_t> inputs() const;
  absl::Span<const std::int32_t> targets() const;
  absl::Span<const std::int64_t> positions() const;
  absl::Span<const AttentionSegment> segments() const;
  const double* loss_scale() const { return loss_scale_.data<double>(); }
  // What a pass writes: the sum of the losses, that of the auxiliary losses, to which layers add,
  // and ops::kFaults words for faults.
  double* loss() const { return reinterpret_cast<double*>(outcome_.data<std::int64_t>()); }
  double* auxiliary_loss() const { return loss() + 1; }
  std::uint64_t* faults() const { return reinterpret_cast<std::uint64_t*>(loss() + 2); }

  // Enqueued: no auxiliary loss and no faults so far. What every pass begins with.
  absl::Status ClearOutcome() const;

  // Of the last pass.
  struct Outcome {
    double loss = 0, auxiliary_loss = 0;
  };
  // Waits. kInvalidArgument for a fault ("Embedding: token 3 is out of range").
  absl::StatusOr<Outcome> ReadOutcome() const;
  absl::StatusOr<double> ReadLoss() const;

 private:
  Gpu* gpu_;
  Size size_;
  Tensor inputs_, targets_, positions_;  // [T]
  Tensor segments_;                      // [segments, words of one]
  Tensor loss_scale_;                    // [1]
  Tensor outcome_;                       // the losses, then the faults
};

}  // namespace headwise

#endif  // HEADWISE_MODEL_GPU_BATCH_H_
