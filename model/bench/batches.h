// batches: tokens for units whose time does not depend on what they say.
#ifndef HEADWISE_MODEL_BENCH_BATCHES_H_
#define HEADWISE_MODEL_BENCH_BATCHES_H_

#include <cstdint>
#include <vector>

#include "model/decoder.h"

namespace headwise {

// `count` random tokens of [0, vocabulary), the same for the same seed.
std::vector<std::int32_t> RandomTokens(std::int64_t count, std::int64_t vocabulary,
                                       std::uint64_t seed);

// `tokens` random tokens with random targets, in sequences of `sequence_length`, the last one what
// is left.
TokenBatch RandomTrainingBatch(std::int64_t tokens, std::int64_t sequence_length,
                               std::int64_t vocabulary);

}  // namespace headwise

#endif  // HEADWISE_MODEL_BENCH_BATCHES_H_
