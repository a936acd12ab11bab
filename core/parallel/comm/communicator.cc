#include "core/parallel/comm/communicator.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/tensor/adjacent_pair.h"
#include "core/tensor/row_span.h"

namespace headwise {
namespace {

// A float that is rounded to bf16 after each addition.
struct RoundedSum {
  float value = 0;
  RoundedSum() = default;
  explicit RoundedSum(float x) : value(x) {}
  friend RoundedSum operator+(RoundedSum a, RoundedSum b) {
    return RoundedSum(ToFloat(RoundToBFloat16(a.value + b.value)));
  }
};

// out = the adjacent-pair tree over the rows of `parts` [ranks, out.count], added as C.
template <typename T, typename C, typename ToC, typename FromC>
void AddRows(const std::byte* parts, std::int64_t ranks, Elements out, ToC to, FromC from) {
  // Blocks that stay in the cache; elements do not meet, so the cut shows in no bit.
  constexpr std::int64_t kBlock = 1024;
  std::vector<C> sums(static_cast<std::size_t>(ranks * kBlock));
  const T* const in = reinterpret_cast<const T*>(parts);
  for (std::int64_t begin = 0; begin < out.count; begin += kBlock) {
    const std::int64_t width = std::min(kBlock, out.count - begin);
    const RowSpan<C> rows(sums.data(), ranks, width);
    for (std::int64_t r = 0; r < ranks; ++r) {
      for (std::int64_t i = 0; i < width; ++i) {
        rows.row(r)[i] = to(in[r * out.count + begin + i]);
      }
    }
    AdjacentPairTreeOfRows(rows);
    for (std::int64_t i = 0; i < width; ++i) {
      static_cast<T*>(out.data)[begin + i] = from(rows.row(0)[i]);
    }
  }
}

template <typename T>
void AddPlain(const std::byte* parts, std::int64_t ranks, Elements out) {
  const auto same = [](T x) { return x; };
  AddRows<T, T>(parts, ranks, out, same, same);
}

bool CanAdd(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kBF16 ||
         dtype == DType::kI32 || dtype == DType::kI64;
}

void Add(const std::byte* parts, std::int64_t ranks, Elements out, DType add_in) {
  switch (out.dtype) {
    case DType::kF32:
      return AddPlain<float>(parts, ranks, out);
    case DType::kF64:
      return AddPlain<double>(parts, ranks, out);
    case DType::kI32:
      return AddPlain<std::int32_t>(parts, ranks, out);
    case DType::kI64:
      return AddPlain<std::int64_t>(parts, ranks, out);
    default:
      break;
  }
  if (add_in == DType::kBF16) {
    return AddRows<BFloat16, RoundedSum>(
        parts, ranks, out, [](BFloat16 x) { return RoundedSum(ToFloat(x)); },
        [](RoundedSum x) { return RoundToBFloat16(x.value); });
  }
  AddRows<BFloat16, float>(
      parts, ranks, out, [](BFloat16 x) { return ToFloat(x); },
      [](float x) { return RoundToBFloat16(x); });
}

std::string Call(absl::string_view name, std::int64_t count, DType dtype) {
  return absl::StrCat(name, " of ", count, " ", Name(dtype));
}

// Consecutive pieces of counts[r] elements.
template <typename Span, typename Byte>
std::vector<Span> Pieces(Byte* data, absl::Span<const std::int64_t> counts, DType dtype) {
  std::vector<Span> pieces;
  for (const std::int64_t count : counts) {
    const auto bytes = static_cast<std::size_t>(count * SizeOf(dtype));
    pieces.emplace_back(data, bytes);
    if (data != nullptr) data += bytes;
  }
  return pieces;
}

}  // namespace

absl::Status Communicator::Invalid(const std::string& message) {
  return Fail(absl::InvalidArgumentError(message));
}

absl::StatusOr<std::vector<std::int64_t>> Communicator::Shares(
    absl::string_view call, std::int64_t total, absl::Span<const std::int64_t> counts) {
  if (counts.empty()) {
    if (total % size() != 0) {
      return Invalid(absl::StrCat(call, ": ", total, " elements do not make ", size(),
                                  " equal shares; pass the counts"));
    }
    return std::vector<std::int64_t>(static_cast<std::size_t>(size()), total / size());
  }
  const std::int64_t sum = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  if (static_cast<int>(counts.size()) != size() || sum != total ||
      std::any_of(counts.begin(), counts.end(), [](std::int64_t n) { return n < 0; })) {
    return Invalid(absl::StrCat(call, ": ", counts.size(), " counts that add up to ", sum, ", for ",
                                size(), " ranks and ", total, " elements"));
  }
  return std::vector<std::int64_t>(counts.begin(), counts.end());
}

absl::Status Communicator::ReduceScatter(ConstElements in, Elements out,
                                         absl::Span<const std::int64_t> counts, DType add_in) {
  const std::string call = absl::StrCat(Call("reduce_scatter", in.count, in.dtype), " added in ",
                                        Name(in.dtype == DType::kBF16 ? add_in : in.dtype));
  if (in.dtype != out.dtype || !CanAdd(in.dtype)) {
    return Invalid(absl::StrCat(call, " into ", Name(out.dtype),
                                ": a sum needs F32, F64, BF16, I32 or I64 on both sides"));
  }
  HW_ASSIGN_OR_RETURN(const std::vector<std::int64_t> shares, Shares(call, in.count, counts));
  if (out.count != shares[static_cast<std::size_t>(rank())]) {
    return Invalid(absl::StrCat(call, ": the share of rank ", rank(), " has ",
                                shares[static_cast<std::size_t>(rank())], " elements, the result ",
                                out.count));
  }
  std::vector<std::byte> parts(static_cast<std::size_t>(out.bytes() * size()));
  const std::vector<std::int64_t> mine(static_cast<std::size_t>(size()), out.count);
  HW_RETURN_IF_ERROR(
      Exchange(call, Pieces<Bytes>(static_cast<const std::byte*>(in.data), shares, in.dtype),
               Pieces<MutableBytes>(parts.data(), mine, in.dtype)));
  Add(parts.data(), size(), out, add_in);
  return absl::OkStatus();
}

absl::Status Communicator::AllReduce(ConstElements in, Elements out, DType add_in) {
  if (in.count != out.count || in.dtype != out.dtype) {
    return Invalid(absl::StrCat(Call("all_reduce", in.count, in.dtype), " into ", out.count, " ",
                                Name(out.dtype), ": both sides must be alike"));
  }
  // Each rank adds up one share, then all gather the shares.
  std::vector<std::int64_t> shares;
  for (std::int64_t r = 0; r < size(); ++r) {
    shares.push_back(in.count * (r + 1) / size() - in.count * r / size());
  }
  const std::int64_t begin = in.count * rank() / size();
  const Elements share(static_cast<std::byte*>(out.data) + begin * SizeOf(in.dtype),
                       shares[static_cast<std::size_t>(rank())], in.dtype);
  // In place too: when the exchange inside returns, nobody reads this rank's input any more.
  HW_RETURN_IF_ERROR(ReduceScatter(in, share, shares, add_in));
  return AllGather(ConstElements(share.data, share.count, share.dtype), out, shares);
}

absl::Status Communicator::AllGather(ConstElements in, Elements out,
                                     absl::Span<const std::int64_t> counts) {
  const std::string call = Call("all_gather", out.count, out.dtype);
  HW_ASSIGN_OR_RETURN(const std::vector<std::int64_t> shares, Shares(call, out.count, counts));
  if (in.dtype != out.dtype || in.count != shares[static_cast<std::size_t>(rank())]) {
    return Invalid(absl::StrCat(call, ": rank ", rank(), " gives ", in.count, " ", Name(in.dtype),
                                ", expected ", shares[static_cast<std::size_t>(rank())]));
  }
  const Bytes mine(static_cast<const std::byte*>(in.data), static_cast<std::size_t>(in.bytes()));
  const std::vector<Bytes> send(static_cast<std::size_t>(size()), mine);
  return Exchange(call, send,
                  Pieces<MutableBytes>(static_cast<std::byte*>(out.data), shares, out.dtype));
}

absl::Status Communicator::AllToAll(ConstElements in, absl::Span<const std::int64_t> send_counts,
                                    Elements out, absl::Span<const std::int64_t> receive_counts) {
  // Sizes may differ from rank to rank; the dtype may not.
  const std::string call = absl::StrCat("all_to_all of ", Name(in.dtype));
  if (in.dtype != out.dtype) {
    return Invalid(absl::StrCat(call, " into ", Name(out.dtype), ": both sides must be alike"));
  }
  if (send_counts.empty() || receive_counts.empty()) {
    return Invalid(absl::StrCat(call, ": it needs both tables of counts"));
  }
  HW_ASSIGN_OR_RETURN(const std::vector<std::int64_t> send, Shares(call, in.count, send_counts));
  HW_ASSIGN_OR_RETURN(const std::vector<std::int64_t> receive,
                      Shares(call, out.count, receive_counts));
  return Exchange(call, Pieces<Bytes>(static_cast<const std::byte*>(in.data), send, in.dtype),
                  Pieces<MutableBytes>(static_cast<std::byte*>(out.data), receive, out.dtype));
}

absl::Status Communicator::Broadcast(int root, Elements data) {
  const std::string call =
      absl::StrCat(Call("broadcast", data.count, data.dtype), " from rank ", root);
  if (root < 0 || root >= size()) {
    return Invalid(absl::StrCat(call, ": there are ", size(), " ranks"));
  }
  const auto bytes = static_cast<std::size_t>(data.bytes());
  auto* const memory = static_cast<std::byte*>(data.data);
  std::vector<Bytes> send(static_cast<std::size_t>(size()));
  std::vector<MutableBytes> receive(static_cast<std::size_t>(size()));
  if (rank() == root) {
    std::fill(send.begin(), send.end(), Bytes(memory, bytes));
    send[static_cast<std::size_t>(root)] = {};
  } else {
    receive[static_cast<std::size_t>(root)] = MutableBytes(memory, bytes);
  }
  return Exchange(call, send, receive);
}

absl::Status Communicator::Barrier() {
  const std::vector<Bytes> send(static_cast<std::size_t>(size()));
  const std::vector<MutableBytes> receive(static_cast<std::size_t>(size()));
  return Exchange("barrier", send, receive);
}

}  // namespace headwise
