// config_source: the run configuration that a command's --preset, --config and --set flags name.
#ifndef HEADWISE_MODEL_CLI_CONFIG_SOURCE_H_
#define HEADWISE_MODEL_CLI_CONFIG_SOURCE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/proto/config.pb.h"

namespace headwise {

struct ConfigFlags {
  std::string preset = {};             // a preset's name
  std::string config_file = {};        // a RunConfig in text format; instead of a preset
  std::vector<std::string> sets = {};  // "path=value", applied last, in order
};

// The named base configuration; `fallback` if neither a preset nor a file is named. Not resolved,
// not validated.
absl::StatusOr<RunConfig> LoadBaseConfig(const ConfigFlags& flags, const RunConfig& fallback);

// Applies the --set flags.
absl::Status ApplySettings(const ConfigFlags& flags, RunConfig* config);

// Every setting with its type and comment, for `train --help-config`.
std::string ConfigReference();

// "model      name=... vocab_size=256 ...", one paragraph a group, wrapped: the configuration at a glance.
std::string CompactConfig(const RunConfig& config);

}  // namespace headwise

#endif  // HEADWISE_MODEL_CLI_CONFIG_SOURCE_H_
