// cross_entropy on a GPU has the bits of the CPU path, and finds targets that are out of range.
#include "kernels/cross_entropy/cross_entropy.h"

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "core/base/status_macros.h"
#include "core/dtype/dtype.h"
#include "gtest/gtest.h"
#include "kernels/cross_entropy/test_problem.h"
#include "tests/gpu/family_test.h"
#include "tests/gpu/launchers.h"
#include "tests/gpu/on_device.h"

namespace headwise {
namespace {

constexpr std::uint64_t kNone = ~std::uint64_t{0};

// With `bad`, targets 5 and 8 are out of range: nothing is written for these rows.
template <typename T>
void ExpectCpuBits(const LogitTransform& op, const TestShape& s, bool bad = false) {
  SCOPED_TRACE(testing::Message() << Name(op) << ", " << s);
  const auto z = MatrixOf<float>(s, 1, 30.0);
  std::vector<std::int32_t> targets = Targets(s.rows, s.width);
  TestMatrix<T> dz(s.rows, s.width, s.layout), expected_dz(dz);
  TestMatrix<float> losses(1, s.rows), expected_losses(losses), logits(s.rows, s.width, s.layout),
      expected_logits(logits);
  const TestMatrix<T> untouched = dz;
  const float untouched_loss = losses.at(0, 0);
  CrossEntropy<T>(op, z.view(), targets, kLossScale, RowOf(expected_losses.span()),
                  expected_dz.span(), CpuThreads());
  TransformLogits(op, z.view(), expected_logits.span(), CpuThreads());
  if (bad) {
    for (const std::int64_t t : {5, 8}) {
      targets[t] = t == 5 ? static_cast<std::int32_t>(s.width) : -2;
      expected_losses.at(0, t) = untouched_loss;
      for (std::int64_t i = 0; i < s.width; ++i) expected_dz.at(t, i) = untouched.at(t, i);
    }
  }

  OnDevice device;
  const RowSpan<const float> gpu_z = device.In(z);
  const auto gpu_targets = device.In(absl::MakeConstSpan(targets));
  const RowSpan<T> gpu_dz = device.Out(dz);
  const auto gpu_losses = RowOf(device.Out(losses));
  const RowSpan<float> gpu_logits = device.Out(logits);
  const double* const gpu_loss_scale = device.In(absl::MakeConstSpan(&kLossScale, 1)).data();
  std::vector<double> sum(1);
  double* const gpu_sum = device.Out(sum).data();
  std::uint64_t* const fault = device.Fault();
  const auto run = [&](CUstream_st* stream) -> absl::Status {
    HW_RETURN_IF_ERROR(Kernels<T>().CrossEntropy(op, gpu_z, gpu_targets, gpu_loss_scale, gpu_losses,
                                                 gpu_dz, fault, stream));
    HW_RETURN_IF_ERROR(Kernels().SumLosses(gpu_losses, gpu_sum, stream));
    return Kernels().TransformLogits(op, gpu_z, gpu_logits, stream);
  };
  ASSERT_EQ(device.Run(run), absl::OkStatus());
  EXPECT_EQ(device.fault(), bad ? 5 : kNone);
  ExpectSameBits<float>(losses.view(), expected_losses.view(), "losses");
  EXPECT_TRUE(SameBits(sum[0], SumLosses(RowOf(losses.view()))));
  ExpectSameBits<T>(dz.view(), expected_dz.view(), "dz");
  ExpectSameBits<float>(logits.view(), expected_logits.view(), "logits");
  dz.ExpectGapsUntouched();
  losses.ExpectGapsUntouched();
  logits.ExpectGapsUntouched();
}

void ExpectCpuBits(const std::vector<TestShape>& shapes) {
  for (const LogitTransform& op : kTransforms) {
    for (const TestShape& shape : shapes) {
      ExpectCpuBits<float>(op, shape);
      ExpectCpuBits<BFloat16>(op, shape);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(GpuCrossEntropy, ForSanitizersHasTheCpusBits) {
  ExpectCpuBits({{9, 70, Layout::kStrided, /*specials=*/true}, {5, 258, Layout::kAligned}});
}

TEST(GpuCrossEntropy, ForSanitizersTargetsOutOfRangeAreLeftOutAndReported) {
  ExpectCpuBits<float>(kTransforms[2], {33, 40}, /*bad=*/true);
  ExpectCpuBits<BFloat16>(kTransforms[2], {33, 40}, /*bad=*/true);
}

TEST(GpuCrossEntropy, HasTheCpusBits) {
  ExpectCpuBits({{4097, 256},
                 {33, 50257, Layout::kStrided},
                 {65, 4096, Layout::kAligned, /*specials=*/true}});
}

TEST(GpuLargeCrossEntropy, HasTheCpusBits) { ExpectCpuBits({{33, 202048}}); }

}  // namespace
}  // namespace headwise
