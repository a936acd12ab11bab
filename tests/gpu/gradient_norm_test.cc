// The norm of all gradients, the guard and the clip factor on a GPU have the bits of the CPU path.
#include "kernels/gradient_norm/gradient_norm.h"

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/gradient_norm/cuda.h"
#include "tests/gpu/family_test.h"
#include "tests/gpu/launchers.h"
#include "tests/gpu/on_device.h"

namespace headwise {
namespace {

// Of gradients of these shapes, the one at `bad`, if there is one, with an infinity.
void ExpectCpuBits(const std::vector<TestShape>& shapes, std::int64_t bad = -1) {
  std::vector<TestMatrix<float>> gradients;
  for (const TestShape& shape : shapes) {
    gradients.push_back(MatrixOf<float>(shape, gradients.size(), 0.01));
  }
  if (bad >= 0) {
    TestMatrix<float>& m = gradients[bad];
    m.at(m.rows() - 1, m.width() / 2) = -std::numeric_limits<float>::infinity();
  }
  std::vector<NamedGradient> named;
  std::vector<RowSpan<const float>> on_device;
  OnDevice device;
  for (const TestMatrix<float>& m : gradients) {
    named.push_back({absl::StrCat(1000 + named.size()), m.view()});
    on_device.push_back(device.In(m));
  }
  const GradientSummary expected = SummarizeGradients(named, CpuThreads());
  constexpr double kClip = 0.37;

  const absl::StatusOr<GradientNormPlan> plan = GradientNormPlan::Create(on_device);
  ASSERT_TRUE(plan.ok()) << plan.status();
  std::vector<GradientDecision> decision(1);
  std::vector<float> adamw_scale(1);
  std::vector<double> muon_scale(1);
  std::vector<std::uint32_t> skips = {7, 7};
  const absl::Span<std::uint32_t> gpu_skips = device.Out(skips);
  const GradientNormLaunch on_stream = {.table = device.In(plan->table()).data(),
                                        .scratch = device.Scratch<std::byte>(plan->scratch_bytes()),
                                        .clip_norm = kClip,
                                        .decision = device.Out(decision).data(),
                                        .adamw_scale = device.Out(adamw_scale).data(),
                                        .adamw_skip = gpu_skips.data(),
                                        .muon_scale = device.Out(muon_scale).data(),
                                        .muon_skip = gpu_skips.data() + 1};
  ASSERT_EQ(device.Run([&](CUstream_st* stream) {
    GradientNormLaunch launch = on_stream;
    launch.stream = stream;
    return Kernels().DecideStep(*plan, launch);
  }),
            absl::OkStatus());
  EXPECT_TRUE(SameBits(decision[0].norm, expected.norm))
      << decision[0].norm << ", expected " << expected.norm;
  const double factor = bad >= 0 ? 1.0 : ClipFactor(expected.norm, kClip);
  EXPECT_EQ(decision[0].clip_factor, factor);
  EXPECT_EQ(decision[0].skip, bad >= 0);
  EXPECT_EQ(decision[0].first_unusable, static_cast<std::uint32_t>(bad));
  EXPECT_EQ(adamw_scale[0], static_cast<float>(factor));
  EXPECT_EQ(muon_scale[0], factor);
  EXPECT_EQ(skips, std::vector<std::uint32_t>(2, bad >= 0 ? 1 : 0));
}

TEST(GpuGradientNorm, ForSanitizersHasTheCpusBits) {
  const std::vector<TestShape> shapes = {{33, 40, Layout::kStrided}, {1, 7}, {0, 0}, {70, 3}};
  ExpectCpuBits(shapes);
  ExpectCpuBits(shapes, /*bad=*/3);
}

TEST(GpuGradientNorm, HasTheCpusBits) {
  std::vector<TestShape> shapes(150, {3, 65, Layout::kStrided});
  shapes.push_back({4099, 515, Layout::kStrided});
  shapes.push_back({50257, 64});
  ExpectCpuBits(shapes);
  ExpectCpuBits(shapes, /*bad=*/150);
}

TEST(GpuLargeGradientNorm, HasTheCpusBits) { ExpectCpuBits({{10240, 1024}, {1, 8388609}}); }

}  // namespace
}  // namespace headwise
