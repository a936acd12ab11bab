// The CUDA kernel, emulated, has the bits of adamw.h's CPU kernel for many parameters in one launch:
// of odd sizes, alignments and values, over steps and clip scales, in three thread orders, with every
// buffer a region.
#include "kernels/common/testing/emulated.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "kernels/adamw/adamw.h"
#include "kernels/adamw/cuda.h"
#include "kernels/common/testing/kernel_testing.h"
#include "kernels/emulation/emulation.h"

namespace headwise {
namespace {

using adamw::kBlockElements;
using adamw::TableEntry;

constexpr AdamWHyperparameters kHyper{
    .learning_rate = 3e-3, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};

template <typename T>
absl::Span<T> RowOf(RowSpan<T> row) {
  return {row.data, static_cast<std::size_t>(row.width)};
}

struct Parameter {
  Parameter(std::int64_t n, Layout layout)
      : weight(1, n, layout), m(weight), v(weight), gradient(weight) {
    FillWithSpecials(weight, 4 * n + 1);
    Fill(m, 4 * n + 2, 0);
    Fill(v, 4 * n + 3, 0);
    FillWithSpecials(gradient, 4 * n + 4, 0.01);
  }
  AdamWTensors tensors() {
    return {RowOf(weight.span()), RowOf(m.span()), RowOf(v.span()), RowOf(gradient.view())};
  }

  TestMatrix<float> weight, m, v, gradient;
};

using Parameters = std::vector<Parameter>;

void StepOnCpu(Parameters& parameters, std::int64_t step, double scale) {
  ThreadPool pool(1);
  for (Parameter& p : parameters) {
    const AdamWTensors t = p.tensors();
    AdamWStep<float>(kHyper, step, scale, t.weight, t.m, t.v, t.gradient, pool);
  }
}

AdamWPlan PlanOf(absl::Span<const AdamWTensors> tensors) {
  absl::StatusOr<AdamWPlan> plan = AdamWPlan::Create(tensors);
  EXPECT_EQ(plan.status(), absl::OkStatus());
  return *std::move(plan);
}

// A launch, which is one whatever there is to step.
absl::Status StepEmulated(Parameters& parameters, std::int64_t step, double scale,
                          const emulation::Options& order, std::uint32_t skip = 0) {
  std::vector<AdamWTensors> tensors;
  for (Parameter& p : parameters) tensors.push_back(p.tensors());
  const AdamWPlan plan = PlanOf(tensors);
  auto factors = MakeAdamWFactors<float>(kHyper, step, scale);
  factors.skip = skip;
  emulation::Session session(order);
  AddArray(session, "table", plan.table());
  session.AddRegion("factors", &factors, sizeof(factors), emulation::Access::kRead);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    AddArray(session, absl::StrCat("weight", i), tensors[i].weight);
    AddArray(session, absl::StrCat("m", i), tensors[i].m);
    AddArray(session, absl::StrCat("v", i), tensors[i].v);
    AddArray(session, absl::StrCat("gradient", i), tensors[i].gradient);
  }
  absl::Status status =
      cuda_emulated::AdamWStep(plan, {.table = plan.table().data(), .factors = &factors});
  EXPECT_EQ(session.launches().size(), plan.launches());
  EXPECT_LE(plan.launches(), 1);
  return status;
}

void ExpectSame(const Parameters& actual, const Parameters& expected) {
  for (std::size_t i = 0; i < actual.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "parameter " << i << " of " << actual[i].weight.width());
    ExpectSameBits<float>(actual[i].weight.view(), expected[i].weight.view(), "weight");
    ExpectSameBits<float>(actual[i].m.view(), expected[i].m.view(), "m");
    ExpectSameBits<float>(actual[i].v.view(), expected[i].v.view(), "v");
    actual[i].weight.ExpectGapsUntouched();
    actual[i].m.ExpectGapsUntouched();
    actual[i].v.ExpectGapsUntouched();
  }
}

