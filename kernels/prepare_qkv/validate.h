// What PrepareQkv and PrepareQkvBackward check before they write anything. Every backend calls
// these with the same arguments, so that an error reads the same wherever the kernel runs.
#ifndef HEADWISE_KERNELS_PREPARE_QKV_VALIDATE_H_
#define HEADWISE_KERNELS_PREPARE_QKV_VALIDATE_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/prepare_qkv/contract.h"

namespace headwise {

// Where positions are. Those in device memory cannot be looked at: QkvInputs::positions is empty.
enum class PositionsIn { kHostMemory, kDeviceMemory };

// kInvalidArgument: choices that do not go together, a wrong shape or stride, a missing or
// unexpected weight, memory that overlaps. kOutOfRange: a position without a table row, naming the
// token. kFailedPrecondition: this thread's floating-point environment. T is float, BFloat16 or
// double. Of matrices and weights only the addresses are looked at.
template <typename T>
absl::Status ValidateForward(const QkvPreparation& op, const QkvInputs<T>& in,
                             const QkvOutputs<T>& out,
                             PositionsIn positions = PositionsIn::kHostMemory);

template <typename T>
absl::Status ValidateBackward(const QkvPreparation& op, const QkvInputs<T>& in,
                              const QkvGradients<T>& gradients, const PackedGradients<T>& out,
                              PositionsIn positions = PositionsIn::kHostMemory);

// kInvalidArgument if the scratch of a backward overlaps one of its matrices.
template <typename T>
absl::Status ValidateScratch(absl::Span<const float> scratch, const QkvInputs<T>& in,
                             const QkvGradients<T>& gradients, const PackedGradients<T>& out);

}  // namespace headwise

#endif  // HEADWISE_KERNELS_PREPARE_QKV_VALIDATE_H_
