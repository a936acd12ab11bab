// Ranks as threads of one process: for tests and small runs.
//
//   absl::Status status = RunThreadRanks(4, [&](Communicator& comm) -> absl::Status {
//     std::vector<float> sum = local[comm.rank()];
//     return comm.AllReduce(sum, absl::MakeSpan(sum));
//   });
//
// Bytes are copied by the receiver, straight from the sender's memory. No call waits for ever:
// ranks that wait for a rank that has returned, or for each other in different groups, get an error
// that says who waits where.
#ifndef HEADWISE_CORE_PARALLEL_COMM_THREAD_RANKS_H_
#define HEADWISE_CORE_PARALLEL_COMM_THREAD_RANKS_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "core/parallel/comm/communicator.h"

namespace headwise {

// Runs body(communicator of rank r) on a thread of its own for each of `ranks` >= 1 ranks, and
// returns when all have returned: OK, or the first error, "rank 2: ...". An error that a rank
// returns ends the others' calls. The communicator lives as long as the body runs.
absl::Status RunThreadRanks(int ranks, absl::FunctionRef<absl::Status(Communicator&)> body);

}  // namespace headwise

#endif  // HEADWISE_CORE_PARALLEL_COMM_THREAD_RANKS_H_
