// The CUDA kernels of grouping, dispatch and combination, emulated, have the bits of the CPU's: odd
// sizes, layouts and values, empty experts and full ones, in three thread orders, with every buffer
// a region whose gaps are out of bounds; and experts out of range are found and left out.
//
// Break it to believe it: count the choices up to a choice's own instead of those before it, scan
// without earlier tiles, start CombineForward at the last choice, or sum CombineBackward's pairs in
// one chain.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/dtype/dtype.h"
#include "core/tensor/row_span.h"
#include "gtest/gtest.h"
#include "kernels/common/testing/emulated.h"
#include "kernels/common/testing/kernel_testing.h"
#include "kernels/common/thread_pool.h"
#include "kernels/emulation/emulation.h"
#include "kernels/moe/cuda.h"
#include "kernels/moe/grouping.h"

namespace headwise {
namespace {

constexpr std::uint64_t kNone = ~std::uint64_t{0};

struct Shape {
  std::int64_t tokens, chosen, experts;
  bool one_expert = false;  // every token's choices begin with expert 1
};

// Distinct choices; experts of odd number are rare. Strided: gaps of -7.
TestMatrix<std::int32_t> Choices(const Shape& s) {
  std::mt19937_64 random(s.tokens + 31 * s.experts);
  TestMatrix<std::int32_t> choices(s.tokens, s.chosen, Layout::kStrided);
  std::vector<std::int32_t> order(s.experts);
  for (std::int64_t t = 0; t < s.tokens; ++t) {
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    if (random() % 4 != 0) {
      std::stable_sort(order.begin(), order.end(), [](int a, int b) { return a % 2 < b % 2; });
    }
    if (s.one_expert)
      std::stable_partition(order.begin(), order.end(), [](int e) { return e == 1; });
    for (std::int64_t j = 0; j < s.chosen; ++j) choices.at(t, j) = order[j];
  }
  return choices;
}

struct Grouped {
  explicit Grouped(const Shape& s)
      : offsets(s.experts + 1, -5),
        row_of(s.tokens * s.chosen, -5),
        scratch(GroupByExpertScratch(s.tokens * s.chosen, s.experts), -5) {}
  absl::Status Run(emulation::Session& session, const TestMatrix<std::int32_t>& choices) {
    AddMatrix(session, "experts", choices.view());
    AddArray(session, "offsets", absl::MakeSpan(offsets));
    AddArray(session, "row_of", absl::MakeSpan(row_of));
    AddArray(session, "scratch", absl::MakeSpan(scratch));
    AddArray(session, "first_bad_expert", absl::MakeSpan(&bad, 1));
    return cuda_emulated::GroupByExpert(choices.view(), absl::MakeSpan(offsets),
                                        absl::MakeSpan(row_of), scratch.data(), &bad, nullptr);
  }

