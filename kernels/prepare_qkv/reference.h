// The specification of prepare_qkv as code: short, serial, obvious. When another implementation
// disagrees with it, the other is wrong. Other repositories check their own kernels against it.
//
//   HW_RETURN_IF_ERROR(PrepareQkvReference<float>(op, {packed, q_weight, k_weight, positions},
//                                                 {q, k, v}));
//
// T is float, BFloat16 or double. In double the same formulas run in double, where rounding to
// storage is the identity: for checks of gradients, which promise no bits.
#ifndef HEADWISE_KERNELS_PREPARE_QKV_REFERENCE_H_
#define HEADWISE_KERNELS_PREPARE_QKV_REFERENCE_H_

#include "absl/status/status.h"
#include "kernels/prepare_qkv/contract.h"

namespace headwise {

// q, k, v from `packed`. Arguments and errors are PrepareQkv's.
template <typename T>
absl::Status PrepareQkvReference(const QkvPreparation& op, const QkvInputs<T>& in,
                                 const QkvOutputs<T>& out);

// The packed gradient and the weights' gradients per kv group. Arguments and errors are
// PrepareQkvBackward's.
template <typename T>
absl::Status PrepareQkvBackwardReference(const QkvPreparation& op, const QkvInputs<T>& in,
                                         const QkvGradients<T>& gradients,
                                         const PackedGradients<T>& out);

}  // namespace headwise

#endif  // HEADWISE_KERNELS_PREPARE_QKV_REFERENCE_H_
