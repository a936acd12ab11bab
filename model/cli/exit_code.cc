#include "model/cli/exit_code.h"

#include <cstdio>
#include <string>

namespace headwise {

ExitCode ToExitCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kInvalidArgument:
      return kExitUsage;
    case absl::StatusCode::kUnimplemented:
      return kExitDevice;
    case absl::StatusCode::kUnavailable:
      return kExitPeers;
    case absl::StatusCode::kAborted:
      return kExitNonFinite;
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
      return kExitInternal;
    default:
      return kExitData;
  }
}

int ReportError(const absl::Status& status) {
  std::string line(status.message());
  for (char& c : line) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  std::fflush(stdout);
  std::fprintf(stderr, "error: %s\n", line.c_str());
  return ToExitCode(status);
}

}  // namespace headwise
