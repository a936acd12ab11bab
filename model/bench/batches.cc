#include "model/bench/batches.h"

#include <algorithm>

#include "core/base/split_mix.h"

namespace headwise {

std::vector<std::int32_t> RandomTokens(std::int64_t count, std::int64_t vocabulary,
                                       std::uint64_t seed) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  for (std::int32_t& token : tokens) {
    token = static_cast<std::int32_t>(NextSplitMix(seed) % static_cast<std::uint64_t>(vocabulary));
  }
  return tokens;
}

TokenBatch RandomTrainingBatch(std::int64_t tokens, std::int64_t sequence_length,
                               std::int64_t vocabulary) {
  TokenBatch batch;
  batch.inputs = RandomTokens(tokens, vocabulary, 1);
  batch.targets = RandomTokens(tokens, vocabulary, 2);
  for (std::int64_t begin = 0; begin < tokens; begin += sequence_length) {
    const std::int64_t length = std::min(sequence_length, tokens - begin);
    for (std::int64_t i = 0; i < length; ++i) batch.positions.push_back(i);
    batch.segments.push_back(
        {.query_begin = begin, .num_queries = length, .key_begin = begin, .num_keys = length});
  }
  return batch;
}

}  // namespace headwise
