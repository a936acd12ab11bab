// VersionText: what `muse --version` prints: version, compiler, instruction set, CUDA.
#ifndef HEADWISE_MODEL_CLI_VERSION_H_
#define HEADWISE_MODEL_CLI_VERSION_H_

#include <string>

namespace headwise {

std::string VersionText();

}  // namespace headwise

#endif  // HEADWISE_MODEL_CLI_VERSION_H_