void ExpectCpuBits(const Parameters& parameters, const emulation::Options& order) {
  Parameters actual = parameters, expected = parameters;
  for (const std::int64_t step : {1, 2, 3, 1000003}) {
    const double scale = step % 2 == 0 ? 0.37 : 1.0;
    SCOPED_TRACE(testing::Message() << "step " << step);
    StepOnCpu(expected, step, scale);
    ASSERT_EQ(StepEmulated(actual, step, scale, order), absl::OkStatus());
    ExpectSame(actual, expected);
    if (testing::Test::HasFailure()) return;
  }
}

// Around vectors and thread blocks, at aligned addresses and others in turns; some without elements,
// the first and the last among them.
Parameters ParametersOfManySizes() {
  std::vector<std::int64_t> sizes(std::begin(kOddSizes), std::end(kOddSizes));
  for (const std::int64_t blocks : {1, 2}) {
    for (const std::int64_t more : {-1, 0, 1, 2, 3})
      sizes.push_back(blocks * kBlockElements + more);
  }
  sizes.push_back(0);
  Parameters parameters;
  for (const std::int64_t n : sizes) {
    parameters.emplace_back(n, Layout::kContiguous);
    parameters.emplace_back(n, Layout::kStrided);
  }
  return parameters;
}

TEST(EmulatedAdamW, HasTheCpusBits) {
  const Parameters parameters = ParametersOfManySizes();
  for (const emulation::Options& order : kThreadOrders) ExpectCpuBits(parameters, order);
}

TEST(EmulatedAdamW, HasTheCpusBitsForAnyNumberOfParameters) {
  for (const int count : {0, 1, 2, 3, 5, 130}) {
    SCOPED_TRACE(count);
    Parameters parameters;
    for (int i = 0; i < count; ++i) parameters.emplace_back(1 + i % 3, Layout::kStrided);
    ExpectCpuBits(parameters, {});
  }
}

TEST(EmulatedAdamW, ForSanitizersHasTheCpusBits) {
  Parameters parameters;
  for (const Layout layout : {Layout::kContiguous, Layout::kStrided}) {
    for (const std::int64_t n : {301, 0, 7}) parameters.emplace_back(n, layout);
  }
  parameters.emplace_back(kBlockElements + 9, Layout::kContiguous);
  ExpectCpuBits(parameters, kThreadOrders[2]);
}

TEST(EmulatedAdamW, AStepThatIsSkippedWritesNothing) {
  Parameters actual;
  for (const std::int64_t n : {1, 63, 1024}) actual.emplace_back(n, Layout::kContiguous);
  const Parameters before = actual;
  ASSERT_EQ(StepEmulated(actual, 1, 0.5, kThreadOrders[0], /*skip=*/1), absl::OkStatus());
  ExpectSame(actual, before);
}

// The last elements of a parameter of more than 2^31, whose others nobody has memory for: the grid
// begins in the midst of it.
TEST(EmulatedAdamW, AddressesGoBeyond2To31Elements) {
  constexpr std::int64_t kBlocksBefore = (std::int64_t{1} << 31) / kBlockElements + 3;
  constexpr std::int64_t kBefore = kBlocksBefore * kBlockElements;
  for (const Layout layout : {Layout::kContiguous, Layout::kStrided}) {
    Parameters actual(1, Parameter(kBlockElements + 37, layout)), expected = actual;
    const AdamWTensors t = actual[0].tensors();
    const AdamWPlan plan = PlanOf({&t, 1});
    TableEntry entry;
    ASSERT_EQ(plan.table().size(), sizeof(entry));
    std::memcpy(&entry, plan.table().data(), sizeof(entry));
    constexpr std::uintptr_t kBytesBefore = kBefore * sizeof(float);
    entry.weight -= kBytesBefore, entry.m -= kBytesBefore;
    entry.v -= kBytesBefore, entry.gradient -= kBytesBefore;
    entry.size += kBefore;
    entry.first_block -= kBlocksBefore;
    const auto factors = MakeAdamWFactors<float>(kHyper, 1, 1.0);
    {
      emulation::Session session;
      session.AddRegion("table", &entry, sizeof(entry), emulation::Access::kRead);
      session.AddRegion("factors", &factors, sizeof(factors), emulation::Access::kRead);
      AddArray(session, "weight", t.weight);
      AddArray(session, "m", t.m);
      AddArray(session, "v", t.v);
      AddArray(session, "gradient", t.gradient);
      ASSERT_EQ(cuda_emulated::AdamWStep(plan, {.table = reinterpret_cast<const std::byte*>(&entry),
                                                .factors = &factors}),
                absl::OkStatus());
    }
    StepOnCpu(expected, 1, 1.0);
    ExpectSame(actual, expected);
  }
}

