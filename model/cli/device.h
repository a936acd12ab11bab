// device: the --device flag, and how many threads to use when nobody says.
#ifndef HEADWISE_MODEL_CLI_DEVICE_H_
#define HEADWISE_MODEL_CLI_DEVICE_H_

#include <string>

#include "absl/status/statusor.h"
#include "model/ops.h"

namespace headwise {

// How this binary runs on the device "cpu" or "cuda-emulated". kInvalidArgument for a name that is
// no device, kUnimplemented for one that this binary was built without.
absl::StatusOr<Kernels> KernelsOfDevice(const std::string& name);

// The cores this process may use.
int DefaultThreads();

}  // namespace headwise

#endif  // HEADWISE_MODEL_CLI_DEVICE_H_
