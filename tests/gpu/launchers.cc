// Compiled twice: HW_CUDA_NAMESPACE is cuda or cuda_emulated.
#include "tests/gpu/launchers.h"

namespace headwise {

template <typename T>
const TypedLaunchers<T>& Kernels() {
  static constexpr TypedLaunchers<T> kLaunchers = {
#define HW_MEMBER(name) .name = &HW_CUDA_NAMESPACE::name<T>,
      HW_TYPED_LAUNCHERS(HW_MEMBER)
#undef HW_MEMBER
          .ConvertToFloat = &HW_CUDA_NAMESPACE::Convert<T, float>,
      .ConvertFromFloat = &HW_CUDA_NAMESPACE::Convert<float, T>};
  return kLaunchers;
}
template const TypedLaunchers<float>& Kernels<float>();
template const TypedLaunchers<BFloat16>& Kernels<BFloat16>();

const UntypedLaunchers& Kernels() {
  static constexpr UntypedLaunchers kLaunchers = {
#define HW_MEMBER(name) .name = &HW_CUDA_NAMESPACE::name,
      HW_UNTYPED_LAUNCHERS(HW_MEMBER)
#undef HW_MEMBER
  };
  return kLaunchers;
}

}  // namespace headwise
