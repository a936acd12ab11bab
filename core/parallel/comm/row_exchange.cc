#include "core/parallel/comm/row_exchange.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/dtype/dtype.h"

namespace headwise {
namespace {

using Counts = std::vector<std::int64_t>;

std::int64_t Sum(absl::Span<const std::int64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

// Elements, of rows.
Counts Times(Counts rows, std::int64_t width) {
  for (std::int64_t& n : rows) n *= width;
  return rows;
}

std::string Describe(const Tensor& tensor) {
  if (!tensor.defined()) return "an undefined tensor";
  return absl::StrCat(ToString(tensor.shape()), " ", Name(tensor.dtype()), " on ",
                      Name(tensor.device()));
}

}  // namespace

absl::StatusOr<RowExchange> RowExchange::Create(Communicator& comm,
                                                absl::Span<const std::int64_t> counts) {
  const std::int64_t ranks = comm.size(), experts = static_cast<std::int64_t>(counts.size());
  if (experts % ranks != 0) {
    return comm.Fail(absl::InvalidArgumentError(
        absl::StrCat(ranks, " ranks cannot hold equal numbers of ", experts, " experts")));
  }
  const auto negative = std::find_if(counts.begin(), counts.end(), [](auto n) { return n < 0; });
  if (negative != counts.end()) {
    return comm.Fail(absl::InvalidArgumentError(
        absl::StrCat(*negative, " rows for expert ", negative - counts.begin(), " of ", experts)));
  }
  RowExchange exchange(comm);
  const std::int64_t held = experts / ranks;
  exchange.blocks_.resize(counts.size());
  const Counts shares(static_cast<std::size_t>(ranks), held);
  HW_RETURN_IF_ERROR(comm.AllToAll(counts, shares, absl::MakeSpan(exchange.blocks_), shares));
  exchange.received_.resize(static_cast<std::size_t>(held));
  for (std::int64_t r = 0; r < ranks; ++r) {
    const auto begin = static_cast<std::size_t>(r * held), size = static_cast<std::size_t>(held);
    const auto from = absl::MakeConstSpan(exchange.blocks_).subspan(begin, size);
    exchange.sent_to_.push_back(Sum(counts.subspan(begin, size)));
    exchange.received_from_.push_back(Sum(from));
    for (std::size_t e = 0; e < size; ++e) exchange.received_[e] += from[e];
  }
  exchange.sent_rows_ = Sum(exchange.sent_to_);
  exchange.received_rows_ = Sum(exchange.received_from_);
  return exchange;
}

absl::Status RowExchange::Check(const char* call, const Tensor& rows, std::int64_t rows_in,
                                const Tensor& out, std::int64_t rows_out) const {
  const bool defined = rows.defined() && out.defined();
  if (defined && rows.rank() == 2 && out.rank() == 2 && rows.dim(0) == rows_in &&
      out.dim(0) == rows_out && rows.dim(1) == out.dim(1) && rows.dtype() == out.dtype() &&
      rows.device() == Device::kCpu && out.device() == Device::kCpu) {
    return absl::OkStatus();
  }
  return comm_->Fail(absl::InvalidArgumentError(
      absl::StrCat(call, " of ", Describe(rows), " into ", Describe(out), ": it takes [", rows_in,
                   ", width] into [", rows_out, ", width], of one dtype, on cpu")));
}

// f(row in rank order, row in expert order, rows): the rows of one rank for one expert, where they
// lie as received, sorted by rank and then by expert, and where as the expert wants them.
template <typename F>
void RowExchange::ForEachBlock(const F& f) const {
  const std::size_t held = received_.size();
  std::int64_t by_expert = 0;
  for (std::size_t e = 0; e < held; ++e) {
    std::int64_t rank_begin = 0;
    for (std::size_t r = 0; r < received_from_.size(); ++r) {
      const std::int64_t* const of_rank = blocks_.data() + r * held;
      const std::int64_t by_rank = std::accumulate(of_rank, of_rank + e, rank_begin);
      if (of_rank[e] > 0) f(by_rank, by_expert, of_rank[e]);
      by_expert += of_rank[e];
      rank_begin += received_from_[r];
    }
  }
}

absl::Status RowExchange::ToExperts(const Tensor& rows, const Tensor& out) const {
  HW_RETURN_IF_ERROR(Check("ToExperts", rows, sent_rows_, out, received_rows_));
  const std::int64_t width = rows.dim(1), bytes = width * SizeOf(rows.dtype());
  std::vector<std::byte> by_rank(static_cast<std::size_t>(out.bytes()));
  HW_RETURN_IF_ERROR(comm_->AllToAll(
      ConstElements(rows.raw_data(), rows.size(), rows.dtype()), Times(sent_to_, width),
      Elements(by_rank.data(), out.size(), out.dtype()), Times(received_from_, width)));
  if (by_rank.empty()) return absl::OkStatus();
  auto* const to = static_cast<std::byte*>(out.raw_data());
  ForEachBlock([&](std::int64_t from_row, std::int64_t to_row, std::int64_t count) {
    std::memcpy(to + to_row * bytes, by_rank.data() + from_row * bytes,
                static_cast<std::size_t>(count * bytes));
  });
  return absl::OkStatus();
}

absl::Status RowExchange::ToTokens(const Tensor& rows, const Tensor& out) const {
  HW_RETURN_IF_ERROR(Check("ToTokens", rows, received_rows_, out, sent_rows_));
  const std::int64_t width = rows.dim(1), bytes = width * SizeOf(rows.dtype());
  std::vector<std::byte> by_rank(static_cast<std::size_t>(rows.bytes()));
  const auto* const from = static_cast<const std::byte*>(rows.raw_data());
  if (!by_rank.empty()) {
    ForEachBlock([&](std::int64_t to_row, std::int64_t from_row, std::int64_t count) {
      std::memcpy(by_rank.data() + to_row * bytes, from + from_row * bytes,
                  static_cast<std::size_t>(count * bytes));
    });
  }
  return comm_->AllToAll(ConstElements(by_rank.data(), rows.size(), rows.dtype()),
                         Times(received_from_, width),
                         Elements(out.raw_data(), out.size(), out.dtype()), Times(sent_to_, width));
}

}  // namespace headwise
