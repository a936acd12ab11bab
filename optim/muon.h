// Muon for a set of weight matrices, per head or whole: momentum, orthogonalisation, decoupled
// weight decay, write.
//
// The public face of the optimizer for programs that have their own model: plain row-major buffers
// in, updated in place. For a weight w [out_features, in_features] with gradient g and momentum m
// (fp32, zero at first):
//
//   m <- m + (1 - beta) (g - m)
//   u  = g + beta (m - g)             Nesterov; without it u = m
//   O  ~ U V^T for u = U S V^T        block by block, kernels/newton_schulz
//   w <- w (1 - lr wd) - lr scale O   scale by the block's shape, kernels/muon_step
//
// Keller Jordan et al., "Muon" (2024). Bits do not depend on the number of threads, on which other
// weights are in the set or on their order; docs/numerics.md has the order of operations.
//
//   // 8 query heads and 2 kv heads of 64 elements, model width 512.
//   const HeadBlocks heads = HeadBlocks::FromPacked(*PackedQkv::Interleaved({8, 2, 64}));
//   std::vector<float> wqkv(768 * 512), wqkv_grad(768 * 512);
//   std::vector<float> wo(512 * 512), wo_grad(512 * 512);
//
//   absl::StatusOr<Muon> muon = Muon::Create({.learning_rate = 0.02, .momentum = 0.95},
//                                            {{.name = "wqkv",
//                                              .value = {wqkv.data(), 768, 512},
//                                              .gradient = {wqkv_grad.data(), 768, 512},
//                                              .blocks = heads},
//                                             {.name = "wo",
//                                              .value = {wo.data(), 512, 512},
//                                              .gradient = {wo_grad.data(), 512, 512}}});
//   if (!muon.ok()) { ... muon.status() names the weight and the field ... }
//   ThreadPool pool(8);
//   for (...) {
//     ... the backward pass fills wqkv_grad and wo_grad ...
//     const MuonReport report = muon->Step(pool, schedule_factor);
//     if (report.skipped) { ... the gradient of report.non_finite overflowed ... }
//   }
//
// Blocks are the caller's choice: one per head (HeadBlocks::FromPacked, Separate, Create), coarser
// ones (heads.Coarsen(Granularity::kKvGroup)), or none, which means one block. See
// core/heads/head_blocks.h.
#ifndef HEADWISE_OPTIM_MUON_H_
#define HEADWISE_OPTIM_MUON_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/heads/head_blocks.h"
#include "core/tensor/row_span.h"
#include "core/tensor/tensor.h"
#include "kernels/common/thread_pool.h"
#include "kernels/muon_step/muon_step.h"
#include "optim/named_tensor.h"

namespace headwise {

// One weight. The buffers are not owned, are read and written at every step, and must outlive the
// Muon; none may overlap another. Rows may be strided.
struct MuonParameter {
  std::string name;                                 // unique; names the state
  RowSpan<float> value;                             // [out_features, in_features]
  RowSpan<const float> gradient;                    // the same shape; only read
  std::optional<HeadBlocks> blocks = std::nullopt;  // absent: one block, the whole matrix
  // The buffers are [in_features, out_features]: the update is the transposed one of plain storage,
  // bit for bit, its scale that of the logical shape. Heads then lie on the columns
  // (BlockAxis::kColumns).
  bool transposed_storage = false;
};

struct MuonReport {
  double gradient_norm = 0;  // over all weights; infinite or NaN only if a gradient is
  bool skipped = false;      // a gradient element was NaN or >= 2^96 in magnitude: nothing changed
  std::string non_finite;    // then: the first such weight, by name
};

// kInvalidArgument names the field, its value and its range: 0 <= learning_rate, 0 <= weight_decay,
// 0 <= momentum < 1, learning_rate * weight_decay <= 1 (more would turn the weights' signs), all
// finite in fp32; coefficients that CheckCoefficients accepts. A learning rate of 0 is legal:
// momentum still moves. gradient_scale must be 1 here: it is a matter of the single step.
absl::Status ValidateMuonHyperparameters(const MuonHyperparameters& hyper);

// The kernel that steps the weights: MuonStep<float>, or another with its contract and its bits, or
// on tensor cores within an error bound of them.
using MuonStepFunction = absl::Status (*)(const MuonHyperparameters& hyper,
                                          absl::Span<const MuonWeight<float>> weights,
                                          ThreadPool& pool);

// Owns the momentum: as many bytes as the values. Movable. Not thread-safe.
class Muon {
 public:
  // hyper.coefficients is not owned. kInvalidArgument: a hyper-parameter out of range, an empty or
  // repeated name, a buffer that is null or empty or whose rows overlap, a gradient of another
  // shape, blocks that do not cover the axis, a value that shares memory with another buffer.
  // kFailedPrecondition: the thread reads or writes subnormal numbers as zero
  // (kernels/common/float_environment.h); nothing could be promised about the bits.
  static absl::StatusOr<Muon> Create(const MuonHyperparameters& hyper,
                                     std::vector<MuonParameter> parameters,
                                     MuonStepFunction step = &MuonStep<float>);

  // One step at learning_rate * learning_rate_factor (a schedule; finite and >= 0, checked). Looks
  // at every gradient first: where one is unusable, no value and no momentum changes. Newton-Schulz
  // is the cost: call this once per optimizer step, with accumulated gradients, not once per
  // micro-batch.
  MuonReport Step(ThreadPool& pool, double learning_rate_factor = 1.0);

  // Step without the look, for a caller that has already made sure that every gradient is finite
  // and below 2^96 (kernels/gradient_norm/gradient_norm.h) and that may clip: the gradients are multiplied by
  // gradient_scale, in [0, 1], first.
  void StepUnguarded(ThreadPool& pool, double learning_rate_factor, double gradient_scale = 1.0);

  // "momentum/<name>" [rows, cols], sorted by name. Shares storage: copy it out to save, write into
  // it to resume. A Muon of the same parameters with the same state continues with the same bits.
  std::vector<NamedTensor> State() const;

 private:
  struct Weight {
    MuonParameter parameter;  // blocks always present
    Tensor momentum;          // [rows, cols], dense
  };

  Muon(const MuonHyperparameters& hyper, std::vector<Weight> weights, MuonStepFunction step);

  MuonHyperparameters hyper_;
  std::vector<Weight> weights_;  // sorted by name
  MuonStepFunction step_;
};

}  // namespace headwise

#endif  // HEADWISE_OPTIM_MUON_H_
