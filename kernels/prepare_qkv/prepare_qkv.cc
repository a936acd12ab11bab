#include "kernels/prepare_qkv/prepare_qkv.h"

#include <cstdint>
#include <type_traits>

#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "kernels/common/reductions.h"
#include "kernels/prepare_qkv/cpu.h"
#include "kernels/prepare_qkv/reference.h"
#include "kernels/prepare_qkv/validate.h"

namespace headwise {

template <typename T>
absl::Status PrepareQkv(const QkvPreparation& op, const QkvInputs<T>& in, const QkvOutputs<T>& out,
                        ThreadPool& pool) {
  if constexpr (std::is_same_v<T, double>) {
    return PrepareQkvReference(op, in, out);
  } else {
    HW_RETURN_IF_ERROR(ValidateForward(op, in, out));
    PrepareQkvCpu(op, in, out, pool);
    return absl::OkStatus();
  }
}

template <typename T>
absl::Status PrepareQkvBackward(const QkvPreparation& op, const QkvInputs<T>& in,
                                const QkvGradients<T>& gradients, const PackedGradients<T>& out,
                                ThreadPool& pool) {
  if constexpr (std::is_same_v<T, double>) {
    return PrepareQkvBackwardReference(op, in, gradients, out);
  } else {
    HW_RETURN_IF_ERROR(ValidateBackward(op, in, gradients, out));
    PrepareQkvBackwardCpu(op, in, gradients, out, pool);
    return absl::OkStatus();
  }
}

template <typename C>
void ReduceHeadNormGradient(RowSpan<const C> per_group, absl::Span<C> out) {
  HW_CHECK_EQ(static_cast<std::int64_t>(out.size()), per_group.width);
  for (std::int64_t d = 0; d < per_group.width; ++d) {
    AdjacentPairAccumulator<C> sum;
    for (std::int64_t g = 0; g < per_group.rows; ++g) sum.Add(per_group.row(g)[d]);
    out[d] = sum.Total();
  }
}

#define HW_INSTANTIATE(T)                                                                     \
  template absl::Status PrepareQkv(const QkvPreparation&, const QkvInputs<T>&,                \
                                   const QkvOutputs<T>&, ThreadPool&);                        \
  template absl::Status PrepareQkvBackward(const QkvPreparation&, const QkvInputs<T>&,        \
                                           const QkvGradients<T>&, const PackedGradients<T>&, \
                                           ThreadPool&)
HW_INSTANTIATE(float);
HW_INSTANTIATE(BFloat16);
HW_INSTANTIATE(double);
#undef HW_INSTANTIATE
template void ReduceHeadNormGradient(RowSpan<const float>, absl::Span<float>);
template void ReduceHeadNormGradient(RowSpan<const double>, absl::Span<double>);

}  // namespace headwise
