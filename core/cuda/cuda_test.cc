// Without a GPU every call says so and nothing crashes; with one, copies, streams and graphs work.
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "core/cuda/device.h"
#include "core/cuda/device_memory.h"
#include "core/cuda/stream.h"
#include "gtest/gtest.h"

namespace headwise {
namespace {

bool HaveGpu() { return CurrentCudaDevice().ok(); }

TEST(Cuda, WithoutADeviceEveryCallSaysSo) {
  if (HaveGpu()) GTEST_SKIP() << "this machine has a GPU";
  const absl::Status device = CurrentCudaDevice().status();
  EXPECT_EQ(device.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StartsWith(device.message(), "no CUDA device: ")) << device;
  EXPECT_EQ(DeviceMemory::Allocate(8).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(CudaStream::Create().status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(CudaEvent::Create().status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(Cuda, NothingIsNoMemory) {
  const absl::StatusOr<DeviceMemory> memory = DeviceMemory::Allocate(0);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(memory->data(), nullptr);
  EXPECT_TRUE(CopyToDevice(memory->data(), nullptr, 0).ok());
}

TEST(Cuda, CopiesGoThereAndBack) {
  if (!HaveGpu()) GTEST_SKIP() << "no GPU";
  const std::vector<std::int64_t> values = {1, -2, std::int64_t{1} << 40};
  absl::StatusOr<DeviceArray<std::int64_t>> array = DeviceArray<std::int64_t>::Of(values);
  ASSERT_TRUE(array.ok()) << array.status();
  const DeviceArray<std::int64_t> moved = *std::move(array);
  ASSERT_TRUE(FillDevice(moved.data() + 1, 0xff, 8).ok());
  std::vector<std::int64_t> back(3);
  ASSERT_TRUE(CopyToHost(back.data(), moved.data(), 24).ok());
  EXPECT_EQ(back, (std::vector<std::int64_t>{1, -1, std::int64_t{1} << 40}));
}

TEST(Cuda, TooMuchMemoryIsAnErrorAndNotTheLast) {
  if (!HaveGpu()) GTEST_SKIP() << "no GPU";
  EXPECT_EQ(DeviceMemory::Allocate(std::int64_t{1} << 50).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(DeviceMemory::Allocate(8).ok());
}

TEST(Cuda, AGraphReplaysAndReturnsTheErrorOfWhatItCaptures) {
  if (!HaveGpu()) GTEST_SKIP() << "no GPU";
  const CudaStream stream = *CudaStream::Create();
  const CudaEvent begin = *CudaEvent::Create(), end = *CudaEvent::Create();
  const absl::StatusOr<CudaGraph> graph =
      CudaGraph::Capture(stream, [](CUstream_st*) { return absl::OkStatus(); });
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(graph->kernels(), 0);
  ASSERT_TRUE(begin.Record(stream).ok());
  ASSERT_TRUE(graph->Launch(stream).ok());
  ASSERT_TRUE(end.Record(stream).ok());
  ASSERT_TRUE(stream.Synchronize().ok());
  EXPECT_GE(*CudaEvent::Seconds(begin, end), 0);
  EXPECT_EQ(
      CudaGraph::Capture(stream, [](CUstream_st*) { return absl::InternalError("no"); }).status(),
      absl::InternalError("no"));
  EXPECT_TRUE(stream.Synchronize().ok());
}

}  // namespace
}  // namespace headwise
