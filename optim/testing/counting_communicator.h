// A communicator that counts the bytes that a rank sends to others.
//
//   std::int64_t sent = 0;
//   CountingCommunicator world(inner, &sent);
//
// Everything goes through the inner one as an all_to_all of bytes. Groups made of it count into the
// same number.
#ifndef HEADWISE_OPTIM_TESTING_COUNTING_COMMUNICATOR_H_
#define HEADWISE_OPTIM_TESTING_COUNTING_COMMUNICATOR_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/base/status_macros.h"
#include "core/dtype/dtype.h"
#include "core/parallel/comm/communicator.h"

namespace headwise {

class CountingCommunicator final : public Communicator {
 public:
  // Neither is owned.
  CountingCommunicator(Communicator& inner, std::int64_t* sent) : inner_(&inner), sent_(sent) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }

  absl::StatusOr<std::unique_ptr<Communicator>> Subgroup(
      absl::Span<const std::int64_t> ranks) override {
    HW_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> group, inner_->Subgroup(ranks));
    auto counting = std::make_unique<CountingCommunicator>(*group, sent_);
    counting->owned_ = std::move(group);
    return std::unique_ptr<Communicator>(std::move(counting));
  }

  absl::Status Fail(absl::Status status) override { return inner_->Fail(std::move(status)); }

 protected:
  absl::Status Exchange(absl::string_view, absl::Span<const Bytes> send,
                        absl::Span<const MutableBytes> receive) override {
    std::vector<std::byte> out;
    std::vector<std::int64_t> out_counts, in_counts;
    for (std::size_t r = 0; r < send.size(); ++r) {
      out.insert(out.end(), send[r].begin(), send[r].end());
      out_counts.push_back(static_cast<std::int64_t>(send[r].size()));
      in_counts.push_back(static_cast<std::int64_t>(receive[r].size()));
      if (static_cast<int>(r) != rank()) *sent_ += out_counts.back();
    }
    std::int64_t total = 0;
    for (const std::int64_t count : in_counts) total += count;
    std::vector<std::byte> in(static_cast<std::size_t>(total));
    HW_RETURN_IF_ERROR(inner_->AllToAll(
        ConstElements(out.data(), static_cast<std::int64_t>(out.size()), DType::kU8), out_counts,
        Elements(in.data(), total, DType::kU8), in_counts));
    auto from = in.begin();
    for (const MutableBytes& to : receive) {
      std::copy_n(from, to.size(), to.begin());
      from += static_cast<std::ptrdiff_t>(to.size());
    }
    return absl::OkStatus();
  }

 private:
  Communicator* inner_;
  std::int64_t* sent_;
  std::unique_ptr<Communicator> owned_;
};

}  // namespace headwise

#endif  // HEADWISE_OPTIM_TESTING_COUNTING_COMMUNICATOR_H_
