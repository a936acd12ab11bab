// Gpu: what a model needs of a GPU besides kernels: memory, copies, the products of linear layers,
// and graphs, all on one stream. An interface, so that a program chooses what is behind it when it
// runs, and a library that uses it links neither CUDA nor cuBLAS:
//
//   core/cuda/device_gpu.h              the GPU of this process
//   kernels/launchers/gpu_on_host.h     for tests: host memory that only enqueued work can touch
//
//   HW_ASSIGN_OR_RETURN(const std::shared_ptr<void> x, gpu.Allocate(bytes));
//   HW_RETURN_IF_ERROR(gpu.Upload(x.get(), host.data(), bytes));
//   HW_ASSIGN_OR_RETURN(const std::unique_ptr<GpuGraph> step, gpu.Capture([&]() -> absl::Status {
//     HW_RETURN_IF_ERROR(cuda::Add<float>(rows, other_rows, rows, gpu.stream()));
//     return gpu.LinearForward<float, float>(rows, w, y);
//   }));
//   HW_RETURN_IF_ERROR(step->Launch());
//
// Kernels are launched on stream() by the launchers of kernels/*/cuda.h (kernels/launchers). Not
// thread-safe.
#ifndef HEADWISE_CORE_CUDA_GPU_H_
#define HEADWISE_CORE_CUDA_GPU_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/dtype/bf16.h"
#include "core/tensor/row_span.h"

struct CUstream_st;

namespace headwise {

// A captured piece of work. The memory that it uses must be there at each launch; destroy it before
// its Gpu.
class GpuGraph {
 public:
  virtual ~GpuGraph() = default;
  // Enqueues all of it on the stream of the Gpu; does not wait.
  virtual absl::Status Launch() = 0;
  // Kernels in it; copies and fills do not count.
  virtual int kernels() const = 0;
};

class Gpu {
 public:
  virtual ~Gpu() = default;

  // "NVIDIA H200, sm_90, 139.8 GiB, CUDA 13.0".
  virtual std::string Describe() const = 0;

  // A cudaStream_t. Everything runs on it, in order.
  virtual CUstream_st* stream() const = 0;

  // Device memory, not initialised, at a multiple of 256 bytes; null for no bytes. Destroy it before
  // the Gpu, when nothing that is enqueued uses it. kResourceExhausted if there is too little;
  // not in a capture.
  virtual absl::StatusOr<std::shared_ptr<void>> Allocate(std::int64_t bytes) = 0;
  // Bytes of device memory that nobody has, at this moment.
  virtual absl::StatusOr<std::int64_t> FreeMemory() = 0;

  // Enqueued: do not wait, and can be captured. Device memory; `from` and `to` do not overlap.
  virtual absl::Status Copy(void* to, const void* from, std::int64_t bytes) = 0;
  virtual absl::Status Fill(void* to, unsigned char byte, std::int64_t bytes) = 0;

  // First wait for what was enqueued, return when done; not in a capture.
  virtual absl::Status Upload(void* device, const void* host, std::int64_t bytes) = 0;
  virtual absl::Status Download(void* host, const void* device, std::int64_t bytes) = 0;

  // Waits; returns the first error of what ran.
  virtual absl::Status Synchronize() = 0;

  // What `enqueue` enqueues runs when the graph is launched, and only then. Its error is returned; so
  // is one for what cannot be captured: an allocation, a wait. Host memory that a launcher reads when
  // it is called is read in the capture, device memory at each launch of the graph.
  virtual absl::StatusOr<std::unique_ptr<GpuGraph>> Capture(
      absl::FunctionRef<absl::Status()> enqueue) = 0;

  // The products of a linear layer, enqueued, with the shapes, types, checks and errors of
  // core/cuda/blas.h:
  //
  //   LinearForward          y = x W^T     x [T, K], w [N, K] (in), y [T, N] (out)
  //   LinearBackwardInput    dx = dy W     dy [T, N], w [N, K] (in), dx [T, K] (out)
  //   LinearBackwardWeight   dw = dy^T x   dy [T, N], x [T, K] (in), dw [N, K] (out)
  //
  // (In, Out): (float, float), (BFloat16, BFloat16), (BFloat16, float).
  template <typename In, typename Out>
  absl::Status LinearForward(RowSpan<const In> x, RowSpan<const In> w, RowSpan<Out> y) {
    return Forward(x, w, y);
  }
  template <typename In, typename Out>
  absl::Status LinearBackwardInput(RowSpan<const In> dy, RowSpan<const In> w, RowSpan<Out> dx) {
    return BackwardInput(dy, w, dx);
  }
  template <typename T>
  absl::Status LinearBackwardWeight(RowSpan<const T> dy, RowSpan<const T> x, RowSpan<float> dw) {
    return BackwardWeight(dy, x, dw);
  }

 private:
  template <typename T>
  using In = RowSpan<const T>;
  template <typename T>
  using Out = RowSpan<T>;
  virtual absl::Status Forward(In<float>, In<float>, Out<float>) = 0;
  virtual absl::Status Forward(In<BFloat16>, In<BFloat16>, Out<BFloat16>) = 0;
  virtual absl::Status Forward(In<BFloat16>, In<BFloat16>, Out<float>) = 0;
  virtual absl::Status BackwardInput(In<float>, In<float>, Out<float>) = 0;
  virtual absl::Status BackwardInput(In<BFloat16>, In<BFloat16>, Out<BFloat16>) = 0;
  virtual absl::Status BackwardInput(In<BFloat16>, In<BFloat16>, Out<float>) = 0;
  virtual absl::Status BackwardWeight(In<float>, In<float>, Out<float>) = 0;
  virtual absl::Status BackwardWeight(In<BFloat16>, In<BFloat16>, Out<float>) = 0;
};

}  // namespace headwise

#endif  // HEADWISE_CORE_CUDA_GPU_H_