// 28 bytes an element, in 16-byte vectors and whole sectors; a parameter at an address that allows no
// vectors moves as much, one element at a time, and slows no other.
TEST(EmulatedAdamWTraffic, IsTwentyEightBytesAnElement) {
  constexpr std::int64_t kCount = kBlockElements + 512, kOther = 640;
  const auto array = [](SectorRows<float>& rows, std::int64_t from) {
    return RowOf(rows.span()).subspan(static_cast<std::size_t>(from));
  };
  SectorRows<float> weight(1, kCount), m(1, kCount), v(1, kCount), gradient(1, kCount);
  SectorRows<float> weight1(1, kOther + 1), m1(1, kOther), v1(1, kOther), gradient1(1, kOther);
  const AdamWTensors tensors[] = {
      {array(weight, 0), array(m, 0), array(v, 0), array(gradient, 0)},
      {array(weight1, 1), array(m1, 0), array(v1, 0), array(gradient1, 0)}};
  const AdamWPlan plan = PlanOf(tensors);
  const auto factors = MakeAdamWFactors<float>(kHyper, 1, 1.0);
  emulation::Session session({.count_traffic = true});
  AddArray(session, "table", plan.table());
  session.AddRegion("factors", &factors, sizeof(factors), emulation::Access::kRead);
  for (int i = 0; i < 2; ++i) {
    AddArray(session, absl::StrCat("weight", i), tensors[i].weight);
    AddArray(session, absl::StrCat("m", i), tensors[i].m);
    AddArray(session, absl::StrCat("v", i), tensors[i].v);
    AddArray(session, absl::StrCat("gradient", i), tensors[i].gradient);
  }
  ASSERT_EQ(cuda_emulated::AdamWStep(plan, {.table = plan.table().data(), .factors = &factors}),
            absl::OkStatus());
  EXPECT_EQ(session.launches().size(), 1);
  for (int i = 0; i < 2; ++i) {
    const auto count = static_cast<std::int64_t>(tensors[i].weight.size());
    for (const char* name : {"weight", "m", "v", "gradient"}) {
      SCOPED_TRACE(testing::Message() << name << i);
      const emulation::Traffic& traffic = session.traffic(absl::StrCat(name, i));
      EXPECT_EQ(traffic.loads, 4 * count);
      EXPECT_EQ(traffic.stores, std::string(name) == "gradient" ? 0 : 4 * count);
      EXPECT_EQ(traffic.narrowest, i == 0 ? 16 : 4);
      EXPECT_EQ(traffic.partly_used_sectors > 0, i == 1 && name[0] == 'w');
    }
  }
}

// The error of a plan of `tensors`.
std::string PlanError(absl::Span<const AdamWTensors> tensors) {
  const absl::Status status = AdamWPlan::Create(tensors).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

// A tensor of `count` elements that nobody may touch.
absl::Span<float> At(std::uintptr_t address, std::int64_t count = 8) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): no memory is behind it
  return {reinterpret_cast<float*>(address), static_cast<std::size_t>(count)};
}
// At a place of its own.
absl::Span<float> Place(std::size_t i, std::int64_t count = 8) {
  return At((std::uintptr_t{1} << 46) * (i + 1), count);
}

