// adamw on a GPU has the bits of the CPU path.
#include "kernels/adamw/adamw.h"

#include <cstdint>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "tests/gpu/family_test.h"
#include "tests/gpu/launchers.h"
#include "tests/gpu/on_device.h"

namespace headwise {
namespace {

constexpr AdamWHyperparameters kHyper{
    .learning_rate = 3e-3, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};

void ExpectCpuBits(std::int64_t elements, Layout layout, bool specials) {
  const TestShape s = {1, elements, layout, specials};
  auto weight = MatrixOf<float>(s, 1), m = MatrixOf<float>({1, elements, layout}, 2, 0),
       v = MatrixOf<float>({1, elements, layout}, 3, 0);
  auto expected_weight = weight, expected_m = m, expected_v = v;
  const auto gradient = MatrixOf<float>(s, 4, 0.01);
  for (const std::int64_t step : {1, 2, 3, 1000003}) {
    const double scale = step % 2 == 0 ? 0.37 : 1.0;
    SCOPED_TRACE(testing::Message() << s << ", step " << step);
    AdamWStep<float>(kHyper, step, scale, RowOf(expected_weight.span()), RowOf(expected_m.span()),
                     RowOf(expected_v.span()), RowOf(gradient.view()), CpuThreads());
    const auto factors = MakeAdamWFactors<float>(kHyper, step, scale);
    OnDevice device;
    const auto gpu_factors = device.In(absl::MakeConstSpan(&factors, 1));
    const auto gpu_weight = RowOf(device.Out(weight)), gpu_m = RowOf(device.Out(m)),
               gpu_v = RowOf(device.Out(v));
    const auto gpu_gradient = RowOf(device.In(gradient));
    ASSERT_EQ(device.Run([&](CUstream_st* stream) {
      return Kernels().AdamWStep(gpu_factors.data(), gpu_weight, gpu_m, gpu_v, gpu_gradient,
                                 stream);
    }),
              absl::OkStatus());
    ExpectSameBits<float>(weight.view(), expected_weight.view(), "weight");
    ExpectSameBits<float>(m.view(), expected_m.view(), "m");
    ExpectSameBits<float>(v.view(), expected_v.view(), "v");
    for (const TestMatrix<float>* out : {&weight, &m, &v}) out->ExpectGapsUntouched();
    if (testing::Test::HasFailure()) return;
  }
}

TEST(GpuAdamW, ForSanitizersHasTheCpusBits) {
  ExpectCpuBits(301, Layout::kStrided, /*specials=*/true);
  ExpectCpuBits(4001, Layout::kContiguous, /*specials=*/false);
}

TEST(GpuAdamW, HasTheCpusBits) {
  ExpectCpuBits(1, Layout::kContiguous, false);
  ExpectCpuBits(1000003, Layout::kContiguous, /*specials=*/true);
  ExpectCpuBits(262144, Layout::kStrided, /*specials=*/true);
}

TEST(GpuLargeAdamW, HasTheCpusBits) { ExpectCpuBits(16777219, Layout::kContiguous, false); }

}  // namespace
}  // namespace headwise
