// headwise::cuda's launchers, by the emulated kernels: for gpu_harness_test.
#include "kernels/prepare_qkv/cuda.h"
#include "kernels/prepare_qkv/cuda_unfused.h"

namespace headwise::cuda {

template <typename T>
absl::Status PrepareQkv(const QkvPreparation& op, const QkvInputs<T>& in, const QkvOutputs<T>& out,
                        const QkvLaunch& launch) {
  return cuda_emulated::PrepareQkv<T>(op, in, out, launch);
}

template <typename T>
absl::Status PrepareQkvBackward(const QkvPreparation& op, const QkvInputs<T>& in,
                                const QkvGradients<T>& gradients, const PackedGradients<T>& out,
                                const QkvLaunch& launch) {
  return cuda_emulated::PrepareQkvBackward<T>(op, in, gradients, out, launch);
}

absl::Status ReduceHeadNormGradient(RowSpan<const float> per_group, absl::Span<float> out,
                                    CUstream_st* stream) {
  return cuda_emulated::ReduceHeadNormGradient(per_group, out, stream);
}

absl::Status CopyVectors(const void* from, void* to, std::int64_t bytes, CUstream_st* stream) {
  return cuda_emulated::CopyVectors(from, to, bytes, stream);
}

template <typename T>
absl::Status PrepareQkvUnfused(const QkvPreparation& op, const QkvInputs<T>& in,
                               const QkvOutputs<T>& out, const UnfusedWorkspace<T>& workspace,
                               const QkvLaunch& launch) {
  return cuda_emulated::PrepareQkvUnfused<T>(op, in, out, workspace, launch);
}

template <typename T>
absl::Status PrepareQkvBackwardUnfused(const QkvPreparation& op, const QkvInputs<T>& in,
                                       const QkvGradients<T>& gradients,
                                       const PackedGradients<T>& out,
                                       const UnfusedWorkspace<T>& workspace,
                                       const QkvLaunch& launch) {
  return cuda_emulated::PrepareQkvBackwardUnfused<T>(op, in, gradients, out, workspace, launch);
}

#define HW_INSTANTIATE(T)                                                                     \
  template absl::Status PrepareQkv(const QkvPreparation&, const QkvInputs<T>&,                \
                                   const QkvOutputs<T>&, const QkvLaunch&);                   \
  template absl::Status PrepareQkvBackward(const QkvPreparation&, const QkvInputs<T>&,        \
                                           const QkvGradients<T>&, const PackedGradients<T>&, \
                                           const QkvLaunch&);                                 \
  template absl::Status PrepareQkvUnfused(const QkvPreparation&, const QkvInputs<T>&,         \
                                          const QkvOutputs<T>&, const UnfusedWorkspace<T>&,   \
                                          const QkvLaunch&);                                  \
  template absl::Status PrepareQkvBackwardUnfused(                                            \
      const QkvPreparation&, const QkvInputs<T>&, const QkvGradients<T>&,                     \
      const PackedGradients<T>&, const UnfusedWorkspace<T>&, const QkvLaunch&)
HW_INSTANTIATE(float);
HW_INSTANTIATE(BFloat16);
#undef HW_INSTANTIATE

}  // namespace headwise::cuda
