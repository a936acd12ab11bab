#include "model/cli/config_source.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "core/io/file_system.h"
#include "core/proto/config_descriptor.h"
#include "core/proto/message_fields.h"
#include "model/presets/presets.h"

namespace headwise {

absl::StatusOr<RunConfig> LoadBaseConfig(const ConfigFlags& flags, const RunConfig& fallback) {
  if (!flags.preset.empty() && !flags.config_file.empty()) {
    return absl::InvalidArgumentError("--preset and --config: expected one of them, found both");
  }
  if (!flags.preset.empty()) {
    absl::StatusOr<RunConfig> preset = LoadPreset(flags.preset);
    if (!preset.ok()) return absl::InvalidArgumentError(preset.status().message());
    return preset;
  }
  if (flags.config_file.empty()) return fallback;
  HW_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(flags.config_file));
  RunConfig config;
  HW_RETURN_IF_ERROR(ParseTextProto(flags.config_file, text, &config));
  return config;
}

absl::Status ApplySettings(const ConfigFlags& flags, RunConfig* config) {
  for (const std::string& setting : flags.sets) {
    const absl::Status status = ApplySetting(setting, config);
    if (!status.ok()) return absl::InvalidArgumentError(absl::StrCat("--set: ", status.message()));
  }
  return absl::OkStatus();
}

std::string ConfigReference() {
  std::string out;
  for (const FieldHelp& field : ListFields(RunConfig(), ConfigDescriptor())) {
    absl::StrAppendFormat(&out, "%s  (%s)\n    %s\n", field.path, field.type, field.comment);
  }
  return out;
}

std::string CompactConfig(const RunConfig& config) {
  constexpr std::size_t kColumns = 118;
  std::string out, line, group;
  for (const auto& [path, value] : FieldValues(config)) {
    const std::string next_group = path.substr(0, path.find('.'));
    const std::string item = absl::StrCat(" ", path.substr(next_group.size() + 1), "=", value);
    if (next_group != group) {
      if (!line.empty()) absl::StrAppend(&out, line, "\n");
      group = next_group;
      line = absl::StrFormat("%-10s", group);
    } else if (line.size() + item.size() > kColumns) {
      absl::StrAppend(&out, line, "\n");
      line = std::string(10, ' ');
    }
    line += item;
  }
  return absl::StrCat(out, line, "\n");
}

}  // namespace headwise
