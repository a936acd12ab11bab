// Parameters and FLOPs of a decoder, from its config alone.
#ifndef HEADWISE_MODEL_COUNTS_H_
#define HEADWISE_MODEL_COUNTS_H_

#include <cstdint>

#include "core/proto/config.pb.h"

namespace headwise {

struct ParameterCounts {
  std::int64_t total = 0;  // every element of every parameter
  // Those that multiply a token: linear layers and head, not the embedding; of experts, the router
  // and as many as a token goes through.
  std::int64_t matmul = 0;
};

// The config must be valid.
ParameterCounts CountParameters(const ModelConfig& config);

// Multiplications and additions of one training token's forward and backward pass in sequences of
// sequence_length tokens:
//
//   6 matmul parameters + sum over layers of 12 H D keys,
//
// where `keys` is the mean number of keys that a query of the layer sees (its window, cut by the
// sequence's start). Recomputation in the backward pass is not counted, so a rate from this is
// model FLOPs.
double TrainingFlopsPerToken(const ModelConfig& config, std::int64_t sequence_length);

}  // namespace headwise

#endif  // HEADWISE_MODEL_COUNTS_H_
