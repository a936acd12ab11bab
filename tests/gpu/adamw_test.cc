// adamw on a GPU has the bits of the CPU path, for all parameters of a launch.
#include "kernels/adamw/adamw.h"

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "kernels/adamw/cuda.h"
#include "tests/gpu/family_test.h"
#include "tests/gpu/launchers.h"
#include "tests/gpu/on_device.h"

namespace headwise {
namespace {

constexpr AdamWHyperparameters kHyper{
    .learning_rate = 3e-3, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};

struct Parameter {
  explicit Parameter(const TestShape& s)
      : weight(MatrixOf<float>(s, 1)),
        m(MatrixOf<float>({1, s.width, s.layout}, 2, 0)),
        v(m),
        gradient(MatrixOf<float>(s, 4, 0.01)) {}

  TestMatrix<float> weight, m, v, gradient;
};

// Of parameters of these shapes, of one row each.
void ExpectCpuBits(const std::vector<TestShape>& shapes) {
  std::vector<Parameter> parameters;
  for (const TestShape& s : shapes) parameters.emplace_back(s);
  std::vector<Parameter> expected = parameters;
  for (const std::int64_t step : {1, 2, 3, 1000003}) {
    const double scale = step % 2 == 0 ? 0.37 : 1.0;
    for (Parameter& p : expected) {
      AdamWStep<float>(kHyper, step, scale, RowOf(p.weight.span()), RowOf(p.m.span()),
                       RowOf(p.v.span()), RowOf(p.gradient.view()), CpuThreads());
    }
    OnDevice device;
    std::vector<AdamWTensors> tensors;
    for (Parameter& p : parameters) {
      tensors.push_back({RowOf(device.Out(p.weight)), RowOf(device.Out(p.m)),
                         RowOf(device.Out(p.v)), RowOf(device.In(p.gradient))});
    }
    const absl::StatusOr<AdamWPlan> plan = AdamWPlan::Create(tensors);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const auto factors = MakeAdamWFactors<float>(kHyper, step, scale);
    const AdamWLaunch on_stream = {.table = device.In(plan->table()).data(),
                                   .factors = device.In(absl::MakeConstSpan(&factors, 1)).data()};
    ASSERT_EQ(device.Run([&](CUstream_st* stream) {
      AdamWLaunch launch = on_stream;
      launch.stream = stream;
      return Kernels().AdamWStep(*plan, launch);
    }),
              absl::OkStatus());
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      SCOPED_TRACE(testing::Message() << shapes[i] << ", step " << step);
      ExpectSameBits<float>(parameters[i].weight.view(), expected[i].weight.view(), "weight");
      ExpectSameBits<float>(parameters[i].m.view(), expected[i].m.view(), "m");
      ExpectSameBits<float>(parameters[i].v.view(), expected[i].v.view(), "v");
      parameters[i].weight.ExpectGapsUntouched();
      parameters[i].m.ExpectGapsUntouched();
      parameters[i].v.ExpectGapsUntouched();
    }
    if (testing::Test::HasFailure()) return;
  }
}

TEST(GpuAdamW, ForSanitizersHasTheCpusBits) {
  ExpectCpuBits({{1, 301, Layout::kStrided, /*specials=*/true}, {1, 0}, {1, 4101}, {1, 8192}});
}

TEST(GpuAdamW, HasTheCpusBits) {
  std::vector<TestShape> shapes(150, {1, 65, Layout::kStrided});
  shapes.push_back({1, 1});
  shapes.push_back({1, 1000003, Layout::kContiguous, /*specials=*/true});
  shapes.push_back({1, 262144, Layout::kStrided, /*specials=*/true});
  ExpectCpuBits(shapes);
}

TEST(GpuLargeAdamW, HasTheCpusBits) { ExpectCpuBits({{1, 16777219}, {1, 4096}}); }

}  // namespace
}  // namespace headwise
