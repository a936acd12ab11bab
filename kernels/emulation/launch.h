// Runs a launch: its blocks one after the other, or spread over OS threads. Internal to
// kernels/emulation: kernels say HW_LAUNCH.
#ifndef HEADWISE_KERNELS_EMULATION_LAUNCH_H_
#define HEADWISE_KERNELS_EMULATION_LAUNCH_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/emulation/dim3.h"

namespace headwise::emulation {

struct LaunchRequest {
  const char* name;
  const void* kernel;  // what AllowDynamicShared knows it by
  Dim3 grid, block;
  std::int64_t dynamic_shared_bytes;
  void (*run_thread)(const void* call);  // one CUDA thread from its beginning to its end
  const void* call;
};

// Under the calling thread's session. After a finding the session's later launches do nothing.
void RunLaunch(const LaunchRequest& request);

// OK, or kInternal with the first finding of the calling thread's session; without a session, with
// the first since this was last asked.
absl::Status TakeLaunchStatus(const char* kernel);

// False if no GPU has that much.
bool AllowDynamicShared(const void* kernel, int bytes);

}  // namespace headwise::emulation

#endif  // HEADWISE_KERNELS_EMULATION_LAUNCH_H_
