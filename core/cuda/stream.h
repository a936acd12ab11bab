// CUDA streams, events and graphs, owned.
//
//   HW_ASSIGN_OR_RETURN(const CudaStream stream, CudaStream::Create());
//   HW_ASSIGN_OR_RETURN(const CudaGraph graph, CudaGraph::Capture(stream, [&](CUstream_st* s) {
//     return cuda::PrepareQkv<BFloat16>(op, in, out, {.stream = s, ...});
//   }));
//   HW_RETURN_IF_ERROR(before.Record(stream));
//   HW_RETURN_IF_ERROR(graph.Launch(stream));
//   HW_RETURN_IF_ERROR(after.Record(stream));
//   HW_RETURN_IF_ERROR(stream.Synchronize());
//   HW_ASSIGN_OR_RETURN(const double seconds, CudaEvent::Seconds(before, after));
//
// All are movable, not copyable; errors carry CUDA's message.
#ifndef HEADWISE_CORE_CUDA_STREAM_H_
#define HEADWISE_CORE_CUDA_STREAM_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct CUevent_st;
struct CUgraphExec_st;
struct CUstream_st;

namespace headwise {

// Does not wait for the legacy default stream, nor it for this.
class CudaStream {
 public:
  static absl::StatusOr<CudaStream> Create();

  CUstream_st* get() const { return stream_.get(); }  // a cudaStream_t
  // Waits; returns the first error of what ran.
  absl::Status Synchronize() const;

 private:
  struct Destroy {
    void operator()(CUstream_st* stream) const;
  };
  explicit CudaStream(CUstream_st* stream) : stream_(stream) {}
  std::unique_ptr<CUstream_st, Destroy> stream_;
};

class CudaEvent {
 public:
  static absl::StatusOr<CudaEvent> Create();

  absl::Status Record(const CudaStream& stream) const;
  // Between two events that their streams have passed.
  static absl::StatusOr<double> Seconds(const CudaEvent& begin, const CudaEvent& end);

 private:
  struct Destroy {
    void operator()(CUevent_st* event) const;
  };
  explicit CudaEvent(CUevent_st* event) : event_(event) {}
  std::unique_ptr<CUevent_st, Destroy> event_;
};

class CudaGraph {
 public:
  // What `enqueue` puts on the stream that it is given, which is `stream`, runs only when the graph
  // is launched. Its error is returned; so is one for what cannot be captured, an allocation, say,
  // or a wait.
  static absl::StatusOr<CudaGraph> Capture(
      const CudaStream& stream, const std::function<absl::Status(CUstream_st*)>& enqueue);

  absl::Status Launch(const CudaStream& stream) const;
  // Kernel launches in it; copies and fills do not count.
  int kernels() const { return kernels_; }

 private:
  struct Destroy {
    void operator()(CUgraphExec_st* graph) const;
  };
  CudaGraph(CUgraphExec_st* graph, int kernels) : graph_(graph), kernels_(kernels) {}
  std::unique_ptr<CUgraphExec_st, Destroy> graph_;
  int kernels_ = 0;
};

}  // namespace headwise

#endif  // HEADWISE_CORE_CUDA_STREAM_H_
