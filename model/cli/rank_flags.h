// rank_flags: --mesh, --sp and --ranks of commands that run a model on several ranks.
#ifndef HEADWISE_MODEL_CLI_RANK_FLAGS_H_
#define HEADWISE_MODEL_CLI_RANK_FLAGS_H_

#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "core/proto/config.pb.h"
#include "model/standard_layout.h"

namespace headwise {

struct RankFlags {
  std::string mesh;
  bool sequence_parallel = false;
  std::string ranks;
};

void AddRankOptions(CLI::App* command, RankFlags* flags);

// A layout that was checked: forward, backward and gradients are right under it.
struct CheckedLayout {
  ShardedLayout layout;
  std::string description;  // "dp=2,tp=2: ...; each rank sends 12.3 MiB a step"
};

// The layout that the flags ask for; nothing for one rank. kInvalidArgument: flags that do not read
// or contradict each other; sizes of the run that do not fit the mesh. kFailedPrecondition: the
// first mistake of the layout. kUnimplemented: ranks that this binary cannot start.
absl::StatusOr<std::optional<CheckedLayout>> CheckLayout(const RankFlags& flags,
                                                         const RunConfig& config);

}  // namespace headwise

#endif  // HEADWISE_MODEL_CLI_RANK_FLAGS_H_
