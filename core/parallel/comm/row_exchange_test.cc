#include "core/parallel/comm/row_exchange.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/split_mix.h"
#include "core/base/status_macros.h"
#include "core/parallel/comm/thread_ranks.h"
#include "gtest/gtest.h"

namespace headwise {
namespace {

using ::absl::StrContains;
using Counts = std::vector<std::int64_t>;

// counts[rank][expert].
using Table = std::vector<Counts>;

// Many zeros; where `sparse`, a rank without rows and an expert without any as well.
Table RandomTable(int ranks, std::int64_t experts, bool sparse, std::uint64_t seed) {
  Table table(static_cast<std::size_t>(ranks), Counts(static_cast<std::size_t>(experts)));
  for (std::size_t r = 0; r < table.size(); ++r) {
    for (std::size_t e = 0; e < table[r].size(); ++e) {
      const std::uint64_t random = NextSplitMix(seed);
      table[r][e] = random % 3 == 0 ? 0 : static_cast<std::int64_t>(random % 11);
      if (sparse && (r + 1 == table.size() || e == 1)) table[r][e] = 0;
    }
  }
  return table;
}

std::int64_t Total(const Counts& counts) {
  std::int64_t sum = 0;
  for (const std::int64_t n : counts) sum += n;
  return sum;
}

// Random bits, NaNs and all.
Tensor RandomRows(std::int64_t rows, std::int64_t width, DType dtype, std::uint64_t seed) {
  Tensor tensor = Tensor::Empty({rows, width}, dtype, Device::kCpu);
  auto* const bytes = static_cast<std::uint8_t*>(tensor.raw_data());
  for (std::int64_t i = 0; i < tensor.bytes(); ++i) {
    bytes[i] = static_cast<std::uint8_t>(NextSplitMix(seed) >> 13);
  }
  return tensor;
}

bool Equal(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
         std::memcmp(a.raw_data(), b.raw_data(), static_cast<std::size_t>(a.bytes())) == 0;
}

// What one process would do with all ranks' rows, one after another: a stable sort by expert. The
// rows of experts [begin, end).
Tensor SortedByExpert(const Table& table, const std::vector<Tensor>& rows, std::size_t begin,
                      std::size_t end) {
  std::vector<std::pair<std::size_t, const std::uint8_t*>> all;  // expert, row
  const std::int64_t width = rows[0].dim(1), bytes = width * SizeOf(rows[0].dtype());
  for (std::size_t r = 0; r < table.size(); ++r) {
    const auto* row = static_cast<const std::uint8_t*>(rows[r].raw_data());
    for (std::size_t e = 0; e < table[r].size(); ++e) {
      for (std::int64_t i = 0; i < table[r][e]; ++i, row += bytes) all.emplace_back(e, row);
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::erase_if(all, [&](const auto& row) { return row.first < begin || row.first >= end; });
  Tensor sorted =
      Tensor::Empty({static_cast<std::int64_t>(all.size()), width}, rows[0].dtype(), Device::kCpu);
  auto* to = static_cast<std::uint8_t*>(sorted.raw_data());
  for (std::size_t i = 0; bytes > 0 && i < all.size(); ++i, to += bytes) {
    std::memcpy(to, all[i].second, static_cast<std::size_t>(bytes));
  }
  return sorted;
}

void ExpectSortsAndReturns(const Table& table, std::int64_t width, DType dtype) {
  const std::string what = absl::StrCat(table.size(), " ranks, ", table[0].size(),
                                        " experts, width ", width, " of ", Name(dtype));
  std::vector<Tensor> rows;
  for (std::size_t r = 0; r < table.size(); ++r) {
    rows.push_back(RandomRows(Total(table[r]), width, dtype, r + 1));
  }
  const std::size_t held = table[0].size() / table.size();
  std::atomic<int> wrong = 0;
  const absl::Status status =
      RunThreadRanks(static_cast<int>(table.size()), [&](Communicator& comm) -> absl::Status {
        const auto rank = static_cast<std::size_t>(comm.rank());
        HW_ASSIGN_OR_RETURN(const RowExchange exchange, RowExchange::Create(comm, table[rank]));
        const Tensor expected = SortedByExpert(table, rows, rank * held, (rank + 1) * held);
        wrong += exchange.received_rows() != expected.dim(0);
        wrong += exchange.sent_rows() != rows[rank].dim(0);
        wrong += exchange.received().size() != held;
        for (std::size_t e = 0; e < held; ++e) {
          std::int64_t of_expert = 0;
          for (const Counts& counts : table) of_expert += counts[rank * held + e];
          wrong += exchange.received()[e] != of_expert;
        }
        const Tensor there = RandomRows(exchange.received_rows(), width, dtype, 99);
        HW_RETURN_IF_ERROR(exchange.ToExperts(rows[rank], there));
        wrong += !Equal(there, expected);
        // What the experts return is theirs: other rows than they were sent.
        const Tensor back = RandomRows(exchange.sent_rows(), width, dtype, 98);
        auto* const bytes = static_cast<std::uint8_t*>(there.raw_data());
        for (std::int64_t i = 0; i < there.bytes(); ++i) bytes[i] ^= 0x5a;
        HW_RETURN_IF_ERROR(exchange.ToTokens(there, back));
        auto* const returned = static_cast<std::uint8_t*>(back.raw_data());
        for (std::int64_t i = 0; i < back.bytes(); ++i) returned[i] ^= 0x5a;
        wrong += !Equal(back, rows[rank]);
        return absl::OkStatus();
      });
  EXPECT_TRUE(status.ok()) << what << ": " << status;
  EXPECT_EQ(wrong, 0) << what;
}

TEST(RowExchange, SortsAsOneProcessWouldAndBringsEveryRowBack) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const std::int64_t held : {1, 2, 5}) {
      for (const bool sparse : {false, true}) {
        const Table table = RandomTable(ranks, ranks * held, sparse, 17);
        for (const std::int64_t width : {0, 1, 7, 64}) {
          ExpectSortsAndReturns(table, width, DType::kF32);
        }
        for (const DType dtype : {DType::kBF16, DType::kF64}) {
          ExpectSortsAndReturns(table, 3, dtype);
        }
      }
    }
  }
}

TEST(RowExchange, OneRankMaySendAndReceiveEverything) {
  Table table(3, Counts(6, 0));
  table[1] = {0, 0, 0, 0, 5, 9};  // all rows are rank 1's, all experts rank 2's
  ExpectSortsAndReturns(table, 7, DType::kF32);
  ExpectSortsAndReturns(Table(3, Counts(6, 0)), 7, DType::kF32);  // nothing at all
  ExpectSortsAndReturns(Table(3, Counts()), 7, DType::kF32);      // no experts
}

TEST(RowExchange, CountsThatDoNotFitAreRefusedOnAllRanks) {
  const auto create = [](const Table& table) {
    std::atomic<int> refused = 0;
    absl::Status status = RunThreadRanks(static_cast<int>(table.size()), [&](Communicator& comm) {
      const auto exchange = RowExchange::Create(comm, table[static_cast<std::size_t>(comm.rank())]);
      refused += !exchange.ok();
      return exchange.status();
    });
    EXPECT_EQ(refused, static_cast<int>(table.size())) << status;
    return status;
  };
  const absl::Status uneven = create({{1, 2, 3}, {1, 2, 3}});
  EXPECT_EQ(uneven.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(StrContains(uneven.message(), "2 ranks cannot hold equal numbers of 3 experts"))
      << uneven;
  const absl::Status negative = create({{1, 2, 3, 4}, {1, 2, -3, 4}});
  EXPECT_EQ(negative.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(StrContains(negative.message(), "-3 rows for expert 2 of 4")) << negative;
  EXPECT_FALSE(create({{1, 2, 3, 4}, {1, 2}}).ok());
}

TEST(RowExchange, TensorsThatDoNotFitAreRefused) {
  const Tensor good_in = Tensor::Zeros({3, 4}, DType::kF32, Device::kCpu);
  const Tensor good_out = Tensor::Zeros({6, 4}, DType::kF32, Device::kCpu);
  // Two ranks; each sends three rows, rank 0 receives all six. It is rank 0 that errs.
  const auto refused = [&](const Tensor& rows, const Tensor& out, bool back) {
    const absl::Status status = RunThreadRanks(2, [&](Communicator& comm) -> absl::Status {
      HW_ASSIGN_OR_RETURN(const RowExchange exchange, RowExchange::Create(comm, {3, 0}));
      const Tensor none = Tensor::Zeros({0, 4}, DType::kF32, Device::kCpu);
      if (comm.rank() == 1) {
        return back ? exchange.ToTokens(none, good_in.Clone())
                    : exchange.ToExperts(good_in.Clone(), none);
      }
      return back ? exchange.ToTokens(rows, out) : exchange.ToExperts(rows, out);
    });
    return std::string(status.message());
  };
  EXPECT_EQ(refused(good_in, good_out, false), "");
  EXPECT_EQ(refused(good_out, good_in, true), "");
  const std::string takes = ": it takes [3, width] into [6, width], of one dtype, on cpu";
  const auto cpu = [](Shape shape, DType dtype = DType::kF32) {
    return Tensor::Zeros(std::move(shape), dtype, Device::kCpu);
  };
  EXPECT_EQ(refused(cpu({2, 4}), good_out, false),
            "rank 0: ToExperts of [2, 4] F32 on cpu into [6, 4] F32 on cpu" + takes);
  EXPECT_TRUE(StrContains(refused(good_in, cpu({5, 4}), false), takes));
  EXPECT_TRUE(StrContains(refused(good_in, cpu({6, 5}), false), takes));
  EXPECT_TRUE(StrContains(refused(good_in, cpu({6, 4}, DType::kBF16), false), takes));
  EXPECT_TRUE(StrContains(refused(cpu({3, 2, 2}), good_out, false), takes));
  EXPECT_TRUE(StrContains(refused(good_in, cpu({6, 2, 2}), false), takes));
  EXPECT_TRUE(StrContains(refused(Tensor(), good_out, false), "ToExperts of an undefined tensor"));
  EXPECT_TRUE(StrContains(
      refused(good_in, Tensor::Empty({6, 4}, DType::kF32, Device::kMeta), false), "on meta"));
  EXPECT_TRUE(StrContains(refused(good_in, good_out, true),
                          "ToTokens of [3, 4] F32 on cpu into [6, 4] F32 on cpu: it takes [6, "
                          "width] into [3, width]"));
  // Another width than the other rank's.
  EXPECT_NE(refused(cpu({3, 5}), cpu({6, 5}), false), "");
}

}  // namespace
}  // namespace headwise
