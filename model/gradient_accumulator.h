// GradientAccumulator: sums the gradients of a step's micro-batches ("leaves") by an adjacent-pair
// tree in their order.
//
//   GradientAccumulator accumulator(decoder->parameters(), /*leaves=*/4);
//   for (const TokenBatch& micro_batch : step) {  // exactly `leaves` of them
//     loss += decoder->ForwardBackward(micro_batch, 1.0 / tokens_of_step, pool);
//     accumulator.Add(pool);
//   }
//   // Every parameter's gradient is now the sum.
//
// The tree ((0 + 1) + (2 + 3)) + ... is that of docs/numerics.md, so a step split over
// data-parallel ranks gives the same bits. Head-norm weights are summed per kv group
// (Parameter::per_group_gradient) and reduced over groups once, after the last leaf. With one leaf
// Add() does nothing: no copy, no buffer. Otherwise log2(leaves) partial sums are kept, in the
// manner of a binary counter: leaf i is added to as many of them as i has trailing one bits.
//
// On a GPU the same sums, enqueued: of gradients that the kernels before write, by kernels that a
// graph can hold. All partial sums are allocated by the constructor.
//
//   GradientAccumulator accumulator(decoder->parameters(), /*leaves=*/4, gpu, launchers);
//   for (const GpuBatch& micro_batch : step) {
//     decoder->EnqueueForwardBackward(micro_batch);
//     HW_RETURN_IF_ERROR(accumulator.Enqueue());
//   }
//
// Does not own the parameters. Not thread-safe.
#ifndef HEADWISE_MODEL_GRADIENT_ACCUMULATOR_H_
#define HEADWISE_MODEL_GRADIENT_ACCUMULATOR_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "core/cuda/gpu.h"
#include "core/tensor/tensor.h"
#include "kernels/common/thread_pool.h"
#include "kernels/launchers/launchers.h"
#include "optim/parameter.h"

namespace headwise {

class GradientAccumulator {
 public:
  // leaves is a power of two (checked: the config's validation says so to the user). Gradients are
  // fp32 on the CPU, and there (checked: a model for inference has none).
  GradientAccumulator(const std::vector<Parameter*>& parameters, std::int64_t leaves);
  // Gradients are in the memory of `gpu`, which, with the launchers of its kernels, must outlive
  // this. Too little memory fails an HW_CHECK.
  GradientAccumulator(const std::vector<Parameter*>& parameters, std::int64_t leaves, Gpu& gpu,
                      const KernelLaunchers& launchers);

  // Takes what the backward pass has just written into the gradients as the next leaf. After the
  // last leaf of a step the gradients hold the sum and the next call begins a new step; before that
  // they hold nothing of use.
  void Add(ThreadPool& pool);
  // Add() of gradients on a GPU: enqueues it.
  absl::Status Enqueue();

  // Bytes of partial sums: log2(leaves) times the gradients.
  std::int64_t buffer_bytes() const;

 private:
  struct Slot {
    Parameter* parameter;
    Tensor leaf;  // what the backward writes: per_group_gradient where defined, else gradient
    std::vector<Tensor> partials;  // [log2(leaves)], partials[i] the sum of 2^i consecutive leaves
  };

  void MakeSlots(const std::vector<Parameter*>& parameters);
  // The next leaf, by `on`: what adds, copies and reduces.
  template <typename On>
  absl::Status TakeLeaf(const On& on);

  std::int64_t leaves_;
  Gpu* gpu_ = nullptr;  // null: on the CPU
  const KernelLaunchers* launchers_ = nullptr;
  std::int64_t next_ = 0;  // leaves added in this step
  std::vector<Slot> slots_;
};

}  // namespace headwise

#endif  // HEADWISE_MODEL_GRADIENT_ACCUMULATOR_H_
