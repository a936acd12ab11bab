// The gradient of a linear layer's bias on a GPU has the bits of the CPU path.
#include <vector>

#include "absl/status/status.h"
#include "core/dtype/dtype.h"
#include "gtest/gtest.h"
#include "kernels/gemm/cuda.h"
#include "kernels/gemm/gemm.h"
#include "tests/gpu/family_test.h"
#include "tests/gpu/launchers.h"
#include "tests/gpu/on_device.h"

namespace headwise {
namespace {

template <typename T>
void ExpectCpuBits(const TestShape& s) {
  SCOPED_TRACE(testing::Message() << s);
  const auto dy = MatrixOf<T>(s, 1);
  TestMatrix<float> dbias(1, s.width, Layout::kStrided), expected(dbias);
  LinearBackwardBias<T>(dy.view(), RowOf(expected.span()), CpuThreads());
  OnDevice device;
  const RowSpan<const T> gpu_dy = device.In(dy);
  const auto gpu_dbias = RowOf(device.Out(dbias));
  auto* const scratch = device.Scratch<float>(LinearBackwardBiasScratch(s.rows, s.width));
  ASSERT_EQ(device.Run([&](CUstream_st* stream) {
    return Kernels<T>().LinearBackwardBias(gpu_dy, gpu_dbias, scratch, stream);
  }),
            absl::OkStatus());
  ExpectSameBits<float>(dbias.view(), expected.view(), "dbias");
  dbias.ExpectGapsUntouched();
}

void ExpectCpuBits(const std::vector<TestShape>& shapes) {
  for (const TestShape& shape : shapes) {
    ExpectCpuBits<float>(shape);
    ExpectCpuBits<BFloat16>(shape);
  }
}

TEST(GpuLinearBias, ForSanitizersHasTheCpusBits) {
  ExpectCpuBits({{131, 67, Layout::kStrided, /*specials=*/true}, {66, 32, Layout::kAligned}});
}

TEST(GpuLinearBias, HasTheCpusBits) {
  ExpectCpuBits({{1, 10240},
                 {4097, 2880},
                 {1031, 515, Layout::kStrided},
                 {515, 1024, Layout::kAligned, /*specials=*/true}});
}

}  // namespace
}  // namespace headwise
