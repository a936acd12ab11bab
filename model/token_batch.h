// TokenBatch: what a pass of the decoder is fed with.
#ifndef HEADWISE_MODEL_TOKEN_BATCH_H_
#define HEADWISE_MODEL_TOKEN_BATCH_H_

#include <cstdint>
#include <vector>

#include "kernels/attention/attention.h"

namespace headwise {

// Tokens of one forward pass, sequences laid end to end. Positions count from the start of each
// document; a segment is a document (or the part of it that a sequence holds).
struct TokenBatch {
  std::vector<std::int32_t> inputs;        // [T]
  std::vector<std::int32_t> targets;       // [T], kIgnoredTarget where there is none
  std::vector<std::int64_t> positions;     // [T]
  std::vector<AttentionSegment> segments;  // cover [0, T) in order
};

}  // namespace headwise

#endif  // HEADWISE_MODEL_TOKEN_BATCH_H_
