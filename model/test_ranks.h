// Decoders on ranks in threads, for tests: the same weights and the same tokens, on one rank and
// shared out by a layout.
#ifndef HEADWISE_MODEL_TEST_RANKS_H_
#define HEADWISE_MODEL_TEST_RANKS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/dtype/dtype.h"
#include "core/proto/config.pb.h"
#include "model/decoder.h"
#include "model/standard_layout.h"

namespace headwise {

struct PassOutcome {
  double loss = 0;       // summed over all tokens
  double auxiliary = 0;  // Decoder::auxiliary_loss() of all tokens
  // Of whole parameters, as the optimizer would see them.
  std::map<std::string, std::vector<double>> gradients;
  std::vector<std::string> mistakes;  // of the layout
  std::string failure;                // why it could not be run to its end
};

// `groups` groups of documents that fill `length` tokens each.
TokenBatch GroupedBatch(std::int64_t groups, std::int64_t length, std::int64_t vocab_size);

// A pass over the batch, forward, backward and reductions. Products by the contract GEMM; each
// rank has one thread.
PassOutcome PassOnOneRank(const ModelConfig& config, const TokenBatch& batch, DType compute);
// `relaxed`: although the layout has mistakes (LayoutChecker::set_relaxed).
PassOutcome PassOnRanks(const ModelConfig& config, const ShardedLayout& layout,
                        const TokenBatch& batch, DType compute, bool relaxed = false);

// The largest relative difference (||a - b|| / ||b||) of a gradient, or of the losses.
struct Difference {
  double size = 0;
  std::string where;
};
Difference LargestDifference(const PassOutcome& actual, const PassOutcome& expected);

}  // namespace headwise

#endif  // HEADWISE_MODEL_TEST_RANKS_H_
