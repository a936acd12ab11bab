// The launchers under test: those of the kernels that nvcc compiled, or of the emulated ones. The
// program decides by what it links: :gpu_launchers, or :emulated_launchers.
//
//   HW_RETURN_IF_ERROR(Kernels<BFloat16>().RmsNormForward(op, x, weight, y, stream));
//   HW_RETURN_IF_ERROR(Kernels().AdamWStep(factors, weight, m, v, gradient, stream));
#ifndef HEADWISE_TESTS_GPU_LAUNCHERS_H_
#define HEADWISE_TESTS_GPU_LAUNCHERS_H_

#include "core/dtype/dtype.h"
#include "kernels/adamw/cuda.h"
#include "kernels/attention/cuda.h"
#include "kernels/cross_entropy/cuda.h"
#include "kernels/elementwise/cuda.h"
#include "kernels/embedding/cuda.h"
#include "kernels/rms_norm/cuda.h"
#include "kernels/swiglu/cuda.h"

// Another launcher is another name in one of these.
#define HW_TYPED_LAUNCHERS(X)                                                            \
  X(Add)                                                                                 \
  X(AddBias)                                                                             \
  X(AttentionBackward)                                                                   \
  X(AttentionForward)                                                                    \
  X(CrossEntropy) X(EmbeddingBackward) X(EmbeddingForward) X(ResidualGateBackward)       \
      X(ResidualGateForward) X(RmsNormBackward) X(RmsNormForward) X(SigmoidGateBackward) \
          X(SigmoidGateForward) X(SwigluBackward) X(SwigluForward)
#define HW_UNTYPED_LAUNCHERS(X) X(AdamWStep) X(TransformLogits)

namespace headwise {

// Of activations stored as T, float or BFloat16.
template <typename T>
struct TypedLaunchers {
#define HW_MEMBER(name) decltype(&cuda::name<T>) name;
  HW_TYPED_LAUNCHERS(HW_MEMBER)
#undef HW_MEMBER
  decltype(&cuda::Convert<T, float>) ConvertToFloat;
  decltype(&cuda::Convert<float, T>) ConvertFromFloat;
};

struct UntypedLaunchers {
#define HW_MEMBER(name) decltype(&cuda::name) name;
  HW_UNTYPED_LAUNCHERS(HW_MEMBER)
#undef HW_MEMBER
};

template <typename T>
const TypedLaunchers<T>& Kernels();
const UntypedLaunchers& Kernels();

}  // namespace headwise

#endif  // HEADWISE_TESTS_GPU_LAUNCHERS_H_