  std::vector<std::int64_t> offsets, row_of;
  std::vector<std::int32_t> scratch;
  std::uint64_t bad = kNone;
};

void ExpectCpuGroups(const Shape& s, absl::Span<const emulation::Options> orders = kThreadOrders) {
  const TestMatrix<std::int32_t> choices = Choices(s);
  const ExpertGroups expected = GroupByExpert(choices.view(), s.experts);
  for (const emulation::Options& order : orders) {
    SCOPED_TRACE(testing::Message() << s.tokens << " tokens, " << s.chosen << " of " << s.experts
                                    << ", order " << static_cast<int>(order.order));
    Grouped actual(s);
    std::vector<float> loads(s.experts, -1.0f);
    emulation::Session session(order);
    AddArray(session, "loads", absl::MakeSpan(loads));
    ASSERT_EQ(actual.Run(session, choices), absl::OkStatus());
    ASSERT_EQ(cuda_emulated::CountLoads(actual.offsets, absl::MakeSpan(loads), nullptr),
              absl::OkStatus());
    ASSERT_EQ(actual.offsets, expected.offsets);
    ASSERT_EQ(actual.row_of, expected.row_of);
    for (std::int64_t e = 0; e < s.experts; ++e) {
      ASSERT_EQ(loads[e], static_cast<float>(expected.count(e)));
    }
    EXPECT_EQ(actual.bad, kNone);
  }
}

TEST(EmulatedGrouping, IsTheCpus) {
  for (const std::int64_t tokens : {0, 1, 2, 63, 64, 65, 257}) {
    ExpectCpuGroups({tokens, 1, 1});
    ExpectCpuGroups({tokens, 2, 3});
    ExpectCpuGroups({tokens, 8, 8});
    ExpectCpuGroups({tokens, 5, 64});
  }
  ExpectCpuGroups({100, 64, 64}, absl::MakeConstSpan(kThreadOrders).subspan(2));
  ExpectCpuGroups({40, 7, 600}, absl::MakeConstSpan(kThreadOrders).subspan(2));
  ExpectCpuGroups({1100, 1, 8, /*one_expert=*/true});
}

// More tiles of choices than the scan loads at once.
TEST(EmulatedGrouping, IsTheCpusOverManyTiles) {
  ExpectCpuGroups({5000, 2, 5}, absl::MakeConstSpan(kThreadOrders).first(1));
}

TEST(EmulatedGrouping, ForSanitizersIsTheCpus) {
  ExpectCpuGroups({350, 3, 8}, absl::MakeConstSpan(kThreadOrders).subspan(2));
}

TEST(EmulatedGrouping, ExpertsOutOfRangeAreReportedAndLeftOut) {
  const Shape s = {600, 2, 8};
  for (const std::int32_t wrong : {-1, 8, -2147483647}) {
    TestMatrix<std::int32_t> choices = Choices(s);
    choices.at(550, 1) = choices.at(70, 0) = choices.at(90, 0) = wrong;
    Grouped actual(s);
    emulation::Session session(kThreadOrders[2]);
    ASSERT_EQ(actual.Run(session, choices), absl::OkStatus());
    EXPECT_EQ(actual.bad, 70);
    // The others' rows, as if these choices were not there.
    std::vector<std::int32_t> kept;
    for (std::int64_t i = 0; i < 1200; ++i) {
      const std::int32_t expert = choices.at(i / 2, i % 2);
      if (expert != wrong) kept.push_back(expert);
    }
    const ExpertGroups expected = GroupByExpert(
        RowSpan<const std::int32_t>(kept.data(), static_cast<std::int64_t>(kept.size()), 1), 8);
    EXPECT_EQ(actual.offsets, expected.offsets);
    std::size_t next = 0;
    for (std::int64_t i = 0; i < 1200; ++i) {
      const bool left_out = choices.at(i / 2, i % 2) == wrong;
      ASSERT_EQ(actual.row_of[i], left_out ? -1 : expected.row_of[next++]) << "choice " << i;
    }
  }
}

// --- Dispatch and combine ------------------------------------------------------------------------

template <typename T>
struct Exchange {
  Exchange(const Shape& s, std::int64_t width, Layout layout, bool specials)
      : x(s.tokens, width, layout),
        dy(x),
        y(x),
        dx(x),
        rows(s.tokens * s.chosen, width, layout),
        outputs(rows),
        drows(rows),
        doutputs(rows),
        weights(s.tokens, s.chosen, layout),
        dweights(weights) {
    int seed = 0;
    for (TestMatrix<T>* m : {&x, &dy, &outputs, &drows}) {
      specials ? FillWithSpecials(*m, ++seed) : Fill(*m, ++seed);
    }
    Fill(weights, 9);
  }
  absl::Status Run(absl::Span<const std::int64_t> row_of, emulation::Session& session) {
    AddArray(session, "row_of", row_of);
    for (const auto& [name, m] :
         {std::pair{"x", &x}, {"dy", &dy}, {"outputs", &outputs}, {"drows", &drows}}) {
      AddMatrix(session, name, m->view());
    }
    for (const auto& [name, m] :
         {std::pair{"y", &y}, {"dx", &dx}, {"rows", &rows}, {"doutputs", &doutputs}}) {
      AddMatrix(session, name, m->span());
    }
    AddMatrix(session, "weights", weights.view());
    AddMatrix(session, "dweights", dweights.span());
    absl::Status status;
    status.Update(cuda_emulated::DispatchForward<T>(row_of, x.view(), rows.span(), nullptr));
    status.Update(cuda_emulated::CombineForward<T>(row_of, weights.view(), outputs.view(), y.span(),
                                                   nullptr));
    status.Update(cuda_emulated::CombineBackward<T>(row_of, weights.view(), outputs.view(),
                                                    dy.view(), doutputs.span(), dweights.span(),
                                                    nullptr));
    status.Update(cuda_emulated::DispatchBackward<T>(row_of, drows.view(), dx.span(), nullptr));
    return status;
  }
  void RunOnCpu(const ExpertGroups& groups) {
    ThreadPool pool(1);
    DispatchForward<T>(groups, x.view(), rows.span(), pool);
    CombineForward<T>(groups, weights.view(), outputs.view(), y.span(), pool);
    CombineBackward<T>(groups, weights.view(), outputs.view(), dy.view(), doutputs.span(),
                       dweights.span(), pool);
    DispatchBackward<T>(groups, drows.view(), dx.span(), pool);
  }

