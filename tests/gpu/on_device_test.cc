// OnDevice notices what it promises to notice. On the host's stand-in for a GPU: kernels are plain
// code here.
#include "tests/gpu/on_device.h"

#include <cmath>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace headwise {
namespace {

TEST(OnDevice, CopiesOutputsBackAndLeavesInputsAlone) {
  TestMatrix<float> x(2, 3, Layout::kStrided), y(x);
  Fill(x, 1);
  OnDevice device;
  const RowSpan<const float> from = device.In(x);
  const RowSpan<float> to = device.Out(y);
  float* const scratch = device.Scratch<float>(2);
  std::uint64_t* const fault = device.Fault();
  EXPECT_NE(from.data, x.view().data);
  EXPECT_EQ(device.Run([&](CUstream_st*) {
    EXPECT_TRUE(std::isnan(scratch[0]) && std::isnan(scratch[1]));
    EXPECT_EQ(*fault, ~std::uint64_t{0});
    scratch[1] = 1;
    *fault = 7;
    for (int r = 0; r < 2; ++r) {
      for (int c = 0; c < 3; ++c) to.row(r)[c] = from.row(r)[c];
    }
    return absl::OkStatus();
  }),
            absl::OkStatus());
  EXPECT_EQ(device.fault(), 7);
  ExpectSameBits<float>(y.view(), x.view(), "copy");
  y.ExpectGapsUntouched();
}

TEST(OnDevice, NoticesAWriteToAnInput) {
  TestMatrix<float> x(2, 3, Layout::kStrided);
  for (const int place : {0, 3, -1, 12}) {  // an element, a gap, before the first, behind the last
    OnDevice device;
    auto* const data = const_cast<float*>(device.In(x).data);
    EXPECT_EQ(device.Run([&](CUstream_st*) {
      data[place] = 1;
      return absl::OkStatus();
    }),
              absl::InternalError("an input was written"))
        << place;
  }
}

TEST(OnDevice, NoticesThatAGraphMakesOtherBytesOrAnotherFault) {
  for (const bool value : {true, false}) {
    TestMatrix<float> y(1, 1);
    OnDevice device;
    float* const data = device.Out(y).data;
    std::uint64_t* const fault = device.Fault();
    int runs = 0;
    EXPECT_EQ(device.Run([&](CUstream_st*) {
      ++runs;
      *data = value ? static_cast<float>(runs) : 0.0f;
      *fault = runs;
      return absl::OkStatus();
    }),
              absl::InternalError(value ? "a graph's bytes are not its launches'"
                                        : "a graph's fault is not its launches'"));
  }
}

TEST(OnDevice, ReturnsTheLaunchesError) {
  OnDevice device;
  EXPECT_EQ(device.Run([](CUstream_st*) { return absl::InternalError("no"); }),
            absl::InternalError("no"));
}

}  // namespace
}  // namespace headwise
