// device: the --device flag, and how many threads to use when nobody says.
#ifndef HEADWISE_MODEL_CLI_DEVICE_H_
#define HEADWISE_MODEL_CLI_DEVICE_H_

#include <string>

#include "absl/status/status.h"

namespace headwise {

// OK if this binary runs on the device. kInvalidArgument for a name that is no device,
// kUnimplemented for one that this binary was built without.
absl::Status CheckDevice(const std::string& name);

// The cores this process may use.
int DefaultThreads();

}  // namespace headwise

#endif  // HEADWISE_MODEL_CLI_DEVICE_H_
