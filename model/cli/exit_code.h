// Exit codes of the muse binary, and how a Status becomes one.
#ifndef HEADWISE_MODEL_CLI_EXIT_CODE_H_
#define HEADWISE_MODEL_CLI_EXIT_CODE_H_

#include "absl/status/status.h"

namespace headwise {

enum ExitCode {
  kExitOk = 0,
  kExitInternal = 1,   // a bug
  kExitUsage = 2,      // a flag, a setting, a preset's name
  kExitData = 3,       // a file: missing, broken, of the wrong kind, or no room to write it
  kExitDevice = 4,     // the device is not there
  kExitPeers = 5,      // another rank failed
  kExitNonFinite = 6,  // the numbers broke down
};

// kInvalidArgument is usage, kUnimplemented the device, kUnavailable the peers, kAborted non-finite
// numbers, kInternal and kUnknown a bug; everything else came from data or files.
ExitCode ToExitCode(const absl::Status& status);

// Prints "error: <message>" as one line on stderr and returns the exit code.
int ReportError(const absl::Status& status);

}  // namespace headwise

#endif  // HEADWISE_MODEL_CLI_EXIT_CODE_H_
