// Sampler: draws the next token from logits. Temperature, then top-k, top-p and min-p filters, then
// one draw.
//
//   p_i = softmax(logits / temperature)
//   top_k   keeps the k most likely tokens                     (0: all)
//   top_p   keeps the smallest set whose probability is >= p   (1: all; arXiv:1904.09751)
//   min_p   keeps tokens with p_i >= min_p * max p             (0: all; arXiv:2407.01082)
//
// Temperature 0 is greedy: the largest logit, the smallest index among equals. The arithmetic is in
// double and the n-th draw depends on the seed and n only, so a seed and a prompt give the same
// text every time.
#ifndef HEADWISE_MODEL_GENERATE_SAMPLER_H_
#define HEADWISE_MODEL_GENERATE_SAMPLER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace headwise {

struct SamplerOptions {
  double temperature = 0.8;
  std::int64_t top_k = 0;
  double top_p = 1.0;
  double min_p = 0.0;
  std::uint64_t seed = 0;
};

// kInvalidArgument names the option, its value and its range.
absl::Status ValidateSamplerOptions(const SamplerOptions& options);

// Not thread-safe: it counts its draws.
class Sampler {
 public:
  // `options` must be valid (checked).
  explicit Sampler(const SamplerOptions& options);

  // kInvalidArgument if no logit is finite or one is NaN: the model's numbers are broken.
  // Infinities of either sign are logits of probability 1 (shared) and 0.
  absl::StatusOr<std::int32_t> Draw(absl::Span<const float> logits);

 private:
  SamplerOptions options_;
  std::uint64_t draws_ = 0;
};

}  // namespace headwise

#endif  // HEADWISE_MODEL_GENERATE_SAMPLER_H_
