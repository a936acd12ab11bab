// How a model trained on short sequences rotates on longer ones: changes of the rotary frequencies,
// made once, when a table is built (rotary_table.h).
//
//   inv_freq[i] = theta^(-2 i / R),  i in [0, R/2)          unscaled: i turns fast to slow
//
//   none      inv_freq
//   linear    inv_freq / factor                             (arXiv:2306.15595)
//   llama3    with turns = original_max_position * inv_freq / (2 pi), the rotations a pair makes
//             over the original context: inv_freq above high_freq_factor turns, inv_freq / factor
//             below low_freq_factor, and between them a mean of both,
//               ((1 - x) / factor + x) inv_freq,
//               x = (turns - low_freq_factor) / (high_freq_factor - low_freq_factor)
//   yarn      (arXiv:2309.00071) pairs of fewer than beta_slow turns are divided by the factor, those
//             of more than beta_fast kept, with a ramp over the pairs between:
//               (x / factor + 1 - x) inv_freq,
//               x = clamp((i - low) / (high - low), 0, 1),
//               pair(turns) = R ln(original_max_position / (2 pi turns)) / (2 ln theta),
//               low = max(pair(beta_fast), 0), high = min(pair(beta_slow), R - 1)
//             where pair is rounded outwards to integers if `truncate`; high = low + 0.001 if they
//             are equal. cos and sin are multiplied by the attention factor: the one given;
//             otherwise m(mscale) / m(mscale_all_dim) if both are given; otherwise m(1), with
//             m(x) = 0.1 x ln(factor) + 1.
//
// All in double. The formulas are those of transformers' modeling_rope_utils.py, which evaluates them
// in fp32; there a yarn factor left out is the ratio of the new context to the original one.
//
//   .scaling = Llama3Scaling{.factor = 8, .low_freq_factor = 1, .high_freq_factor = 4,
//                            .original_max_position = 8192}                        // Llama 3.1
//   .scaling = YarnScaling{.factor = 32, .original_max_position = 4096, .truncate = false}  // GPT-OSS
#ifndef HEADWISE_CORE_ROPE_ROTARY_SCALING_H_
#define HEADWISE_CORE_ROPE_ROTARY_SCALING_H_

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"

namespace headwise {

struct NoScaling {};

struct LinearScaling {
  double factor = 1.0;
};

struct Llama3Scaling {
  double factor = 1.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  std::int64_t original_max_position = 0;
};

struct YarnScaling {
  double factor = 1.0;
  std::int64_t original_max_position = 0;
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  bool truncate = true;
  std::optional<double> attention_factor, mscale, mscale_all_dim;
};

using RotaryScaling = std::variant<NoScaling, LinearScaling, Llama3Scaling, YarnScaling>;

struct RotaryFrequencies {
  std::vector<double> inv_freq;   // [R/2]
  double attention_factor = 1.0;  // of every cos and sin
};

// The frequencies of a table, R even and not negative (an HW_CHECK: RotaryTable::Create tells the
// user). kInvalidArgument, naming the field, unless theta > 0 (yarn: > 1), every number is finite, factors are at least 1, original_max_position at
// least 1, 0 < low_freq_factor < high_freq_factor, 0 < beta_slow <= beta_fast, and attention_factor,
// mscale and mscale_all_dim, where given, positive.
absl::StatusOr<RotaryFrequencies> ScaledFrequencies(const RotaryScaling& scaling, double theta,
                                                    std::int64_t rotary_dim);

}  // namespace headwise

#endif  // HEADWISE_CORE_ROPE_ROTARY_SCALING_H_
