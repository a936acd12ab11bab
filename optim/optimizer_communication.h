// What the optimizer sends in a step, and what it keeps, of a model on ranks: from shapes and
// layouts alone, on Device::kMeta, without ranks.
//
//   HW_ASSIGN_OR_RETURN(const OptimizerAccount account, AccountOptimizer(config, parameters));
//   std::cout << account.ToString();
//   // layers.0.attention.wo  gather for Newton-Schulz  tp  65536
//
// The parameters are those of one rank, with their layouts. Bytes are what that rank sends to
// others in a step that is not skipped: owners of blocks (optim/cut_blocks.h) send results, the
// others what the owners need, so ranks differ. With a block per head, and experts cut by E, there is
// nothing but the norm.
#ifndef HEADWISE_OPTIM_OPTIMIZER_COMMUNICATION_H_
#define HEADWISE_OPTIM_OPTIMIZER_COMMUNICATION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/proto/config.pb.h"
#include "optim/parameter.h"

namespace headwise {

struct OptimizerMessage {
  std::string parameter;  // "" for what concerns all
  // "gather for Newton-Schulz", "return the update", "gradient norm".
  std::string what;
  std::string axis;  // "tp"; several as "tp_kv,tp_rep"; "all ranks"
  std::int64_t bytes_sent = 0;
};

struct OptimizerAccount {
  // Parameters in the order given, what concerns all last. An entry may be 0 on one rank and not on
  // another.
  std::vector<OptimizerMessage> messages;
  std::int64_t state_bytes = 0;  // momentum, AdamW's moments and its counter

  std::int64_t bytes_sent() const;
  // One line per message, then the sums.
  std::string ToString() const;
};

// Errors as Optimizer::Create's, without those of elements.
absl::StatusOr<OptimizerAccount> AccountOptimizer(const OptimizerConfig& config,
                                                  absl::Span<const Parameter* const> parameters,
                                                  std::int64_t rank = 0);

}  // namespace headwise

#endif  // HEADWISE_OPTIM_OPTIMIZER_COMMUNICATION_H_
