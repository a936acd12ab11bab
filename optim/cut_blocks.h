// CutBlocks: which of Muon's blocks ranks share, who orthogonalises each, and what has to move.
//
// A block that lies on one rank is orthogonalised there (per head: all of them). A block that mesh
// axes cut (a whole matrix, a projection) is brought together on one rank of the group that those
// axes make, its owner, and what comes out is sent back to where it belongs:
//
//   owner   the blocks of a group, the most expensive first (rows x columns x the smaller of the
//           two; then by name and place), are dealt out to its ranks in turn; a block of which only
//           one rank of the group has elements is that rank's
//   round   blocks move in rounds, so that no rank ever holds all of them: every rank owns at most
//           kRoundElements elements in a round, or one block
//
// Ranks that differ in place on other axes only (replicas: R or I there) each do the same in a
// group of their own. Pure arithmetic on layouts: the optimizer and the account of what it sends
// (optimizer_communication.h) read the same plan.
#ifndef HEADWISE_OPTIM_CUT_BLOCKS_H_
#define HEADWISE_OPTIM_CUT_BLOCKS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/heads/head_blocks.h"
#include "core/parallel/mesh.h"
#include "optim/parameter_share.h"

namespace headwise {

// 64 MiB of fp32.
inline constexpr std::int64_t kRoundElements = std::int64_t{1} << 24;

// A rectangle of a block, and where it lies in a rank's share seen as [batch rows, columns].
struct BlockPiece {
  std::int64_t row = 0, column = 0;              // in the block
  std::int64_t share_row = 0, share_column = 0;  // in the share
  std::int64_t rows = 0, columns = 0;
  std::int64_t size() const { return rows * columns; }
};

// One matrix that Newton-Schulz sees, and that several ranks have pieces of.
struct CutBlock {
  std::size_t parameter = 0;  // index into what PlanCutBlocks() was given
  std::int64_t rows = 0, columns = 0;
  std::vector<std::vector<BlockPiece>> pieces;  // of every member; what they send, in this order
  std::size_t owner = 0;                        // a member
  std::int64_t round = 0;

  std::int64_t ElementsOf(std::size_t member) const;
};

struct CutGroup {
  MeshView view = MeshView::kDense;
  std::vector<int> axes;
  std::vector<std::int64_t> members;  // ranks, ascending
  std::size_t self = 0;               // the member that this rank is
  std::vector<CutBlock> blocks;       // round by round; within a round by owner
  std::int64_t rounds = 0;
};

// One of Muon's parameters.
struct BlockedParameter {
  std::string name;
  const ParameterShare* share = nullptr;  // not owned
  // Of the whole: of rows (or columns), or of the rows of a batch of matrices, one below the other.
  const HeadBlocks* blocks = nullptr;  // not owned
};

struct CutPlan {
  // By parameter: the blocks of this rank's share, or nothing where axes cut blocks.
  std::vector<std::optional<HeadBlocks>> local;
  std::vector<CutGroup> groups;  // in the same order on every rank
};

CutPlan PlanCutBlocks(absl::Span<const BlockedParameter> parameters, std::int64_t rank,
                      std::int64_t round_elements = kRoundElements);

}  // namespace headwise

#endif  // HEADWISE_OPTIM_CUT_BLOCKS_H_
