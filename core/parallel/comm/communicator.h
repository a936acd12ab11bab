// Communicator: one rank's end of a group of ranks. Collectives, with sums in an order that is part
// of the contract.
//
//   absl::Status Step(Communicator& comm) {
//     HW_RETURN_IF_ERROR(comm.AllReduce(gradient, absl::MakeSpan(gradient)));   // in place
//     return comm.Barrier();
//   }
//
// Every rank of the group calls the same collectives in the same order. Sums are adjacent-pair
// trees over the ranks in rank order, made by the receiver (core/tensor/adjacent_pair.h), whatever
// moves the bytes: any backend gives the same bits, and element i of the result depends on element
// i of the ranks' inputs only.
//
// Errors: a call that does not fit the other ranks' calls (another collective, other sizes), and
// Fail(), end the group: this and every later call on any rank returns the first such error, which
// names the rank. Nobody waits for ever for a rank that has failed or finished.
//
// Backends implement Exchange(); the collectives here are made of it. Not thread-safe: a rank is
// one thread. Tables of counts are in elements, one per rank.
#ifndef HEADWISE_CORE_PARALLEL_COMM_COMMUNICATOR_H_
#define HEADWISE_CORE_PARALLEL_COMM_COMMUNICATOR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/dtype/dtype.h"

namespace headwise {

// Elements that somebody else owns. A span of T becomes one by itself.
struct ConstElements {
  const void* data = nullptr;
  std::int64_t count = 0;
  DType dtype = DType::kF32;

  ConstElements(const void* data, std::int64_t count, DType dtype)
      : data(data), count(count), dtype(dtype) {}
  template <typename T>
  ConstElements(absl::Span<T> span)  // NOLINT(google-explicit-constructor)
      : ConstElements(span.data(), static_cast<std::int64_t>(span.size()),
                      kDType<std::remove_const_t<T>>) {}
  template <typename T>
  ConstElements(const std::vector<T>& values)  // NOLINT(google-explicit-constructor)
      : ConstElements(absl::MakeConstSpan(values)) {}
  std::int64_t bytes() const { return count * SizeOf(dtype); }
};

struct Elements {
  void* data = nullptr;
  std::int64_t count = 0;
  DType dtype = DType::kF32;

  Elements(void* data, std::int64_t count, DType dtype) : data(data), count(count), dtype(dtype) {}
  template <typename T>
  requires(!std::is_const_v<T>) Elements(absl::Span<T> span)  // NOLINT(google-explicit-constructor)
      : Elements(span.data(), static_cast<std::int64_t>(span.size()), kDType<T>) {}
  std::int64_t bytes() const { return count * SizeOf(dtype); }
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  // 0 <= rank() < size(), within this group.
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // The group of the ranks named (of this group, ascending, this one among them). All of them must
  // ask for it before they use it; nothing is sent. kInvalidArgument if this rank is not one of
  // them or a rank is out of range or order.
  virtual absl::StatusOr<std::unique_ptr<Communicator>> Subgroup(
      absl::Span<const std::int64_t> ranks) = 0;

  // out[i] = the sum over ranks of in[i]. F32, F64, BF16, I32, I64; in and out may be the same.
  // BF16 is added in fp32 and rounded once, or with add_in = kBF16 rounded after each addition;
  // other dtypes are added in their own.
  absl::Status AllReduce(ConstElements in, Elements out, DType add_in = DType::kF32);
  // in: one share per rank, in rank order, of counts[rank] elements. out = the sum of this rank's
  // share. Without counts the shares are equal.
  absl::Status ReduceScatter(ConstElements in, Elements out,
                             absl::Span<const std::int64_t> counts = {},
                             DType add_in = DType::kF32);
  // out = the ranks' inputs, in rank order; rank r gives counts[r] elements. Without counts each
  // gives in.count. in may lie at its place in out.
  absl::Status AllGather(ConstElements in, Elements out,
                         absl::Span<const std::int64_t> counts = {});
  // in: send_counts[r] elements for each rank r, in rank order. out: receive_counts[r] elements
  // from each rank r. What r sends to this rank must be what this rank expects of r. in and out do
  // not overlap.
  absl::Status AllToAll(ConstElements in, absl::Span<const std::int64_t> send_counts, Elements out,
                        absl::Span<const std::int64_t> receive_counts);
  // data of `root` on every rank.
  absl::Status Broadcast(int root, Elements data);
  // Returns when every rank has called it.
  absl::Status Barrier();

  // Ends the group with an error of this rank's. Returns what every rank gets: this, or an earlier
  // error.
  virtual absl::Status Fail(absl::Status status) = 0;

 protected:
  using Bytes = absl::Span<const std::byte>;
  using MutableBytes = absl::Span<std::byte>;

  // Sends send[r] to rank r and fills receive[r] with what r sends here; both have size() entries,
  // this rank's own included. Returns when neither buffer is needed any longer. `call` says what is
  // done with what sizes: ranks whose calls differ are an error.
  virtual absl::Status Exchange(absl::string_view call, absl::Span<const Bytes> send,
                                absl::Span<const MutableBytes> receive) = 0;

 private:
  absl::StatusOr<std::vector<std::int64_t>> Shares(absl::string_view call, std::int64_t total,
                                                   absl::Span<const std::int64_t> counts);
  absl::Status Invalid(const std::string& message);
};

}  // namespace headwise

#endif  // HEADWISE_CORE_PARALLEL_COMM_COMMUNICATOR_H_
