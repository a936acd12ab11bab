// RowExchange: rows of tokens, sorted by expert, sent to the ranks that hold the experts and back.
//
//   HW_ASSIGN_OR_RETURN(const RowExchange exchange, RowExchange::Create(comm, counts));
//   Tensor in = Tensor::Empty({exchange.received_rows(), width}, rows.dtype(), Device::kCpu);
//   HW_RETURN_IF_ERROR(exchange.ToExperts(rows, in));
//   ...                                        // the experts: exchange.received()[e] rows of each
//   HW_RETURN_IF_ERROR(exchange.ToTokens(out, rows));
//
// n ranks, E experts of which rank r holds [r E / n, (r + 1) E / n). A rank's own rows are sorted by
// expert, as kernels/moe/grouping.h leaves them. Where they are sent they are sorted by expert too;
// those of one expert by the rank that they come from, and those of one rank in the order that they
// had there. So an expert sees its rows in the order in which one process would, if the ranks' tokens
// lay one after another. The backward exchanges are the same two, the other way about.
//
// Each call is one AllToAll with tables of counts: all ranks make the same calls in the same order,
// and errors end the group, as core/parallel/comm/communicator.h says. Rows are copied bit for bit.
// Not thread-safe: a rank is one thread.
#ifndef HEADWISE_CORE_PARALLEL_COMM_ROW_EXCHANGE_H_
#define HEADWISE_CORE_PARALLEL_COMM_ROW_EXCHANGE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/parallel/comm/communicator.h"
#include "core/tensor/tensor.h"

namespace headwise {

class RowExchange {
 public:
  // counts (in) [E]: this rank's rows for each expert; the ranks tell each other theirs. `comm` must
  // outlive the result. kInvalidArgument if n does not divide E or a count is negative.
  static absl::StatusOr<RowExchange> Create(Communicator& comm,
                                            absl::Span<const std::int64_t> counts);

  // [E / n]: the rows of each of this rank's experts, of all ranks; and their sum.
  const std::vector<std::int64_t>& received() const { return received_; }
  std::int64_t received_rows() const { return received_rows_; }
  // The sum of the counts.
  std::int64_t sent_rows() const { return sent_rows_; }

  // rows (in) [sent_rows(), width], out (out) [received_rows(), width]. Any dtype, the same on both
  // sides, on Device::kCpu; the width is the same on all ranks. They must not share memory.
  // kInvalidArgument for other shapes, dtypes and devices.
  absl::Status ToExperts(const Tensor& rows, const Tensor& out) const;
  // The inverse: rows (in) [received_rows(), width], out (out) [sent_rows(), width].
  absl::Status ToTokens(const Tensor& rows, const Tensor& out) const;

 private:
  explicit RowExchange(Communicator& comm) : comm_(&comm) {}
  absl::Status Check(const char* call, const Tensor& rows, std::int64_t rows_in, const Tensor& out,
                     std::int64_t rows_out) const;
  template <typename F>
  void ForEachBlock(const F& f) const;

  Communicator* comm_;  // not owned
  std::int64_t sent_rows_ = 0, received_rows_ = 0;
  std::vector<std::int64_t> sent_to_;        // [n] rows
  std::vector<std::int64_t> received_from_;  // [n] rows
  std::vector<std::int64_t> blocks_;         // [n, E / n] rows of each source rank for each expert
  std::vector<std::int64_t> received_;       // [E / n] rows
};

}  // namespace headwise

#endif  // HEADWISE_CORE_PARALLEL_COMM_ROW_EXCHANGE_H_
