// groups: which update rule each parameter gets, and how Muon cuts it into blocks.
//
//   Muon    matrices of the hidden layers: packed qkv, query, key, value, attention gate,
//           attention output, mlp, expert
//   AdamW   embedding, output head, norms, biases, routers, and anything with fewer than two
//           dimensions
//   balancing   the biases that even out a router's choices (kernels/moe/balancing.h)
//
// A three-dimensional expert [E, out, in] is E matrices, each orthogonalised on its own. Head
// blocks are those that the parameter declares, coarsened to the granularity asked for; a matrix
// that declares none is one block. Nothing is guessed from names or shapes. Only shapes are read,
// so this also works on Device::kMeta.
//
// Separately stored query, key and value projections have each its own blocks: a kv group of a
// query projection is its query heads alone.
#ifndef HEADWISE_OPTIM_GROUPS_H_
#define HEADWISE_OPTIM_GROUPS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/heads/head_blocks.h"
#include "optim/parameter.h"

namespace headwise {

// Which update rule a parameter gets.
enum class OptimizerGroup {
  kMuonPerHead,  // Muon on the blocks that the parameter declares, at any granularity but the whole
                 // matrix
  kMuon,         // Muon on whole matrices
  kAdamW,
  kBalancing,
};

// "muon_per_head", "muon", "adamw", "balancing".
const char* Name(OptimizerGroup group);

// For the table printed at start.
struct ParameterAssignment {
  std::string name;
  ParameterRole role;
  OptimizerGroup group;
  std::int64_t elements;
  std::int64_t blocks;  // matrices that Newton-Schulz sees; 0 for those that are not Muon's
};

struct GroupedParameter {
  ParameterAssignment assignment;
  // For Muon's groups: blocks of the rows (or columns) of the parameter seen as a matrix whose
  // width is its last dimension.
  std::optional<HeadBlocks> blocks;
};

// Whether Muon takes parameters of this role, given that they are matrices.
bool IsHiddenMatrix(ParameterRole role);

// One result per parameter, in the order given. head_group_size is used by Granularity::kHeadGroup
// only. kInvalidArgument, naming the parameter:
//   * a parameter without a name, two with the same name, a value that is undefined or has no
//   elements;
//   * a hidden role with more dimensions than a matrix (an expert may have three);
//   * head blocks that do not cover the parameter's rows (or columns), or on a parameter that is
//   not Muon's;
//   * a granularity or head_group_size that does not fit the blocks;
//   * any granularity but the whole matrix when no parameter declares head blocks.
absl::StatusOr<std::vector<GroupedParameter>> AssignGroups(
    absl::Span<const Parameter* const> parameters, Granularity granularity,
    std::int64_t head_group_size);

}  // namespace headwise

#endif  // HEADWISE_OPTIM_GROUPS_H_
