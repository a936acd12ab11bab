#include "core/parallel/comm/thread_ranks.h"

#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/split_mix.h"
#include "core/base/status_macros.h"
#include "core/dtype/dtype.h"
#include "core/parallel/comm/communicator.h"
#include "gtest/gtest.h"

namespace headwise {
namespace {

using ::absl::StrContains;
using Counts = std::vector<std::int64_t>;

constexpr int kRankCounts[] = {1, 2, 3, 4, 5, 8};

// Values of many magnitudes and signs, with -0, infinities, a NaN and subnormals among them.
template <typename T>
std::vector<T> Values(std::int64_t count, int rank) {
  std::uint64_t state = static_cast<std::uint64_t>(rank) + 1;
  std::vector<T> values;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint64_t bits = NextSplitMix(state);
    if constexpr (std::is_integral_v<T>) {
      values.push_back(static_cast<T>(bits % 1000) - 500);
    } else {
      double x =
          std::ldexp(static_cast<double>(bits >> 11) * 0x1p-53 - 0.5, static_cast<int>(bits % 24));
      if (i % 97 == 5) x = -0.0;
      if (i % 101 == 7) x = std::ldexp(x, -140);
      if (i == 11) x = std::numeric_limits<double>::infinity();
      if (i == 13 && rank == 1) x = std::numeric_limits<double>::quiet_NaN();
      if constexpr (std::is_same_v<T, BFloat16>) {
        values.push_back(RoundToBFloat16(static_cast<float>(x)));
      } else {
        values.push_back(static_cast<T>(x));
      }
    }
  }
  return values;
}

// What a sum over ranks is, written as the definition of the adjacent-pair tree says, with `add`.
template <typename C, typename Add>
C Tree(std::vector<C> leaves, Add add) {
  leaves.resize(std::bit_ceil(leaves.size()), C(0));
  while (leaves.size() > 1) {
    std::vector<C> next;
    for (std::size_t i = 0; i < leaves.size(); i += 2) {
      next.push_back(add(leaves[i], leaves[i + 1]));
    }
    leaves = next;
  }
  return leaves[0];
}

template <typename T>
T ReferenceSum(const std::vector<std::vector<T>>& inputs, std::size_t i, DType add_in) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    std::vector<float> leaves;
    leaves.reserve(inputs.size());
    for (const auto& input : inputs) leaves.push_back(ToFloat(input[i]));
    return RoundToBFloat16(Tree(leaves, [&](float a, float b) {
      return add_in == DType::kBF16 ? ToFloat(RoundToBFloat16(a + b)) : a + b;
    }));
  } else {
    std::vector<T> leaves;
    leaves.reserve(inputs.size());
    for (const auto& input : inputs) leaves.push_back(input[i]);
    return Tree(leaves, [](T a, T b) { return a + b; });
  }
}

// Equal bits; any NaN equals any NaN.
template <typename T>
bool SameBits(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) && std::isnan(b)) return true;
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    if (std::isnan(ToFloat(a)) && std::isnan(ToFloat(b))) return true;
  }
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

