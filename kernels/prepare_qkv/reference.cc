#include "kernels/prepare_qkv/reference.h"

#include "core/base/status_macros.h"
#include "kernels/prepare_qkv/reference_impl.h"
#include "kernels/prepare_qkv/validate.h"

namespace headwise {

template <typename T>
absl::Status PrepareQkvReference(const QkvPreparation& op, const QkvInputs<T>& in,
                                 const QkvOutputs<T>& out) {
  HW_RETURN_IF_ERROR(ValidateForward(op, in, out));
  Reference<T>(op, in).Forward(out);
  return absl::OkStatus();
}

template <typename T>
absl::Status PrepareQkvBackwardReference(const QkvPreparation& op, const QkvInputs<T>& in,
                                         const QkvGradients<T>& gradients,
                                         const PackedGradients<T>& out) {
  HW_RETURN_IF_ERROR(ValidateBackward(op, in, gradients, out));
  Reference<T>(op, in).Backward(gradients, out);
  return absl::OkStatus();
}

#define HW_INSTANTIATE(T)                                                                       \
  template absl::Status PrepareQkvReference(const QkvPreparation&, const QkvInputs<T>&,         \
                                            const QkvOutputs<T>&);                              \
  template absl::Status PrepareQkvBackwardReference(const QkvPreparation&, const QkvInputs<T>&, \
                                                    const QkvGradients<T>&,                     \
                                                    const PackedGradients<T>&)
HW_INSTANTIATE(float);
HW_INSTANTIATE(BFloat16);
HW_INSTANTIATE(double);
#undef HW_INSTANTIATE

}  // namespace headwise
