// What a GPU refuses to launch. Internal to kernels/emulation.
#ifndef HEADWISE_KERNELS_EMULATION_LAUNCH_LIMITS_H_
#define HEADWISE_KERNELS_EMULATION_LAUNCH_LIMITS_H_

#include <string>

#include "kernels/emulation/launch.h"

namespace headwise::emulation {

// Why the request's extents or dynamic shared memory cannot be had; empty if they can.
std::string CheckLimits(const LaunchRequest& request);

}  // namespace headwise::emulation

#endif  // HEADWISE_KERNELS_EMULATION_LAUNCH_LIMITS_H_
