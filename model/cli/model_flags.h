// model_flags: --run and --hf, by which commands name a model.
#ifndef HEADWISE_MODEL_CLI_MODEL_FLAGS_H_
#define HEADWISE_MODEL_CLI_MODEL_FLAGS_H_

#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "model/hf/model_source.h"

namespace headwise {

// --hf DIR.
void AddHfOption(CLI::App* command, std::string* hf);

// The model of the one that is not empty. kInvalidArgument if both are or neither is.
absl::StatusOr<ModelSource> OpenRunOrHf(const std::string& run, const std::string& hf);

}  // namespace headwise

#endif  // HEADWISE_MODEL_CLI_MODEL_FLAGS_H_
