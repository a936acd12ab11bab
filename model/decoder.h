// Decoder: the Muse-style transformer. Its parts are chosen by a ModelConfig; forward and backward
// are written by hand, op by op (model/ops.h), so that a training step can be followed with the
// finger.
//
//   h = norm(embedding[tokens])
//   per layer: h = h + post(attention(pre(h)));  h = h + post(ffn(pre(h)))
//   z = head(norm(h));  logits = cap * tanh(multiplier * z / cap)
//
//   auto decoder = *Decoder::Create(config, {.compute = DType::kBF16});
//   decoder->Initialize(seed);
//   // The loss, and every parameter's gradient:
//   const double loss = decoder->ForwardBackward(batch, 1.0 / tokens_of_step, pool);
//
//   // To evaluate or generate, without memory for gradients:
//   auto reader = *Decoder::Create(config, {.mode = DecoderMode::kInference});
//
// Owns its parameters, which are zero until initialised or loaded. Master weights and gradients are
// fp32 (double for gradient tests, whose options.compute is kF64); activations are options.compute.
// The mode changes no bit of a loss or of logits.
// With Device::kMeta nothing is allocated or computed: shapes and dtypes are checked, which works
// for any size, and losses are 0. With Device::kCuda all tensors are in the memory of a GPU, and
// kernels and products run there (core/cuda/gpu.h; model/gpu/tensors.h copies parameters from and
// to the host). Not thread-safe; the pool's threads are used inside a call only.
// The number of threads changes no bit.
#ifndef HEADWISE_MODEL_DECODER_H_
#define HEADWISE_MODEL_DECODER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/cuda/gpu.h"
#include "core/proto/config.pb.h"
#include "core/tensor/tensor.h"
#include "kernels/attention/attention.h"
#include "kernels/common/thread_pool.h"
#include "kernels/cross_entropy/cross_entropy.h"  // kIgnoredTarget
#include "kernels/gemm/gemm.h"
#include "kernels/launchers/launchers.h"
#include "model/ops.h"
#include "model/sharding.h"
#include "model/token_batch.h"
#include "optim/parameter.h"

namespace headwise {

// What a decoder is for.
enum class DecoderMode {
  kTraining,  // every parameter has a gradient beside it
  // None has: weights and their copies take memory, gradients none. Loss(), EnqueueLoss() and
  // Extend() run, a backward pass does not. Weights are initialised and loaded as in training.
  kInference,
};

struct DecoderOptions {
  DType compute = DType::kF32;  // kF32 or kBF16; kF64 for gradient tests (contract GEMM only)
  GemmBackend gemm = GemmBackend::kOneDnn;
  Device device = Device::kCpu;
  // On the CPU. kCudaEmulated: not with kF64, wide heads, or unfused_qkv of shapes that
  // have none (model/qkv_preparation.h).
  Kernels kernels = Kernels::kCpu;
  // On kCuda: the GPU whose memory holds all tensors, and launchers of its kernels. Not owned; must
  // outlive the decoder. Not with what kCudaEmulated does not take, nor with sharding.
  Gpu* gpu = nullptr;
  const KernelLaunchers* launchers = nullptr;
  // Not null: this decoder is one rank's share of a model (model/sharding.h). Not owned; must
  // outlive the decoder. Mistakes of the plan are noted in its checker.
  Sharding* sharding = nullptr;
  DecoderMode mode = DecoderMode::kTraining;
};

class GpuBatch;  // model/gpu/batch.h

// Keys and values of the tokens seen so far, for a batch of rows that may differ in length.
class KvCache;

class Decoder {
 public:
  // kInvalidArgument: the first field of the config that is wrong, its value and what it must be.
  static absl::StatusOr<std::unique_ptr<Decoder>> Create(const ModelConfig& config,
                                                         const DecoderOptions& options);
  virtual ~Decoder() = default;

  virtual const ModelConfig& config() const = 0;
  virtual const DecoderOptions& options() const = 0;

  // In definition order: embedding, layers, final norm, head. Pointers stay valid as long as the
  // decoder.
  virtual const std::vector<Parameter*>& parameters() = 0;

  // Draws every weight from the config's InitConfig. Each parameter's values depend on the seed and
  // its name only.
  virtual void Initialize(std::uint64_t seed) = 0;

  // Call after weights have changed (optimizer step, loading): refreshes the low-precision copies.
  virtual void WeightsChanged(ThreadPool& pool) = 0;

  // The sum of the batch's token losses (natural logarithm), of this rank's tokens; overwrites
  // every parameter's gradient with that of loss_scale times that sum. In kTraining only (checked).
  virtual double ForwardBackward(const TokenBatch& batch, double loss_scale, ThreadPool& pool) = 0;

  // The sum of the batch's token losses, of this rank's tokens; no gradients.
  virtual double Loss(const TokenBatch& batch, ThreadPool& pool) = 0;

  // On Device::kCuda: enqueue these two passes over a batch that is there, with the loss_scale that
  // was uploaded with it, which writes its loss and faults; they can be captured after a pass over as
  // many tokens was enqueued once, which takes the memory. Memory is kept, whatever the sizes of
  // later passes, so that graphs can be launched as long as the decoder lives. The first is in
  // kTraining only (checked).
  virtual void EnqueueForwardBackward(const GpuBatch& batch) = 0;
  virtual void EnqueueLoss(const GpuBatch& batch) = 0;

  // Of the last ForwardBackward or Loss: the routers' auxiliary losses, weighted and times the
  // tokens, so that loss_scale * (loss + auxiliary_loss) is what the gradients are of. 0 without
  // BALANCING_AUXILIARY_LOSS.
  virtual double auxiliary_loss() const = 0;

  // The most memory that activations have taken at once, so far; on kMeta, would have taken.
  virtual std::int64_t peak_activation_bytes() const = 0;
  // How often memory for activations was taken from the device, because none was idle.
  virtual std::int64_t activation_allocations() const = 0;
  // Memory of the low-precision weights that products read besides the parameters.
  virtual std::int64_t weight_copy_bytes() const = 0;

  // A cache for `rows` sequences of at most max_tokens each (kInvalidArgument past
  // max_sequence_length). Layers with a sliding window keep only what the window needs.
  virtual absl::StatusOr<std::unique_ptr<KvCache>> NewCache(std::int64_t rows,
                                                            std::int64_t max_tokens) const = 0;

  // Appends tokens[r] to row r (a row may get none; prefill appends many, decode one) and returns
  // the transformed logits fp32 [rows, V] after each row's last token (rows that got none are
  // zero). Requires room in the cache (checked).
  virtual Tensor Extend(KvCache& cache, absl::Span<const std::vector<std::int32_t>> tokens,
                        ThreadPool& pool) = 0;
};

}  // namespace headwise

#endif  // HEADWISE_MODEL_DECODER_H_
