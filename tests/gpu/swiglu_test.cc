// swiglu on a GPU has the bits of the CPU path.
#include "kernels/swiglu/swiglu.h"

#include <vector>

#include "absl/status/status.h"
#include "core/base/status_macros.h"
#include "core/dtype/dtype.h"
#include "gtest/gtest.h"
#include "tests/gpu/family_test.h"
#include "tests/gpu/launchers.h"
#include "tests/gpu/on_device.h"

namespace headwise {
namespace {

template <typename T>
void ExpectCpuBits(const Swiglu& op, const TestShape& s) {
  SCOPED_TRACE(testing::Message() << (op.clamped ? "clamped, " : "") << s);
  const auto gate = MatrixOf<T>(s, 1, 8.0), up = MatrixOf<T>(s, 2, 8.0), dout = MatrixOf<T>(s, 3);
  TestMatrix<T> out(s.rows, s.width, s.layout), dgate(out), dup(out), expected(out),
      expected_dgate(out), expected_dup(out);
  SwigluForward<T>(op, gate.view(), up.view(), expected.span(), CpuThreads());
  SwigluBackward<T>(op, gate.view(), up.view(), dout.view(), expected_dgate.span(),
                    expected_dup.span(), CpuThreads());

  OnDevice device;
  const RowSpan<const T> gpu_gate = device.In(gate), gpu_up = device.In(up),
                         gpu_dout = device.In(dout);
  const RowSpan<T> gpu_out = device.Out(out), gpu_dgate = device.Out(dgate),
                   gpu_dup = device.Out(dup);
  const auto run = [&](CUstream_st* stream) -> absl::Status {
    HW_RETURN_IF_ERROR(Kernels<T>().SwigluForward(op, gpu_gate, gpu_up, gpu_out, stream));
    return Kernels<T>().SwigluBackward(op, gpu_gate, gpu_up, gpu_dout, gpu_dgate, gpu_dup, stream);
  };
  ASSERT_EQ(device.Run(run), absl::OkStatus());
  ExpectSameBits<T>(out.view(), expected.view(), "out");
  ExpectSameBits<T>(dgate.view(), expected_dgate.view(), "dgate");
  ExpectSameBits<T>(dup.view(), expected_dup.view(), "dup");
  for (const TestMatrix<T>* m : {&out, &dgate, &dup}) m->ExpectGapsUntouched();
}

void ExpectCpuBits(const std::vector<TestShape>& shapes) {
  for (const bool clamped : {false, true}) {
    for (const TestShape& shape : shapes) {
      ExpectCpuBits<float>({.clamped = clamped}, shape);
      ExpectCpuBits<BFloat16>({.clamped = clamped}, shape);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(GpuSwiglu, ForSanitizersHasTheCpusBits) {
  ExpectCpuBits({{9, 70, Layout::kStrided, /*specials=*/true}, {5, 64, Layout::kAligned}});
}

TEST(GpuSwiglu, HasTheCpusBits) {
  ExpectCpuBits({{1031, 1408},
                 {257, 4099, Layout::kStrided},
                 {515, 1024, Layout::kAligned, /*specials=*/true}});
}

TEST(GpuLargeSwiglu, HasTheCpusBits) { ExpectCpuBits({{2049, 4096}}); }

}  // namespace
}  // namespace headwise
