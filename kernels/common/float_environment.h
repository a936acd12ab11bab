// The floating-point environment that the bitwise contracts assume: rounding to nearest, and
// subnormal numbers neither read nor written as zero; and a compiler that was told not to contract
// a*b+c to an fma (headwise.bazelrc has the flag: g++ contracts unless told not to).
//
// Libraries loaded with -ffast-math and some audio code switch subnormals off for a whole thread
// (the FTZ and DAZ bits of MXCSR). A kernel that promises bits asks first:
//
//   HW_RETURN_IF_ERROR(CheckFloatEnvironment());
#ifndef HEADWISE_KERNELS_COMMON_FLOAT_ENVIRONMENT_H_
#define HEADWISE_KERNELS_COMMON_FLOAT_ENVIRONMENT_H_

#include "absl/status/status.h"

namespace headwise {

// kFailedPrecondition if the calling thread's environment is another, naming what is wrong with it.
// A thread inherits the environment of the thread that created it; kernels check the caller's.
absl::Status CheckFloatEnvironment();

}  // namespace headwise

#endif  // HEADWISE_KERNELS_COMMON_FLOAT_ENVIRONMENT_H_
