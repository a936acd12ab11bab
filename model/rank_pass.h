// What a rank does around a pass of its decoder (model/sharding.h): takes its share of the batch
// before, and sums up with the others after.
//
//   decoder->ForwardBackward(ShareOfBatch(batch, sharding), loss_scale, pool);
//   HW_RETURN_IF_ERROR(ReduceGradients(sharding, decoder->parameters()));
//   HW_ASSIGN_OR_RETURN(const double loss, SumOverTokens(sharding, local_loss));
#ifndef HEADWISE_MODEL_RANK_PASS_H_
#define HEADWISE_MODEL_RANK_PASS_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/decoder.h"
#include "model/sharding.h"
#include "optim/parameter.h"

namespace headwise {

// This rank's tokens of a batch of all groups' tokens (Sharding::SetTokens), and of its own group's.
// A rank has tokens of one group, and its queries see the keys of that group: with context
// parallelism more than its own, which the plan gathers.
TokenBatch ShareOfBatch(const TokenBatch& batch, const Sharding& sharding);
TokenBatch ShareOfGroup(const TokenBatch& group, const Sharding& sharding);

// Takes every gradient through its reduction in the checker's gradient plan, in place: after it a
// gradient is as its parameter is. After the last of a step's micro-batches. kFailedPrecondition
// for a reduction that leaves a share of the gradient (of a sharded optimizer state); errors of
// communication.
absl::Status ReduceGradients(Sharding& sharding, const std::vector<Parameter*>& parameters);

// The sum over the ranks that share out the tokens, on every rank, in the order of the mesh.
absl::StatusOr<double> SumOverTokens(const Sharding& sharding, double value);
// The sum over all ranks: of auxiliary losses, which every rank has a term of.
absl::StatusOr<double> SumOverRanks(const Sharding& sharding, double value);

}  // namespace headwise

#endif  // HEADWISE_MODEL_RANK_PASS_H_
