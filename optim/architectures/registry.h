// The table of all rules.
#ifndef HEADWISE_OPTIM_ARCHITECTURES_REGISTRY_H_
#define HEADWISE_OPTIM_ARCHITECTURES_REGISTRY_H_

#include <string>
#include <vector>

#include "optim/architectures/rule.h"

namespace headwise {

// Null if there is none. Lives as long as the program; thread-safe.
const ArchitectureRule* FindArchitectureRule(const std::string& model_type);

// All model_types, sorted.
std::vector<std::string> ArchitectureNames();

}  // namespace headwise

#endif  // HEADWISE_OPTIM_ARCHITECTURES_REGISTRY_H_
