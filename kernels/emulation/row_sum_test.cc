#include "kernels/emulation/testing/row_sum.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/emulation/emulation.h"

namespace headwise::emulation {
namespace {

constexpr int kRows = 5, kWidth = 1000;

struct Result {
  std::vector<float> sums = std::vector<float>(kRows);
  unsigned positive = 0;
  absl::Status status;
  Traffic read, written;
};

std::vector<float> Input() {
  std::vector<float> x(kRows * kWidth);
  for (int i = 0; i < kRows * kWidth; ++i) x[i] = (i * 37 % 1001 - 500) * 0.1f;
  return x;
}

Result RunRowSum(const Options& options, int threads) {
  const std::vector<float> x = Input();
  Result r;
  Session session(options);
  session.AddRegion("x", x.data(), x.size() * sizeof(float), Access::kRead);
  session.AddRegion("sums", r.sums.data(), r.sums.size() * sizeof(float), Access::kReadWrite);
  session.AddRegion("positive", &r.positive, sizeof(unsigned), Access::kReadWrite);
  r.status =
      cuda_emulated::RowSum(x.data(), r.sums.data(), &r.positive, kRows, kWidth, threads, nullptr);
  r.read = session.traffic("x");
  r.written = session.traffic("sums");
  return r;
}

TEST(RowSum, SumsInEveryOrder) {
  for (const int threads : {32, 96, 512}) {
    const Result first = RunRowSum({}, threads);
    ASSERT_TRUE(first.status.ok()) << first.status;
    unsigned positive = 0;
    for (const float value : Input()) positive += value > 0;
    EXPECT_EQ(first.positive, positive);
    for (int order = 0; order < 6; ++order) {
      const Result r = RunRowSum({.order = order == 0   ? ThreadOrder::kReverse
                                           : order == 1 ? ThreadOrder::kForward
                                                        : ThreadOrder::kRandom,
                                  .seed = static_cast<std::uint64_t>(order),
                                  .os_threads = 1 + order % 3,
                                  .preempt = order > 1 ? 0.3 : 0,
                                  .count_traffic = true},
                                 threads);
      ASSERT_TRUE(r.status.ok()) << r.status;
      EXPECT_EQ(r.sums, first.sums) << order;
      EXPECT_EQ(r.positive, positive);
      EXPECT_EQ(r.read.loads, kRows * kWidth * 4);
      EXPECT_EQ(r.written.stores, kRows * 4);
    }
  }
}

}  // namespace
}  // namespace headwise::emulation
