#include "core/cuda/stream.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "core/base/status_macros.h"
#include "core/cuda/cuda_status.h"

namespace headwise {
namespace {

using internal::CudaStatus;

struct DestroyGraph {
  void operator()(cudaGraph_t graph) const { cudaGraphDestroy(graph); }
};
using GraphPointer = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, DestroyGraph>;

absl::StatusOr<int> CountKernels(cudaGraph_t graph) {
  std::size_t count = 0;
  HW_RETURN_IF_ERROR(CudaStatus(cudaGraphGetNodes(graph, nullptr, &count), "cudaGraphGetNodes"));
  std::vector<cudaGraphNode_t> nodes(count);
  if (count > 0) {
    HW_RETURN_IF_ERROR(
        CudaStatus(cudaGraphGetNodes(graph, nodes.data(), &count), "cudaGraphGetNodes"));
  }
  int kernels = 0;
  for (const cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
    HW_RETURN_IF_ERROR(CudaStatus(cudaGraphNodeGetType(node, &type), "cudaGraphNodeGetType"));
    if (type == cudaGraphNodeTypeKernel) ++kernels;
  }
  return kernels;
}

}  // namespace

void CudaStream::Destroy::operator()(CUstream_st* stream) const { cudaStreamDestroy(stream); }
void CudaEvent::Destroy::operator()(CUevent_st* event) const { cudaEventDestroy(event); }
void CudaGraph::Destroy::operator()(CUgraphExec_st* graph) const { cudaGraphExecDestroy(graph); }

absl::StatusOr<CudaStream> CudaStream::Create() {
  cudaStream_t stream = nullptr;
  HW_RETURN_IF_ERROR(CudaStatus(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                                "cudaStreamCreateWithFlags"));
  return CudaStream(stream);
}

absl::Status CudaStream::Synchronize() const {
  return CudaStatus(cudaStreamSynchronize(get()), "cudaStreamSynchronize");
}

absl::StatusOr<CudaEvent> CudaEvent::Create() {
  cudaEvent_t event = nullptr;
  HW_RETURN_IF_ERROR(CudaStatus(cudaEventCreate(&event), "cudaEventCreate"));
  return CudaEvent(event);
}

absl::Status CudaEvent::Record(const CudaStream& stream) const {
  return CudaStatus(cudaEventRecord(event_.get(), stream.get()), "cudaEventRecord");
}

absl::StatusOr<double> CudaEvent::Seconds(const CudaEvent& begin, const CudaEvent& end) {
  float milliseconds = 0;
  HW_RETURN_IF_ERROR(
      CudaStatus(cudaEventElapsedTime(&milliseconds, begin.event_.get(), end.event_.get()),
                 "cudaEventElapsedTime"));
  return 1e-3 * static_cast<double>(milliseconds);
}

absl::StatusOr<CudaGraph> CudaGraph::Capture(
    const CudaStream& stream, const std::function<absl::Status(CUstream_st*)>& enqueue) {
  HW_RETURN_IF_ERROR(
      CudaStatus(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal),
                 "cudaStreamBeginCapture"));
  const absl::Status enqueued = enqueue(stream.get());
  cudaGraph_t captured = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(stream.get(), &captured);
  const GraphPointer graph(captured);
  if (ended != cudaSuccess) cudaGetLastError();  // later calls must not see it
  HW_RETURN_IF_ERROR(enqueued);
  HW_RETURN_IF_ERROR(CudaStatus(ended, "cudaStreamEndCapture"));
  HW_ASSIGN_OR_RETURN(const int kernels, CountKernels(graph.get()));
  cudaGraphExec_t executable = nullptr;
  HW_RETURN_IF_ERROR(
      CudaStatus(cudaGraphInstantiate(&executable, graph.get(), 0), "cudaGraphInstantiate"));
  return CudaGraph(executable, kernels);
}

absl::Status CudaGraph::Launch(const CudaStream& stream) const {
  return CudaStatus(cudaGraphLaunch(graph_.get(), stream.get()), "cudaGraphLaunch");
}

}  // namespace headwise
