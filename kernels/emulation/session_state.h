// What a Session keeps. Internal to kernels/emulation.
#ifndef HEADWISE_KERNELS_EMULATION_SESSION_STATE_H_
#define HEADWISE_KERNELS_EMULATION_SESSION_STATE_H_

#include <string>
#include <vector>

#include "kernels/emulation/emulation.h"
#include "kernels/emulation/region.h"

namespace headwise::emulation {

struct SessionState {
  Options options;
  Regions regions;
  std::vector<Traffic> traffic;  // by region
  std::vector<Launch> launches;
  std::string finding;  // the first; empty if there was none
  SessionState* outer = nullptr;
};

// The calling thread's innermost session, or null.
SessionState* CurrentSession();

}  // namespace headwise::emulation

#endif  // HEADWISE_KERNELS_EMULATION_SESSION_STATE_H_
