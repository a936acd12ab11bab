#include "core/cuda/device_gpu.h"

#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "core/cuda/blas.h"
#include "core/cuda/device.h"
#include "core/cuda/device_memory.h"
#include "core/cuda/stream.h"

namespace headwise {
namespace {

class DeviceGraph final : public GpuGraph {
 public:
  DeviceGraph(CudaGraph graph, const CudaStream& stream)
      : graph_(std::move(graph)), stream_(stream) {}
  absl::Status Launch() override { return graph_.Launch(stream_); }
  int kernels() const override { return graph_.kernels(); }

 private:
  CudaGraph graph_;
  const CudaStream& stream_;  // the Gpu's
};

class DeviceGpu final : public Gpu {
 public:
  DeviceGpu(CudaDevice device, CudaStream stream)
      : device_(std::move(device)), stream_(std::move(stream)) {}
  // Before anything else is asked for; the products' stream is a member.
  absl::Status MakeBlas() {
    HW_ASSIGN_OR_RETURN(DeviceBlas blas, DeviceBlas::Create(stream_));
    blas_ = std::make_unique<DeviceBlas>(std::move(blas));
    return absl::OkStatus();
  }

  std::string Describe() const override {
    return absl::StrFormat("%s, sm_%d%d, %.1f GiB, CUDA %d.%d", device_.name, device_.major,
                           device_.minor, static_cast<double>(device_.memory) / (1 << 30),
                           device_.runtime / 1000, device_.runtime % 1000 / 10);
  }
  CUstream_st* stream() const override { return stream_.get(); }

  absl::StatusOr<std::shared_ptr<void>> Allocate(std::int64_t bytes) override {
    if (capturing_) return InCapture("Allocate");
    HW_ASSIGN_OR_RETURN(DeviceMemory memory, DeviceMemory::Allocate(bytes));
    const auto owner = std::make_shared<DeviceMemory>(std::move(memory));
    return std::shared_ptr<void>(owner, owner->data());
  }

  absl::StatusOr<std::int64_t> FreeMemory() override {
    HW_ASSIGN_OR_RETURN(const CudaDevice device, CurrentCudaDevice());
    return device.free_memory;
  }

  absl::Status Copy(void* to, const void* from, std::int64_t bytes) override {
    return bytes == 0 ? absl::OkStatus() : CopyOnDevice(to, from, bytes, stream());
  }
  absl::Status Fill(void* to, unsigned char byte, std::int64_t bytes) override {
    return bytes == 0 ? absl::OkStatus() : FillOnDevice(to, byte, bytes, stream());
  }
  absl::Status Upload(void* device, const void* host, std::int64_t bytes) override {
    return capturing_ ? InCapture("Upload") : CopyToDevice(device, host, bytes);
  }
  absl::Status Download(void* host, const void* device, std::int64_t bytes) override {
    return capturing_ ? InCapture("Download") : CopyToHost(host, device, bytes);
  }
  absl::Status Synchronize() override {
    return capturing_ ? InCapture("Synchronize") : stream_.Synchronize();
  }

  absl::StatusOr<std::unique_ptr<GpuGraph>> Capture(
      absl::FunctionRef<absl::Status()> enqueue) override {
    if (capturing_) return InCapture("Capture");
    capturing_ = true;
    absl::StatusOr<CudaGraph> graph =
        CudaGraph::Capture(stream_, [&](CUstream_st*) { return enqueue(); });
    capturing_ = false;
    if (!graph.ok()) return graph.status();
    return std::make_unique<DeviceGraph>(*std::move(graph), stream_);
  }

 private:
  template <typename T>
  using In = RowSpan<const T>;
  template <typename T>
  using Out = RowSpan<T>;
  absl::Status Forward(In<float> x, In<float> w, Out<float> y) override {
    return blas_->LinearForward<float, float>(x, w, y);
  }
  absl::Status Forward(In<BFloat16> x, In<BFloat16> w, Out<BFloat16> y) override {
    return blas_->LinearForward<BFloat16, BFloat16>(x, w, y);
  }
  absl::Status Forward(In<BFloat16> x, In<BFloat16> w, Out<float> y) override {
    return blas_->LinearForward<BFloat16, float>(x, w, y);
  }
  absl::Status BackwardInput(In<float> dy, In<float> w, Out<float> dx) override {
    return blas_->LinearBackwardInput<float, float>(dy, w, dx);
  }
  absl::Status BackwardInput(In<BFloat16> dy, In<BFloat16> w, Out<BFloat16> dx) override {
    return blas_->LinearBackwardInput<BFloat16, BFloat16>(dy, w, dx);
  }
  absl::Status BackwardInput(In<BFloat16> dy, In<BFloat16> w, Out<float> dx) override {
    return blas_->LinearBackwardInput<BFloat16, float>(dy, w, dx);
  }
  absl::Status BackwardWeight(In<float> dy, In<float> x, Out<float> dw) override {
    return blas_->LinearBackwardWeight<float>(dy, x, dw);
  }
  absl::Status BackwardWeight(In<BFloat16> dy, In<BFloat16> x, Out<float> dw) override {
    return blas_->LinearBackwardWeight<BFloat16>(dy, x, dw);
  }

  // CUDA would refuse it too, and the whole capture with it.
  static absl::Status InCapture(const char* what) {
    return absl::FailedPreconditionError(absl::StrFormat("%s in the capture of a graph", what));
  }

  CudaDevice device_;
  CudaStream stream_;
  std::unique_ptr<DeviceBlas> blas_;
  bool capturing_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Gpu>> CreateDeviceGpu() {
  HW_ASSIGN_OR_RETURN(CudaDevice device, CurrentCudaDevice());
  HW_ASSIGN_OR_RETURN(CudaStream stream, CudaStream::Create());
  auto gpu = std::make_unique<DeviceGpu>(std::move(device), std::move(stream));
  HW_RETURN_IF_ERROR(gpu->MakeBlas());
  return gpu;
}

}  // namespace headwise