TEST(AdamWPlan, RefusesWhatHasNoMemoryAndWhatNoGridHasBlocksFor) {
  const absl::Span<float> missing(nullptr, 8);
  EXPECT_EQ(PlanError({{Place(0), Place(1), Place(2), Place(3)},
                       {Place(4), Place(5), missing, Place(6)}}),
            "parameter 1 of AdamW has 8 elements: v is a null pointer");
  constexpr std::int64_t kMost =
      std::int64_t{std::numeric_limits<std::int32_t>::max()} * kBlockElements;
  const AdamWTensors most = {Place(0, kMost), Place(1, kMost), Place(2, kMost), Place(3, kMost)};
  const AdamWPlan plan = PlanOf({most});
  EXPECT_EQ(plan.blocks(), std::numeric_limits<std::int32_t>::max());
  EXPECT_EQ(PlanError({most, {Place(4), Place(5), Place(6), Place(7)}}),
            "parameter 1 of AdamW has 8 elements: the parameters up to it have more elements than "
            "a grid has blocks for");
}

TEST(AdamWPlan, RefusesAddressesThatAreNoMultipleOfFourBytes) {
  const char* const names[] = {"weight", "m", "v", "gradient"};
  for (std::size_t t = 0; t < 4; ++t) {
    for (const std::uintptr_t off : {1, 2, 3}) {
      absl::Span<float> tensors[] = {Place(0), Place(1), Place(2), Place(3)};
      tensors[t] = At(reinterpret_cast<std::uintptr_t>(tensors[t].data()) + off);
      EXPECT_EQ(PlanError({{tensors[0], tensors[1], tensors[2], tensors[3]}}),
                absl::StrCat("parameter 0 of AdamW has 8 elements: ", names[t],
                             " is at no multiple of 4 bytes"));
    }
  }
}

// Of two parameters of four tensors each every pair, by its first and last element in turns.
TEST(AdamWPlan, RefusesTensorsThatShareMemoryUnlessBothAreRead) {
  const char* const names[] = {"weight", "m", "v", "gradient"};
  for (std::size_t a = 0; a < 8; ++a) {
    for (std::size_t b = a + 1; b < 8; ++b) {
      for (const std::int64_t by : {-8, -7, 0, 7, 8}) {
        SCOPED_TRACE(testing::Message() << a << ", " << b << " by " << by);
        absl::Span<float> t[8];
        for (std::size_t i = 0; i < 8; ++i) t[i] = Place(7 - i);
        t[b] =
            At(reinterpret_cast<std::uintptr_t>(t[a].data()) + static_cast<std::uintptr_t>(4 * by));
        const AdamWTensors parameters[] = {{t[0], t[1], t[2], t[3]}, {t[4], t[5], t[6], t[7]}};
        if (by == -8 || by == 8 || (a == 3 && b == 7)) {
          EXPECT_EQ(AdamWPlan::Create(parameters).status(), absl::OkStatus());
          continue;
        }
        EXPECT_EQ(PlanError(parameters),
                  absl::StrCat("AdamW: the ", names[a % 4], " of parameter ", a / 4, " and the ",
                               names[b % 4], " of parameter ", b / 4, " share memory"));
      }
    }
  }
}

TEST(EmulatedAdamWDeathTest, ProgrammersErrors) {
  std::vector<float> x(8);
  const absl::Span<float> eight = absl::MakeSpan(x), seven = eight.subspan(1);
  const auto create = [](const AdamWTensors& tensors) {
    static_cast<void>(AdamWPlan::Create({&tensors, 1}));
  };
  EXPECT_DEATH(create({eight, seven, eight, eight}), "7 vs 8");
  EXPECT_DEATH(create({eight, eight, seven, eight}), "7 vs 8");
  EXPECT_DEATH(create({eight, eight, eight, seven}), "7 vs 8");
  const AdamWPlan plan = PlanOf({{Place(0), Place(1), Place(2), Place(3)}});
  EXPECT_DEATH(static_cast<void>(cuda_emulated::AdamWStep(plan, {.table = plan.table().data()})),
               "factors");
}

}  // namespace
}  // namespace headwise
