// The elementwise kernels and the residual gate on a GPU have the bits of the CPU path.
#include "kernels/elementwise/elementwise.h"

#include <string>
#include <type_traits>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "core/dtype/dtype.h"
#include "gtest/gtest.h"
#include "kernels/elementwise/cuda.h"
#include "kernels/elementwise/residual_gate.h"
#include "tests/gpu/family_test.h"
#include "tests/gpu/launchers.h"
#include "tests/gpu/on_device.h"

namespace headwise {
namespace {

constexpr ResidualGate kGates[] = {{}, {.temperature = 0.5, .epsilon = 0.3}};

// What the operations read and write, on the host or on the device.
template <typename T>
struct Operands {
  RowSpan<const T> a, b, d;
  absl::Span<const float> channels;
  RowSpan<T> out, out2;
  absl::Span<float> sums;
  RowSpan<float> wide;
  float* scratch;
};

template <typename T>
struct Results {
  explicit Results(const TestShape& s)
      : out(s.rows, s.width, s.layout),
        out2(out),
        sums(1, s.width, s.layout),
        wide(s.rows, s.width, s.layout) {}

  void ExpectSame(const Results& expected) const {
    ExpectSameBits<T>(out.view(), expected.out.view(), "out");
    ExpectSameBits<T>(out2.view(), expected.out2.view(), "second output");
    ExpectSameBits<float>(sums.view(), expected.sums.view(), "sums");
    ExpectSameBits<float>(wide.view(), expected.wide.view(), "fp32 output");
    out.ExpectGapsUntouched();
    out2.ExpectGapsUntouched();
    sums.ExpectGapsUntouched();
    wide.ExpectGapsUntouched();
  }

  TestMatrix<T> out, out2;
  TestMatrix<float> sums, wide;
};

// One operation, by both.
template <typename T>
void Expect(const std::string& name, const TestShape& s,
            absl::FunctionRef<void(const Operands<T>&)> on_cpu,
            absl::FunctionRef<absl::Status(const Operands<T>&, CUstream_st*)> on_gpu) {
  SCOPED_TRACE(testing::Message() << name << ", " << s);
  const auto a = MatrixOf<T>(s, 1), b = MatrixOf<T>(s, 2, 4.0), d = MatrixOf<T>(s, 3, 0.1);
  const auto channels = MatrixOf<float>({1, s.width, s.layout, s.specials}, 4);
  Results<T> actual(s), expected(s);
  on_cpu({a.view(), b.view(), d.view(), RowOf(channels.view()), expected.out.span(),
          expected.out2.span(), RowOf(expected.sums.span()), expected.wide.span(), nullptr});
  OnDevice device;
  const Operands<T> operands = {
      device.In(a),
      device.In(b),
      device.In(d),
      RowOf(device.In(channels)),
      device.Out(actual.out),
      device.Out(actual.out2),
      RowOf(device.Out(actual.sums)),
      device.Out(actual.wide),
      device.Scratch<float>(ResidualGateBackwardScratch(s.rows, s.width))};
  ASSERT_EQ(device.Run([&](CUstream_st* stream) { return on_gpu(operands, stream); }),
            absl::OkStatus());
  actual.ExpectSame(expected);
}

template <typename T>
void ExpectCpuBits(const TestShape& s) {
  const StorageLaunchers<T>& gpu = Kernels<T>();
  ThreadPool& pool = CpuThreads();
  using O = const Operands<T>&;
  using Stream = CUstream_st*;
  Expect<T>(
      "Add", s, [&](O o) { Add<T>(o.a, o.b, o.out, pool); },
      [&](O o, Stream stream) { return gpu.Add(o.a, o.b, o.out, stream); });
  Expect<T>(
      "AddBias", s, [&](O o) { AddBias<T>(o.a, o.channels, o.out, pool); },
      [&](O o, Stream stream) { return gpu.AddBias(o.a, o.channels, o.out, stream); });
  Expect<T>(
      "SigmoidGateForward", s, [&](O o) { SigmoidGateForward<T>(o.a, o.b, o.out, pool); },
      [&](O o, Stream stream) { return gpu.SigmoidGateForward(o.a, o.b, o.out, stream); });
  Expect<T>(
      "SigmoidGateBackward", s,
      [&](O o) { SigmoidGateBackward<T>(o.a, o.b, o.d, o.out, o.out2, pool); },
      [&](O o, Stream stream) {
        return gpu.SigmoidGateBackward(o.a, o.b, o.d, o.out, o.out2, stream);
      });
  if constexpr (std::is_same_v<T, BFloat16>) {
    Expect<T>(
        "Convert to fp32", s, [&](O o) { Convert<T, float>(o.a, o.wide, pool); },
        [&](O o, Stream stream) { return Kernels().ConvertFromBFloat16(o.a, o.wide, stream); });
  }
  for (const ResidualGate& op : kGates) {
    Expect<T>(
        "ResidualGateForward", s,
        [&](O o) { ResidualGateForward<T>(op, o.a, o.b, o.channels, o.out, pool); },
        [&](O o, Stream stream) {
          return gpu.ResidualGateForward(op, o.a, o.b, o.channels, o.out, stream);
        });
    Expect<T>(
        "ResidualGateBackward", s,
        [&](O o) {
          ResidualGateBackward<T>(op, o.a, o.b, o.channels, o.d, o.out, o.out2, o.sums, pool);
        },
        [&](O o, Stream stream) {
          return gpu.ResidualGateBackward(op, o.a, o.b, o.channels, o.d, o.out, o.out2, o.sums,
                                          o.scratch, stream);
        });
  }
}

// Of values that bf16 does not have.
void ExpectCpuBitsOfNarrowing(const TestShape& s) {
  SCOPED_TRACE(testing::Message() << "Convert to bf16, " << s);
  const auto in = MatrixOf<float>(s, 5);
  TestMatrix<BFloat16> out(s.rows, s.width, s.layout), expected(out);
  Convert<float, BFloat16>(in.view(), expected.span(), CpuThreads());
  OnDevice device;
  const RowSpan<const float> gpu_in = device.In(in);
  const RowSpan<BFloat16> gpu_out = device.Out(out);
  ASSERT_EQ(device.Run([&](CUstream_st* stream) {
    return Kernels().ConvertToBFloat16(gpu_in, gpu_out, stream);
  }),
            absl::OkStatus());
  ExpectSameBits<BFloat16>(out.view(), expected.view(), "out");
  out.ExpectGapsUntouched();
}

void ExpectCpuBits(const std::vector<TestShape>& shapes) {
  for (const TestShape& shape : shapes) {
    ExpectCpuBits<float>(shape);
    ExpectCpuBits<BFloat16>(shape);
    ExpectCpuBitsOfNarrowing(shape);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(GpuElementwise, ForSanitizersHasTheCpusBits) {
  ExpectCpuBits({{70, 13, Layout::kStrided, /*specials=*/true}, {66, 24, Layout::kAligned}});
}

TEST(GpuElementwise, HasTheCpusBits) {
  ExpectCpuBits({{1031, 1024},
                 {257, 4099, Layout::kStrided},
                 {515, 1024, Layout::kAligned, /*specials=*/true}});
}

TEST(GpuLargeElementwise, HasTheCpusBits) { ExpectCpuBits({{1025, 8192}}); }

}  // namespace
}  // namespace headwise
