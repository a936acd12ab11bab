// core/cuda's device, memory, streams and graphs on the host, for programs that run emulated kernels
// where they would run those of a GPU. Work happens when it is enqueued; a graph keeps the function
// that it captured and calls it at each launch.
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>

#include "core/base/check.h"
#include "core/cuda/device.h"
#include "core/cuda/device_memory.h"
#include "core/cuda/stream.h"

// Defined in no header: opaque to everyone else.
struct CUstream_st {};
struct CUevent_st {
  std::chrono::steady_clock::time_point recorded;
};
struct CUgraphExec_st {
  std::function<absl::Status(CUstream_st*)> enqueue;
};

namespace headwise {

absl::StatusOr<CudaDevice> CurrentCudaDevice() {
  return CudaDevice{.name = "emulation on the host",
                    .multiprocessors = 1,
                    .memory = std::int64_t{16} << 30,
                    .free_memory = std::int64_t{16} << 30,
                    .l2_cache = 1 << 10};
}

absl::StatusOr<DeviceMemory> DeviceMemory::Allocate(std::int64_t bytes) {
  HW_CHECK(bytes >= 0);
  DeviceMemory memory;
  if (bytes == 0) return memory;
  // Not touched: pages that nobody writes cost nothing.
  memory.data_ = static_cast<std::byte*>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  if (memory.data_ == nullptr) return absl::ResourceExhaustedError("out of memory");
  memory.size_ = bytes;
  return memory;
}
DeviceMemory::~DeviceMemory() { std::free(data_); }

absl::Status CopyToDevice(void* device, const void* host, std::int64_t bytes) {
  if (bytes > 0) std::memcpy(device, host, bytes);
  return absl::OkStatus();
}
absl::Status CopyToHost(void* host, const void* device, std::int64_t bytes) {
  return CopyToDevice(host, device, bytes);
}
absl::Status CopyOnDevice(void* to, const void* from, std::int64_t bytes, CUstream_st*) {
  return CopyToDevice(to, from, bytes);
}
absl::Status FillDevice(void* device, unsigned char byte, std::int64_t bytes) {
  if (bytes > 0) std::memset(device, byte, bytes);
  return absl::OkStatus();
}
absl::Status FillOnDevice(void* to, unsigned char byte, std::int64_t bytes, CUstream_st*) {
  return FillDevice(to, byte, bytes);
}

void CudaStream::Destroy::operator()(CUstream_st* stream) const { delete stream; }
void CudaEvent::Destroy::operator()(CUevent_st* event) const { delete event; }
void CudaGraph::Destroy::operator()(CUgraphExec_st* graph) const { delete graph; }

absl::StatusOr<CudaStream> CudaStream::Create() { return CudaStream(new CUstream_st); }
absl::Status CudaStream::Synchronize() const { return absl::OkStatus(); }

absl::StatusOr<CudaEvent> CudaEvent::Create() { return CudaEvent(new CUevent_st); }
absl::Status CudaEvent::Record(const CudaStream&) const {
  event_->recorded = std::chrono::steady_clock::now();
  return absl::OkStatus();
}
absl::StatusOr<double> CudaEvent::Seconds(const CudaEvent& begin, const CudaEvent& end) {
  return std::chrono::duration<double>(end.event_->recorded - begin.event_->recorded).count();
}

absl::StatusOr<CudaGraph> CudaGraph::Capture(
    const CudaStream&, const std::function<absl::Status(CUstream_st*)>& enqueue) {
  return CudaGraph(new CUgraphExec_st{enqueue}, /*kernels=*/0);
}
absl::Status CudaGraph::Launch(const CudaStream& stream) const {
  return graph_->enqueue(stream.get());
}

}  // namespace headwise
