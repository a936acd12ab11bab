// muon_step: one Muon update of many weights: momentum, orthogonalisation per block, weight decay
// and the write.
//
//   g  = gradient * gradient_scale         clipping; the usual scale of 1 changes no bit
//   m <- m + (1 - beta) (g - m)            momentum, in place
//   u  = g + beta (m - g)                  Nesterov; without it u = m
//   O  = NewtonSchulz(u), block by block
//   w <- w (1 - lr wd) - (lr scale) O      scale by the block's logical shape
//
// Each line's exact operations are the contract of docs/numerics.md; reference and CPU return the
// same bits. Weights and momentum are fp32. Gradients are finite and below 2^96 in magnitude: the
// caller's guard skips the whole step otherwise.
#ifndef HEADWISE_KERNELS_MUON_STEP_MUON_STEP_H_
#define HEADWISE_KERNELS_MUON_STEP_MUON_STEP_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/dtype/dtype.h"
#include "core/heads/head_blocks.h"
#include "core/tensor/row_span.h"
#include "kernels/common/thread_pool.h"
#include "kernels/newton_schulz/newton_schulz.h"

namespace headwise {

// Bumped whenever the order of operations, and so some output bit, changes.
inline constexpr int kMuonStepContractVersion = 2;

// What multiplies O; rows and cols are those of the block, as out_features x in_features.
enum class UpdateScale {
  kAspect,         // sqrt(max(1, rows / cols))
  kMatchRmsAdamW,  // 0.2 sqrt(max(rows, cols))  (Moonlight, arXiv:2502.16982)
  kSpectral,       // sqrt(rows / cols)
  kUnit,           // 1
};

const char* Name(UpdateScale scale);

// In double; rounded once when multiplied by the learning rate.
double UpdateScaleFactor(UpdateScale scale, std::int64_t rows, std::int64_t cols);

struct MuonHyperparameters {
  double learning_rate = 0.02;
  double momentum = 0.95;
  bool nesterov = true;
  double weight_decay = 0.0;
  double gradient_scale = 1.0;  // multiplies the gradient first (clipping); rounded once to fp32
  UpdateScale scale = UpdateScale::kAspect;
  const NewtonSchulzCoefficients* coefficients = &Quintic5();  // not owned
};

// One weight. weight, momentum, gradient: [rows, cols], row-major, rows may be strided; no two may
// overlap, and of a step's weights none but gradients.
template <typename G>  // float or BFloat16
struct MuonWeight {
  RowSpan<float> weight;
  RowSpan<float> momentum;
  RowSpan<const G> gradient;
  const HeadBlocks* blocks = nullptr;  // not owned
  // Stored [in, out]: the update is the transposed one of the same weight stored [out, in], bit for
  // bit, its scale by out x in.
  bool transposed_storage = false;
};

// kInvalidArgument names the weight (by index) and the mismatch; on an error nothing is written.
template <typename G>
absl::Status MuonStep(const MuonHyperparameters& hyper, absl::Span<const MuonWeight<G>> weights,
                      ThreadPool& pool);

// The specification: short, serial. Same arguments, same bits.
template <typename G>
absl::Status MuonStepReference(const MuonHyperparameters& hyper,
                               absl::Span<const MuonWeight<G>> weights);

}  // namespace headwise

#endif  // HEADWISE_KERNELS_MUON_STEP_MUON_STEP_H_
