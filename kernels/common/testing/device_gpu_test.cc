// core/cuda on a GPU: copies, streams and graphs. Here and not beside the code because main() is
// gpu_test_main's.
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/cuda/device_memory.h"
#include "core/cuda/stream.h"
#include "gtest/gtest.h"

namespace headwise {
namespace {

TEST(Device, CopiesGoThereAndBack) {
  const std::vector<std::int64_t> values = {1, -2, std::int64_t{1} << 40};
  absl::StatusOr<DeviceArray<std::int64_t>> array = DeviceArray<std::int64_t>::Of(values);
  ASSERT_TRUE(array.ok()) << array.status();
  const DeviceArray<std::int64_t> moved = *std::move(array);
  ASSERT_TRUE(FillDevice(moved.data() + 1, 0xff, 8).ok());
  std::vector<std::int64_t> back(3);
  ASSERT_TRUE(CopyToHost(back.data(), moved.data(), 24).ok());
  EXPECT_EQ(back, (std::vector<std::int64_t>{1, -1, std::int64_t{1} << 40}));
}

TEST(Device, TooMuchMemoryIsAnErrorAndNotTheLast) {
  EXPECT_EQ(DeviceMemory::Allocate(std::int64_t{1} << 50).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(DeviceMemory::Allocate(8).ok());
}

TEST(Device, AGraphReplaysAndReturnsTheErrorOfWhatItCaptures) {
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
