// A KernelLaunchers from the lists of launchers.h. Internal to kernels/launchers.
//
//   #define HW_LAUNCHER_OF(...) &cuda::__VA_ARGS__
//   constexpr KernelLaunchers kTable = HW_LAUNCHER_TABLE;
//
// HW_LAUNCHER_OF(function) is what the table holds for cuda::function.
#ifndef HEADWISE_KERNELS_LAUNCHERS_TABLE_H_
#define HEADWISE_KERNELS_LAUNCHERS_TABLE_H_

#include "kernels/launchers/launchers.h"

#define HW_F32_ENTRY(name) .name = HW_LAUNCHER_OF(name<float>),
#define HW_BF16_ENTRY(name) .name = HW_LAUNCHER_OF(name<BFloat16>),
#define HW_OTHER_ENTRY(name, ...) .name = HW_LAUNCHER_OF(__VA_ARGS__),
#define HW_LAUNCHER_TABLE                                                                       \
  {                                                                                             \
    .f32 = {HW_STORAGE_LAUNCHERS(HW_F32_ENTRY)}, .bf16 = {HW_STORAGE_LAUNCHERS(HW_BF16_ENTRY)}, \
    HW_OTHER_LAUNCHERS(HW_OTHER_ENTRY)                                                          \
  }

#endif  // HEADWISE_KERNELS_LAUNCHERS_TABLE_H_
