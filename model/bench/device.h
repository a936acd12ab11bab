// BenchDevice: what `muse bench` measures on. A device says how its work is timed and what it has;
// which units and kernels there are, and what is made of the samples, is the same for all devices.
//
//   const std::unique_ptr<BenchDevice> cpu = MakeCpuBenchDevice(/*threads=*/2);
//   HW_ASSIGN_OR_RETURN(const auto model, cpu->MakeModel(config, DecoderMode::kTraining,
//                                                        /*unfused_qkv=*/false));
//   HW_ASSIGN_OR_RETURN(const auto train, model->Train(2048));
//   HW_ASSIGN_OR_RETURN(const Samples seconds, Measure({train.get()}, {}));
//
// Runners and work keep their tensors; they must not outlive their device, nor units their model.
// Not thread-safe.
#ifndef HEADWISE_MODEL_BENCH_DEVICE_H_
#define HEADWISE_MODEL_BENCH_DEVICE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "core/dtype/dtype.h"
#include "core/proto/config.pb.h"
#include "core/tensor/tensor.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "model/bench/clock.h"
#include "model/decoder.h"
#include "model/ops.h"

namespace headwise {

// A model on a device, with weights from its seed, and its units; one of DecoderMode::kInference
// does not train (checked).
class BenchModel {
 public:
  virtual ~BenchModel() = default;
  // One optimizer step on `tokens` tokens: forward, backward, guard, update, weight copies.
  // Sequences have training.sequence_length tokens, the last one what is left.
  virtual absl::StatusOr<std::unique_ptr<UnitRunner>> Train(std::int64_t tokens) = 0;
  // A prompt of `tokens` tokens into an empty cache of one row, to the logits after it.
  virtual absl::StatusOr<std::unique_ptr<UnitRunner>> Prefill(std::int64_t tokens) = 0;
  // One more token of each row, at a context of up to `context` tokens with it: rows begin with
  // kDecodeSteps fewer (none, if that is negative), and begin again once they are full.
  virtual absl::StatusOr<std::unique_ptr<UnitRunner>> Decode(std::int64_t rows,
                                                             std::int64_t context) = 0;
};

inline constexpr std::int64_t kDecodeSteps = 16;

// One call of a kernel, on tensors that it keeps. A kernel that fails ends the process. On a GPU
// the call enqueues it, and may be captured.
struct KernelWork {
  explicit KernelWork(std::function<void()> run, std::function<void()> prepare = nullptr)
      : run(std::move(run)), prepare(std::move(prepare)) {}

  std::function<void()> run;
  // Before every run, outside of its time: restores operands that it overwrites. May be null. Where
  // several runs in a row are timed as one, before these.
  std::function<void()> prepare;
};

class BenchDevice {
 public:
  virtual ~BenchDevice() = default;
  virtual std::string name() const = 0;      // as --device names it, for a GPU with its own
  virtual std::string Describe() const = 0;  // "cpu, 2 threads"
  virtual int threads() const = 0;           // of the host that work on a unit
  virtual double memory_bytes() const = 0;
  // Whether it has attention.unfused_qkv of this model, which is resolved.
  virtual bool has_unfused_qkv(const ModelConfig& model) const = 0;

  virtual absl::StatusOr<std::unique_ptr<BenchModel>> MakeModel(const RunConfig& config,
                                                                DecoderMode mode,
                                                                bool unfused_qkv) = 0;

  // For operations of model/ops.h.
  virtual OpContext Context(const RunConfig& config) = 0;
  // Small random numbers, of mean 0.
  virtual Tensor Random(Shape shape, DType dtype) = 0;
  virtual Tensor Zeros(Shape shape, DType dtype) = 0;
  // A tensor on the host where kernels read it.
  virtual Tensor ToDevice(const Tensor& host) = 0;
  virtual std::unique_ptr<UnitRunner> Time(KernelWork work) = 0;

  // Kernels that are no operation. Logits [tokens, vocabulary] and their gradient in `compute`.
  virtual KernelWork CrossEntropy(const LogitTransform& op, std::int64_t tokens,
                                  std::int64_t vocabulary, DType compute) = 0;
  virtual KernelWork AdamW(std::int64_t elements) = 0;
  // Every parameter of the model that Muon steps, in blocks as configured. kInvalidArgument:
  // TENSOR_CORE on the CPU.
  virtual absl::StatusOr<KernelWork> MuonStep(const RunConfig& config) = 0;

  // The floors: a copy that reads and writes `bytes` in all, and a square matrix product in
  // `compute` of product_flops() operations.
  virtual KernelWork Copy(std::int64_t bytes) = 0;
  virtual KernelWork Product(DType compute) = 0;
  virtual double product_flops() const = 0;
};

}  // namespace headwise

#endif  // HEADWISE_MODEL_BENCH_DEVICE_H_