template <typename T>
void CheckSums(int ranks, std::int64_t count, DType add_in = DType::kF32) {
  std::vector<std::vector<T>> inputs;
  inputs.reserve(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) inputs.push_back(Values<T>(count, r));
  std::vector<T> expected;
  for (std::int64_t i = 0; i < count; ++i) {
    expected.push_back(ReferenceSum(inputs, static_cast<std::size_t>(i), add_in));
  }
  // Uneven shares, the first of them empty.
  Counts shares(static_cast<std::size_t>(ranks), 0);
  for (std::int64_t i = 0; i < count; ++i) {
    ++shares[static_cast<std::size_t>(ranks == 1 ? 0 : 1 + i % (ranks - 1))];
  }
  std::atomic<int> differences = 0;
  const absl::Status status = RunThreadRanks(ranks, [&](Communicator& comm) -> absl::Status {
    const auto rank = static_cast<std::size_t>(comm.rank());
    std::vector<T> sum(static_cast<std::size_t>(count)), in_place = inputs[rank];
    HW_RETURN_IF_ERROR(comm.AllReduce(inputs[rank], absl::MakeSpan(sum), add_in));
    HW_RETURN_IF_ERROR(comm.AllReduce(in_place, absl::MakeSpan(in_place), add_in));
    std::vector<T> share(static_cast<std::size_t>(shares[rank]));
    HW_RETURN_IF_ERROR(comm.ReduceScatter(inputs[rank], absl::MakeSpan(share), shares, add_in));
    std::size_t begin = 0;
    for (std::size_t r = 0; r < rank; ++r) begin += static_cast<std::size_t>(shares[r]);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      differences += !SameBits(sum[i], expected[i]) + !SameBits(in_place[i], expected[i]);
    }
    for (std::size_t i = 0; i < share.size(); ++i) {
      differences += !SameBits(share[i], expected[begin + i]);
    }
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(differences, 0) << ranks << " ranks, " << count << " of " << kDType<T>;
}

TEST(ThreadRanks, SumsHaveTheBitsOfASerialTree) {
  for (const int ranks : kRankCounts) {
    for (const std::int64_t count : {0, 1, 2, 63, 64, 65, 257, 8 * 1024 + 3}) {
      CheckSums<float>(ranks, count);
      CheckSums<BFloat16>(ranks, count);
    }
    CheckSums<BFloat16>(ranks, 1000, DType::kBF16);
    CheckSums<double>(ranks, 1001);
    CheckSums<std::int32_t>(ranks, 65);
    CheckSums<std::int64_t>(ranks, 65);
  }
}

// The order matters: a sum in another order than the tree's would not pass the test above.
TEST(ThreadRanks, TheOrderOfTheRanksShowsInTheBits) {
  const std::vector<std::vector<float>> inputs = {{1e8F}, {1.0F}, {-1e8F}, {1.0F}};
  EXPECT_EQ(ReferenceSum(inputs, 0, DType::kF32), 0.0F);
  EXPECT_EQ(((inputs[0][0] + inputs[2][0]) + inputs[1][0]) + inputs[3][0], 2.0F);
  CheckSums<float>(4, 300);
}

TEST(ThreadRanks, MovesWhatTheTablesSay) {
  for (const int ranks : kRankCounts) {
    // Rank s sends (s + r) % 3 elements to rank r, numbered by s, r and place.
    const auto count = [](int s, int r) { return std::int64_t{(s + r) % 3}; };
    const auto element = [](int s, int r, std::int64_t i) {
      return static_cast<std::int32_t>(10000 * s + 100 * r + i);
    };
    std::atomic<int> wrong = 0;
    const absl::Status status = RunThreadRanks(ranks, [&](Communicator& comm) -> absl::Status {
      const int me = comm.rank();
      std::vector<std::int32_t> send, expected;
      Counts send_counts, receive_counts;
      for (int r = 0; r < ranks; ++r) {
        send_counts.push_back(count(me, r));
        receive_counts.push_back(count(r, me));
        for (std::int64_t i = 0; i < count(me, r); ++i) send.push_back(element(me, r, i));
        for (std::int64_t i = 0; i < count(r, me); ++i) expected.push_back(element(r, me, i));
      }
      std::vector<std::int32_t> received(expected.size());
      HW_RETURN_IF_ERROR(
          comm.AllToAll(send, send_counts, absl::MakeSpan(received), receive_counts));
      wrong += received != expected;

      // Gathering of uneven shares: rank r gives r elements.
      Counts shares;
      std::vector<std::int32_t> all;
      for (int r = 0; r < ranks; ++r) {
        shares.push_back(r);
        all.insert(all.end(), static_cast<std::size_t>(r), element(r, 0, 0));
      }
      const std::vector<std::int32_t> mine(static_cast<std::size_t>(me), element(me, 0, 0));
      std::vector<std::int32_t> gathered(all.size());
      HW_RETURN_IF_ERROR(comm.AllGather(mine, absl::MakeSpan(gathered), shares));
      wrong += gathered != all;

      for (int root = 0; root < ranks; ++root) {
        std::vector<std::int32_t> data(5, me);
        HW_RETURN_IF_ERROR(comm.Broadcast(root, absl::MakeSpan(data)));
        wrong += data != std::vector<std::int32_t>(5, root);
      }
      return comm.Barrier();
    });
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(wrong, 0) << ranks << " ranks";
  }
}

TEST(ThreadRanks, ABarrierHoldsEverybody) {
  std::atomic<int> before = 0, early = 0;
  const absl::Status status = RunThreadRanks(8, [&](Communicator& comm) -> absl::Status {
    for (int round = 1; round <= 50; ++round) {
      ++before;
      HW_RETURN_IF_ERROR(comm.Barrier());
      early += before < 8 * round;
      HW_RETURN_IF_ERROR(comm.Barrier());
    }
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(early, 0);
}

TEST(ThreadRanks, SubgroupsSumAmongThemselves) {
  // dp = 2, tp = 2: over tp {0, 1}, {2, 3}, then over dp {0, 2}, {1, 3}.
  std::atomic<int> wrong = 0;
  const absl::Status status = RunThreadRanks(4, [&](Communicator& world) -> absl::Status {
    const std::int64_t me = world.rank();
    HW_ASSIGN_OR_RETURN(const auto tp, world.Subgroup(Counts{me / 2 * 2, me / 2 * 2 + 1}));
    HW_ASSIGN_OR_RETURN(const auto dp, world.Subgroup(Counts{me % 2, me % 2 + 2}));
    wrong += tp->rank() != me % 2 || dp->rank() != me / 2 || tp->size() != 2;
    for (int round = 0; round < 50; ++round) {
      std::vector<std::int64_t> x = {std::int64_t{1} << (4 * me)};
      HW_RETURN_IF_ERROR(tp->AllReduce(x, absl::MakeSpan(x)));
      wrong += x[0] != (me < 2 ? 0x11 : 0x1100);
      HW_RETURN_IF_ERROR(dp->AllReduce(x, absl::MakeSpan(x)));
      wrong += x[0] != 0x1111;
    }
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(wrong, 0);
}

// What ranks 0.. get, joined; `body` runs on each.
std::string Failure(int ranks, absl::FunctionRef<absl::Status(Communicator&)> body) {
  std::vector<absl::Status> results(static_cast<std::size_t>(ranks));
  const absl::Status status = RunThreadRanks(ranks, [&](Communicator& comm) {
    return results[static_cast<std::size_t>(comm.rank())] = body(comm);
  });
  EXPECT_FALSE(status.ok());
  for (const absl::Status& result : results) {
    if (!result.ok()) {
      EXPECT_TRUE(StrContains(status.message(), result.message()) ||
                  StrContains(result.message(), status.message()))
          << result << " and " << status;
    }
  }
  return std::string(status.message());
}

TEST(ThreadRanks, AFailingRankFailsAllWithItsMessage) {
  std::atomic<int> failed = 0;
  EXPECT_EQ(Failure(4,
                    [&](Communicator& comm) -> absl::Status {
                      if (comm.rank() == 2) return absl::DataLossError("no data");
                      absl::Status status = comm.Barrier();
                      failed += !status.ok() && status.message() == "rank 2: no data";
                      // And so it stays.
                      EXPECT_EQ(comm.Barrier(), status);
                      return status;
                    }),
            "rank 2: no data");
  EXPECT_EQ(failed, 3);
  EXPECT_EQ(Failure(2,
                    [](Communicator& comm) -> absl::Status {
                      if (comm.rank() == 1) return comm.Fail(absl::AbortedError("stop"));
                      return comm.Barrier();
                    }),
            "rank 1: stop");
}

TEST(ThreadRanks, CallsThatDoNotFitAreErrors) {
  EXPECT_EQ(Failure(2,
                    [](Communicator& comm) -> absl::Status {
                      std::vector<float> x(4);
                      return comm.rank() == 0 ? comm.Barrier()
                                              : comm.Broadcast(0, absl::MakeSpan(x));
                    }),
            "rank 1 calls broadcast of 4 F32 from rank 0 where rank 0 calls barrier");
  EXPECT_EQ(Failure(2,
                    [](Communicator& comm) -> absl::Status {
                      std::vector<float> x(static_cast<std::size_t>(4 + comm.rank()));
                      return comm.AllReduce(x, absl::MakeSpan(x));
                    }),
            "rank 1 calls reduce_scatter of 5 F32 added in F32 where rank 0 calls reduce_scatter "
            "of 4 F32 added in F32");
  EXPECT_EQ(Failure(2,
                    [](Communicator& comm) -> absl::Status {
                      std::vector<float> in(2), out(3);
                      const Counts send = {1, 1};
                      const Counts receive = {1, 2};
                      return comm.AllToAll(in, send, absl::MakeSpan(out), receive);
                    }),
            "all_to_all of F32: rank 1 sends 4 bytes to rank 0, which expects 8");
}

TEST(ThreadRanks, BadArgumentsAreErrors) {
  const auto bad = [](absl::FunctionRef<absl::Status(Communicator&)> body) {
    return Failure(2, [&](Communicator& comm) -> absl::Status {
      if (comm.rank() == 0) return comm.Barrier();
      return body(comm);
    });
  };
  std::vector<float> x(3), y(2);
  std::vector<std::uint8_t> bytes(2);
  EXPECT_EQ(bad([&](Communicator& comm) { return comm.AllReduce(x, absl::MakeSpan(y)); }),
            "rank 1: all_reduce of 3 F32 into 2 F32: both sides must be alike");
  EXPECT_EQ(bad([&](Communicator& comm) { return comm.ReduceScatter(x, absl::MakeSpan(y)); }),
            "rank 1: reduce_scatter of 3 F32 added in F32: 3 elements do not make 2 equal shares; "
            "pass the counts");
  EXPECT_TRUE(StrContains(
      bad([&](Communicator& comm) { return comm.AllReduce(bytes, absl::MakeSpan(bytes)); }),
      "a sum needs F32"));
  EXPECT_TRUE(StrContains(bad([&](Communicator& comm) {
                            return comm.AllGather(x, absl::MakeSpan(x), Counts{1, 1});
                          }),
                          "2 counts that add up to 2, for 2 ranks and 3 elements"));
  EXPECT_TRUE(StrContains(bad([&](Communicator& comm) {
                            return comm.AllGather(y, absl::MakeSpan(y), Counts{3, -1});
                          }),
                          "counts"));
  EXPECT_TRUE(
      StrContains(bad([&](Communicator& comm) { return comm.Broadcast(2, absl::MakeSpan(x)); }),
                  "there are 2 ranks"));
  EXPECT_TRUE(
      StrContains(bad([&](Communicator& comm) { return comm.Subgroup(Counts{0}).status(); }),
                  "rank 1: group of ranks 0 asked for by rank 1 of 2"));
}

TEST(ThreadRanks, NobodyWaitsForEver) {
  // A rank returns while another waits for it.
  EXPECT_EQ(Failure(2,
                    [](Communicator& comm) {
                      return comm.rank() == 1 ? absl::OkStatus() : comm.Barrier();
                    }),
            "no rank can go on: rank 0 waits in barrier with ranks 0,1; finished: rank 1");
  // Two ranks enter two groups in opposite order.
  const std::string message = Failure(3, [](Communicator& world) -> absl::Status {
    const int me = world.rank();
    if (me == 1) return world.Barrier();
    HW_ASSIGN_OR_RETURN(const auto pair, world.Subgroup(Counts{0, 2}));
    return me == 0 ? pair->Barrier() : world.Barrier();
  });
  EXPECT_EQ(message,
            "no rank can go on: rank 0 waits in barrier with ranks 0,2; rank 1 waits in barrier "
            "with ranks 0,1,2; rank 2 waits in barrier with ranks 0,1,2");
}

}  // namespace
}  // namespace headwise
