// rms_norm on a GPU has the bits of the CPU path.
#include "kernels/rms_norm/rms_norm.h"

#include <vector>

#include "absl/status/status.h"
#include "core/base/status_macros.h"
#include "core/dtype/dtype.h"
#include "gtest/gtest.h"
#include "kernels/rms_norm/cuda.h"
#include "tests/gpu/family_test.h"
#include "tests/gpu/launchers.h"
#include "tests/gpu/on_device.h"

namespace headwise {
namespace {

constexpr RmsNorm kStyles[] = {
    {.style = RmsNormStyle::kWeighted, .epsilon = 1e-6f},
    {.style = RmsNormStyle::kGainCentered, .epsilon = 1e-5f, .centre = 1.25f},
    {.style = RmsNormStyle::kScaleless, .epsilon = 1e-8f},
    {.style = RmsNormStyle::kInputScaled, .epsilon = 1e-5f, .centre = 1.25f},
};

template <typename T>
void ExpectCpuBits(const RmsNorm& op, const TestShape& s) {
  SCOPED_TRACE(testing::Message() << "style " << static_cast<int>(op.style) << ", " << s);
  const auto x = MatrixOf<T>(s, 1), dy = MatrixOf<T>(s, 2, 0.1);
  const auto weight = MatrixOf<float>(
      {1, op.style == RmsNormStyle::kScaleless ? 0 : s.width, Layout::kStrided}, 3, 1.0);
  TestMatrix<T> y(s.rows, s.width, s.layout), dx(y), expected_y(y), expected_dx(y);
  TestMatrix<float> dweight(1, weight.width(), Layout::kStrided), expected_dweight(dweight);
  RmsNormForward<T>(op, x.view(), RowOf(weight.view()), expected_y.span(), CpuThreads());
  RmsNormBackward<T>(op, x.view(), RowOf(weight.view()), dy.view(), expected_dx.span(),
                     RowOf(expected_dweight.span()), CpuThreads());

  OnDevice device;
  const RowSpan<const T> gpu_x = device.In(x), gpu_dy = device.In(dy);
  const auto gpu_weight = RowOf(device.In(weight));
  const RowSpan<T> gpu_y = device.Out(y), gpu_dx = device.Out(dx);
  const auto gpu_dweight = RowOf(device.Out(dweight));
  auto* const scratch = device.Scratch<float>(RmsNormBackwardScratch(op, s.rows, s.width));
  const auto run = [&](CUstream_st* stream) -> absl::Status {
    HW_RETURN_IF_ERROR(Kernels<T>().RmsNormForward(op, gpu_x, gpu_weight, gpu_y, stream));
    return Kernels<T>().RmsNormBackward(op, gpu_x, gpu_weight, gpu_dy, gpu_dx, gpu_dweight, scratch,
                                        stream);
  };
  ASSERT_EQ(device.Run(run), absl::OkStatus());
  ExpectSameBits<T>(y.view(), expected_y.view(), "y");
  ExpectSameBits<T>(dx.view(), expected_dx.view(), "dx");
  ExpectSameBits<float>(dweight.view(), expected_dweight.view(), "dweight");
  y.ExpectGapsUntouched();
  dx.ExpectGapsUntouched();
  dweight.ExpectGapsUntouched();
}

void ExpectCpuBits(const std::vector<TestShape>& shapes) {
  for (const RmsNorm& op : kStyles) {
    for (const TestShape& shape : shapes) {
      ExpectCpuBits<float>(op, shape);
      ExpectCpuBits<BFloat16>(op, shape);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(GpuRmsNorm, ForSanitizersHasTheCpusBits) {
  ExpectCpuBits({{9, 70, Layout::kStrided, /*specials=*/true}, {66, 32, Layout::kAligned}});
}

TEST(GpuRmsNorm, HasTheCpusBits) {
  ExpectCpuBits({{1, 8192},
                 {1031, 512},
                 {4099, 64, Layout::kAligned},
                 {257, 4099, Layout::kStrided},
                 {515, 1024, Layout::kAligned, /*specials=*/true}});
}

TEST(GpuLargeRmsNorm, HasTheCpusBits) { ExpectCpuBits({{2049, 8192}}); }

}  // namespace
}  // namespace headwise
