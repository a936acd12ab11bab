// paths: where the muse binary looks for files and puts its runs.
#ifndef HEADWISE_MODEL_CLI_PATHS_H_
#define HEADWISE_MODEL_CLI_PATHS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace headwise {

// `bazel run` starts programs in its own tree: goes back to where the user stands
// (BUILD_WORKING_DIRECTORY), so that relative paths mean what they say.
absl::Status EnterUserDirectory();

// The training text that tools/setup.sh makes: data/kjv.txt of the repository that `bazel run` was
// called in, or of the current directory. kNotFound says where it looked and how to get it.
absl::StatusOr<std::string> DefaultTextPath();

// The first of runs/NAME, runs/NAME-2, runs/NAME-3, ... that does not exist.
std::string NewRunDirectory(const std::string& name);

// The directory under runs/ that was trained in last and holds a checkpoint. kNotFound if there is
// none.
absl::StatusOr<std::string> NewestRunDirectory();

}  // namespace headwise

#endif  // HEADWISE_MODEL_CLI_PATHS_H_
