// KernelLaunchers: the launchers of every family's CUDA kernels (kernels/*/cuda.h) as a table of
// function pointers, so that a program chooses when it runs which build of the kernels it launches,
// and a library that launches them links none:
//
//   kernels/launchers/emulated.h      on the CPU, by the emulation
//   kernels/launchers/cuda.h          on the GPU
//   kernels/launchers/gpu_on_host.h   on the CPU, in the memory of a Gpu for tests
//
//   const KernelLaunchers& launchers = EmulatedLaunchers();
//   HW_RETURN_IF_ERROR(launchers.Of<T>().RmsNormForward(op, x, weight, y, stream));
//   HW_RETURN_IF_ERROR(launchers.AdamWStep(plan, launch));
//
// Arguments and errors are those of the families' headers; default arguments must be given. A new
// launcher is a line in one of the two lists, and a dependency of the tables' targets.
#ifndef HEADWISE_KERNELS_LAUNCHERS_LAUNCHERS_H_
#define HEADWISE_KERNELS_LAUNCHERS_LAUNCHERS_H_

#include <type_traits>

#include "core/dtype/bf16.h"
#include "kernels/adamw/cuda.h"
#include "kernels/attention/cuda.h"
#include "kernels/cross_entropy/cuda.h"
#include "kernels/elementwise/cuda.h"
#include "kernels/embedding/cuda.h"
#include "kernels/gemm/cuda.h"
#include "kernels/gradient_norm/cuda.h"
#include "kernels/moe/cuda.h"
#include "kernels/muon_step/cuda.h"
#include "kernels/prepare_qkv/cuda.h"
#include "kernels/prepare_qkv/cuda_unfused.h"
#include "kernels/rms_norm/cuda.h"
#include "kernels/swiglu/cuda.h"

// Launchers of a storage type, float or BFloat16: X(name).
#define HW_STORAGE_LAUNCHERS(X)  \
  X(RmsNormForward)              \
  X(RmsNormBackward)             \
  X(Add)                         \
  X(AddBias)                     \
  X(SigmoidGateForward)          \
  X(SigmoidGateBackward)         \
  X(ScatterRows)                 \
  X(ResidualGateForward)         \
  X(ResidualGateBackward)        \
  X(SwigluForward)               \
  X(SwigluBackward)              \
  X(LinearBackwardBias)          \
  X(EmbeddingForward)            \
  X(EmbeddingBackward)           \
  X(CrossEntropy)                \
  X(PrepareQkv)                  \
  X(PrepareQkvBackward)          \
  X(PrepareQkvUnfused)           \
  X(PrepareQkvBackwardUnfused)   \
  X(SplitQkvUnfused)             \
  X(AttentionForward)            \
  X(AttentionBackward)           \
  X(DispatchForward)             \
  X(DispatchBackward)            \
  X(CombineForward)              \
  X(CombineBackward)             \
  X(GroupedLinearForward)        \
  X(GroupedLinearBackwardInput)  \
  X(GroupedLinearBackwardWeight) \
  X(GroupedLinearBackwardBias)

// The others: X(name, function), in the namespace of a build.
#define HW_OTHER_LAUNCHERS(X)                       \
  X(ConvertToBFloat16, Convert<float, BFloat16>)    \
  X(ConvertFromBFloat16, Convert<BFloat16, float>)  \
  X(TransformLogits, TransformLogits)               \
  X(SumLosses, SumLosses)                           \
  X(ReduceHeadNormGradient, ReduceHeadNormGradient) \
  X(RouterForward, RouterForward)                   \
  X(RouterBackward, RouterBackward)                 \
  X(GroupByExpert, GroupByExpert)                   \
  X(CountLoads, CountLoads)                         \
  X(LoadBalancingLoss, LoadBalancingLoss)           \
  X(LoadBalancingBackward, LoadBalancingBackward)   \
  X(UpdateSelectionBias, UpdateSelectionBias)       \
  X(AdamWStep, AdamWStep)                           \
  X(DecideStep, DecideStep)                         \
  X(MuonStep, MuonStep)

namespace headwise {

template <typename T>
struct StorageLaunchers {
#define HW_LAUNCHER(name) decltype(&cuda::name<T>) name;
  HW_STORAGE_LAUNCHERS(HW_LAUNCHER)
#undef HW_LAUNCHER
};

// None is null.
struct KernelLaunchers {
  StorageLaunchers<float> f32;
  StorageLaunchers<BFloat16> bf16;
#define HW_LAUNCHER(name, ...) decltype(&cuda::__VA_ARGS__) name;
  HW_OTHER_LAUNCHERS(HW_LAUNCHER)
#undef HW_LAUNCHER

  template <typename T>
  const StorageLaunchers<T>& Of() const {
    if constexpr (std::is_same_v<T, float>) {
      return f32;
    } else {
      return bf16;
    }
  }
};

}  // namespace headwise

#endif  // HEADWISE_KERNELS_LAUNCHERS_LAUNCHERS_H_
