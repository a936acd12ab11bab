// A Problem (test_problem.h) in device memory, for the CUDA kernels: inputs and outputs aligned as
// on the host, with canaries around the outputs, scratch poisoned.
//
//   HW_ASSIGN_OR_RETURN(const GpuProblem<T> gpu, GpuProblem<T>::Create(problem));
//   HW_RETURN_IF_ERROR(cuda::PrepareQkv<T>(gpu.op(), gpu.inputs(), gpu.outputs(), gpu.launch(s)));
//   HW_ASSIGN_OR_RETURN(const Results<T> results, gpu.Download());
#ifndef HEADWISE_KERNELS_PREPARE_QKV_GPU_PROBLEM_H_
#define HEADWISE_KERNELS_PREPARE_QKV_GPU_PROBLEM_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/cuda/device_memory.h"
#include "kernels/common/testing/device_mirror.h"
#include "kernels/prepare_qkv/cuda.h"
#include "kernels/prepare_qkv/test_problem.h"

namespace headwise {

template <typename T>
class GpuProblem {
 public:
  // Problems must outlive this object.
  static absl::StatusOr<GpuProblem> Create(const Problem<T>& problem);

  const QkvPreparation& op() const { return original_->op(); }
  // All in device memory. `positions` is empty: the launch has them.
  QkvInputs<T> inputs() const;
  QkvGradients<T> gradients() const;
  QkvOutputs<T> outputs() const;
  PackedGradients<T> packed_gradients() const;
  QkvLaunch launch(CUstream_st* stream) const;

  // As after Create(), but with the inputs of another problem of the same shape, alignment and op.
  absl::Status Reset(const Problem<T>& problem);
  // Other positions, as many.
  absl::Status SetPositions(absl::Span<const std::int64_t> positions);
  // Hides them from kernels until a launch copies the ones it is given.
  absl::Status PoisonPositions();

  // Waits. kInternal if anything but outputs and scratch was written, or positions are not there.
  absl::StatusOr<Results<T>> Download() const;
  // Waits. -1 if every position had a table row.
  absl::StatusOr<std::int64_t> FirstBadToken() const;

 private:
  const Problem<T>* original_ = nullptr;  // whose matrices the mirrors are mirrors of
  const Problem<T>* contents_ = nullptr;  // what the inputs are now
  Results<T> host_;                       // what the outputs' mirrors are mirrors of
  DeviceMirror packed_, dq_, dk_, dv_, q_weight_, k_weight_, cos_, sin_;
  DeviceMirror q_out_, k_out_, v_out_, dpacked_out_, dq_weight_out_, dk_weight_out_;
  std::vector<std::int64_t> host_positions_;
  DeviceArray<std::int64_t> positions_;
  DeviceArray<float> scratch_;
  DeviceArray<std::uint64_t> first_bad_token_;
};

// Forward and backward. Positions are in host memory, or already in the device's.
template <typename T>
absl::StatusOr<Results<T>> RunOnGpu(const Problem<T>& problem, bool device_positions);

}  // namespace headwise

#endif  // HEADWISE_KERNELS_PREPARE_QKV_GPU_PROBLEM_H_
