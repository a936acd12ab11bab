// The commands of the muse binary. Each adds itself to the command line and leaves what it will do
// in `action`, which main runs once the whole command line has been read.
#ifndef HEADWISE_MODEL_CLI_COMMANDS_H_
#define HEADWISE_MODEL_CLI_COMMANDS_H_

#include <functional>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"

namespace headwise {

using Action = std::function<absl::Status()>;

// For options that name something: an empty value (an unset shell variable) is an error, not an absent option.
inline CLI::Validator NotEmpty() {
  return CLI::Validator(
      [](std::string& value) {
        return std::string(value.empty() ? "expected a value, found none" : "");
      },
      "");
}

void AddTrainCommand(CLI::App& app, Action* action);
void AddGenerateCommand(CLI::App& app, Action* action);
void AddEvalCommand(CLI::App& app, Action* action);
void AddBenchCommand(CLI::App& app, Action* action);
void AddConvertCommand(CLI::App& app, Action* action);
void AddInfoCommand(CLI::App& app, Action* action);

}  // namespace headwise

#endif  // HEADWISE_MODEL_CLI_COMMANDS_H_