  TestMatrix<T> x, dy, y, dx;                    // [T, N]
  TestMatrix<T> rows, outputs, drows, doutputs;  // [T k, N]
  TestMatrix<float> weights, dweights;           // [T, k]
};

template <typename T>
void ExpectCpuExchange(const Shape& s, std::int64_t width, Layout layout, bool specials,
                       absl::Span<const emulation::Options> orders = kThreadOrders) {
  const ExpertGroups groups = GroupByExpert(Choices(s).view(), s.experts);
  const Exchange<T> problem(s, width, layout, specials);
  Exchange<T> expected = problem;
  expected.RunOnCpu(groups);
  for (const emulation::Options& order : orders) {
    SCOPED_TRACE(testing::Message() << s.tokens << " tokens, " << s.chosen << " chosen, width "
                                    << width << ", order " << static_cast<int>(order.order));
    Exchange<T> actual = problem;
    emulation::Session session(order);
    ASSERT_EQ(actual.Run(groups.row_of, session), absl::OkStatus());
    for (std::int64_t r = 0; r < actual.rows.rows(); ++r) {  // NaN's bits too
      ASSERT_EQ(
          std::memcmp(actual.rows.view().row(r), expected.rows.view().row(r), width * sizeof(T)), 0)
          << "row " << r;
    }
    ExpectSameBits<T>(actual.y.view(), expected.y.view(), "y");
    ExpectSameBits<T>(actual.doutputs.view(), expected.doutputs.view(), "doutputs");
    ExpectSameBits<float>(actual.dweights.view(), expected.dweights.view(), "dweights");
    ExpectSameBits<T>(actual.dx.view(), expected.dx.view(), "dx");
    for (const TestMatrix<T>* m : {&actual.rows, &actual.y, &actual.doutputs, &actual.dx}) {
      m->ExpectGapsUntouched();
    }
    actual.dweights.ExpectGapsUntouched();
    if (testing::Test::HasFailure()) return;
  }
}

template <typename T>
class EmulatedExchange : public testing::Test {};
using StorageTypes = testing::Types<float, BFloat16>;
TYPED_TEST_SUITE(EmulatedExchange, StorageTypes);

TYPED_TEST(EmulatedExchange, HasTheCpusBits) {
  for (const Layout layout : {Layout::kContiguous, Layout::kStrided, Layout::kAligned}) {
    for (const std::int64_t width : {0, 1, 7, 8, 63, 64, 130}) {
      ExpectCpuExchange<TypeParam>({9, 3, 8}, width, layout, /*specials=*/false);
    }
    ExpectCpuExchange<TypeParam>({40, 8, 8}, 24, layout, /*specials=*/true);
  }
  for (const std::int64_t tokens : {0, 1, 2, 63, 64, 65, 257}) {
    ExpectCpuExchange<TypeParam>({tokens, 2, 3}, 12, Layout::kContiguous, /*specials=*/false);
  }
}

TYPED_TEST(EmulatedExchange, ForSanitizersHasTheCpusBits) {
  ExpectCpuExchange<TypeParam>({10, 2, 3}, 12, Layout::kStrided, /*specials=*/true,
                               absl::MakeConstSpan(kThreadOrders).subspan(2));
}

TYPED_TEST(EmulatedExchange, ChoicesWithoutARowAreLeftOut) {
  using T = TypeParam;
  const Shape s = {5, 2, 3};
  ExpertGroups groups = GroupByExpert(Choices(s).view(), s.experts);
  Exchange<T> actual(s, 12, Layout::kStrided, /*specials=*/false);
  const std::int64_t row = groups.row_of[7];  // of token 3, choice 1
  Exchange<T> expected = actual;
  expected.weights.at(3, 1) = 0.0f;
  for (int n = 0; n < 12; ++n) expected.drows.at(row, n) = Narrow<T>(0.0f);
  expected.RunOnCpu(groups);
  for (int n = 0; n < 12; ++n) {
    expected.rows.at(row, n) = actual.rows.at(row, n);
    expected.doutputs.at(row, n) = actual.doutputs.at(row, n);
  }
  expected.dweights.at(3, 1) = actual.dweights.at(3, 1);
  groups.row_of[7] = -1;
  emulation::Session session(kThreadOrders[2]);
  ASSERT_EQ(actual.Run(groups.row_of, session), absl::OkStatus());
  ExpectSameBits<T>(actual.rows.view(), expected.rows.view(), "rows");
  ExpectSameBits<T>(actual.y.view(), expected.y.view(), "y");
  ExpectSameBits<T>(actual.doutputs.view(), expected.doutputs.view(), "doutputs");
  ExpectSameBits<float>(actual.dweights.view(), expected.dweights.view(), "dweights");
  ExpectSameBits<T>(actual.dx.view(), expected.dx.view(), "dx");
}

TEST(EmulatedExchangeTraffic, IsEveryElementOnce) {
  constexpr std::int64_t kTokens = 32, kChosen = 4, kWidth = 128;
  SectorRows<BFloat16> x(kTokens, kWidth), y(kTokens, kWidth);
  SectorRows<BFloat16> rows(kTokens * kChosen, kWidth), outputs(kTokens * kChosen, kWidth);
  const ExpertGroups groups = GroupByExpert(Choices({kTokens, kChosen, 8}).view(), 8);
  TestMatrix<float> weights(kTokens, kChosen);
  Fill(weights, 1);
  emulation::Session session({.count_traffic = true});
  AddMatrix(session, "x", x.span());
  AddMatrix(session, "y", y.span());
  AddMatrix(session, "rows", rows.span());
  AddMatrix(session, "outputs", outputs.span());
  AddMatrix(session, "weights", weights.span());
  AddArray(session, "row_of", absl::MakeConstSpan(groups.row_of));
  ASSERT_EQ(cuda_emulated::DispatchForward<BFloat16>(groups.row_of, x.span(), rows.span(), nullptr),
            absl::OkStatus());
  ASSERT_EQ(cuda_emulated::CombineForward<BFloat16>(groups.row_of, weights.view(), outputs.span(),
                                                    y.span(), nullptr),
            absl::OkStatus());
  EXPECT_EQ(session.launches().size(), 2);
  EXPECT_EQ(session.traffic("x").loads, kTokens * kWidth * 2);
  EXPECT_EQ(session.traffic("y").stores, kTokens * kWidth * 2);
  EXPECT_EQ(session.traffic("rows").stores, kTokens * kChosen * kWidth * 2);
  EXPECT_EQ(session.traffic("outputs").loads, kTokens * kChosen * kWidth * 2);
  for (const char* name : {"x", "y", "rows", "outputs"}) {
    EXPECT_EQ(session.traffic(name).partly_used_sectors, 0) << name;
  }
}

}  // namespace
}  // namespace headwise
