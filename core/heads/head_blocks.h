// HeadBlocks: a checked partition of one axis of a weight into the blocks that Muon orthogonalises,
// one at a time.
//
// A head is one range of rows (or columns). A coarser block (a kv group, a projection) is an
// ordered list of ranges: its rows enter Newton-Schulz in (role q, k, v; head; row) order whatever
// the packing, so the same heads packed differently get the same update.
//
//   const HeadBlocks heads = HeadBlocks::FromPacked(*PackedQkv::Interleaved({8, 2, 64}));
//   heads.size();                                            // 12 blocks of 64 rows
//   heads.Coarsen(Granularity::kKvGroup)->size();            // 2 blocks of 384 rows
//
// Packings other than these, as a pattern of runs of heads: head_pattern.h.
//
// The blocks tile the axis: every row is in exactly one. Creation fails otherwise, naming the row.
// Immutable value.
#ifndef HEADWISE_CORE_HEADS_HEAD_BLOCKS_H_
#define HEADWISE_CORE_HEADS_HEAD_BLOCKS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/heads/packed_qkv.h"

namespace headwise {

enum class HeadRole {
  kQuery,
  kKey,
  kValue,
  kGate,
  kZ,
  kQueryNope,
  kQueryRope,
  kKeyNope,
  kKeyValue,  // the keys (without rotary part) and values of one head, as one block
  kWhole,     // the single block of an unpartitioned matrix
};

// "query", "key", ..., "key_value", "whole".
const char* Name(HeadRole role);

// How coarse the blocks are.
enum class Granularity {
  kWholeMatrix,  // one block in stored order; promises nothing across packings
  kProjection,   // one block per role
  kKvGroup,      // one block per kv group, roles mixed
  kHead,         // one block per head
  kHeadGroup,    // `head_group_size` consecutive heads of one role
};

// "whole_matrix", "projection", "kv_group", "head", "head_group".
const char* Name(Granularity granularity);

enum class BlockAxis { kRows, kColumns };

struct IndexRange {
  std::int64_t begin = 0;
  std::int64_t size = 0;
  friend bool operator==(const IndexRange&, const IndexRange&) = default;
};

struct HeadBlock {
  std::vector<IndexRange> ranges;    // in the order in which the rows enter Newton-Schulz
  HeadRole role = HeadRole::kWhole;  // of the first head, in a block of mixed roles
  std::int64_t head = 0;             // within its role; the first head of a coarser block
  std::int64_t kv_group = 0;         // the first kv group of a coarser block
  // Rows (or columns) of the block: the sum of the ranges' sizes.
  std::int64_t size() const;
  friend bool operator==(const HeadBlock&, const HeadBlock&) = default;
};

class HeadBlocks {
 public:
  // One block per head, in the order given. Checks that the blocks' ranges are non-empty, in
  // bounds, disjoint, and cover [0, axis_size). kInvalidArgument names the first row that is
  // missing or taken twice, and the blocks involved.
  static absl::StatusOr<HeadBlocks> Create(std::int64_t axis_size, std::vector<HeadBlock> blocks,
                                           BlockAxis axis = BlockAxis::kRows);

  // One block holding everything; axis_size > 0 (checked).
  static HeadBlocks Whole(std::int64_t axis_size);
  // One block per head of a packed QKV weight (rows = slots * head_dim), in stored order: block i
  // is slot i.
  static HeadBlocks FromPacked(const PackedQkv& layout);
  // `heads` blocks of `head_dim` rows: a separately stored projection. heads_per_kv_group is H/G
  // for queries and gates, 1 for keys and values. kInvalidArgument if a number is not positive,
  // heads_per_kv_group does not divide heads, or the number of rows does not fit in 64 bits.
  static absl::StatusOr<HeadBlocks> Separate(HeadRole role, std::int64_t heads,
                                             std::int64_t head_dim,
                                             std::int64_t heads_per_kv_group);

  // Merges per-head blocks into coarser ones. Blocks come in role order (kProjection), kv group
  // order (kKvGroup) or (role, head) order (kHeadGroup); kHead changes nothing. Ranges that follow
  // one another in memory become one. head_group_size is used by kHeadGroup only and must divide
  // the number of heads of each role.
  //
  // A single whole block stays whole at every granularity. kInvalidArgument if head_group_size does
  // not divide, if two blocks claim the same head of the same role, or if the blocks are already
  // coarser than heads and something other than kWholeMatrix or their own granularity is asked for.
  absl::StatusOr<HeadBlocks> Coarsen(Granularity granularity,
                                     std::int64_t head_group_size = 1) const;

  const std::vector<HeadBlock>& blocks() const { return blocks_; }
  std::int64_t axis_size() const { return axis_size_; }
  BlockAxis axis() const { return axis_; }
  // kHead as created, kWholeMatrix for Whole(), else what Coarsen() was asked for.
  Granularity granularity() const { return granularity_; }
  std::int64_t size() const { return static_cast<std::int64_t>(blocks_.size()); }

 private:
  HeadBlocks(std::int64_t axis_size, BlockAxis axis, Granularity granularity,
             std::vector<HeadBlock> blocks);

  std::int64_t axis_size_;
  BlockAxis axis_;
  Granularity granularity_;
  std::vector<HeadBlock> blocks_;
};

}  // namespace headwise

#endif  // HEADWISE_CORE_HEADS_HEAD_BLOCKS_H_
