// HeadPattern: how a projection's rows are cut into heads, as runs of heads that repeat. A few
// numbers describe what HeadBlocks lists block by block, for any number of heads.
//
//   // Per kv group 4 query heads, a key head, a value head: Falcon-40B, InternLM2, Muse.
//   const HeadPattern pattern = *HeadPattern::Interleaved({8, 2, 64});
//   pattern.axis_size();             // 768 rows
//   pattern.ToString();              // "2 x (4 query, 1 key, 1 value) of 64"
//   const HeadBlocks blocks = pattern.Blocks();
//
// A packing that has no name here is a list of runs:
//
//   // Query heads of 64 rows, each followed by a gate of one row per element.
//   HeadPattern::Create("gated_query", {{HeadRole::kQuery, 1, 64}, {HeadRole::kGate, 1, 64}}, 16);
//
// Heads of a role are numbered in the order in which they lie. Immutable value.
#ifndef HEADWISE_CORE_HEADS_HEAD_PATTERN_H_
#define HEADWISE_CORE_HEADS_HEAD_PATTERN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/heads/head_blocks.h"
#include "core/heads/packed_qkv.h"

namespace headwise {

// No attention has more heads; a pattern with more is refused before anything is allocated for it.
inline constexpr std::int64_t kMaxHeadBlocks = 65536;

// Consecutive heads of one role.
struct HeadRun {
  HeadRole role = HeadRole::kQuery;
  std::int64_t heads = 0;               // in one repetition of the pattern
  std::int64_t head_dim = 0;            // rows (or columns) of each
  std::int64_t heads_per_kv_group = 1;  // head h of the role belongs to kv group h / this
};

// Multi-head latent attention: whether a head's parts (with and without rotary position, keys and
// values) are one block or one block each.
enum class MlaHeads { kWhole, kSplit };

// Linear attention: q and k have key_heads heads of key_dim rows, v and z value_heads heads of
// value_dim rows; key_heads divides value_heads.
struct LinearHeadGeometry {
  std::int64_t key_heads = 0;
  std::int64_t value_heads = 0;
  std::int64_t key_dim = 0;
  std::int64_t value_dim = 0;
};

class HeadPattern {
 public:
  // The runs in stored order, `repeats` times. `name` must outlive the pattern (a literal).
  // kInvalidArgument, naming the numbers: no runs, a number that is not positive, a number of heads
  // that heads_per_kv_group does not divide, more than kMaxHeadBlocks heads, a number of rows that
  // does not fit in 64 bits.
  static absl::StatusOr<HeadPattern> Create(const char* name, std::vector<HeadRun> runs,
                                            std::int64_t repeats = 1);

  // The named packings. Errors as Create()'s.

  // "separate": one projection on its own. heads_per_kv_group as in HeadBlocks::Separate().
  static absl::StatusOr<HeadPattern> Separate(HeadRole role, std::int64_t heads,
                                              std::int64_t head_dim,
                                              std::int64_t heads_per_kv_group = 1);
  // "sectioned": all query heads, all key heads, all value heads.
  static absl::StatusOr<HeadPattern> Sectioned(HeadGeometry geometry);
  // "interleaved": per kv group its query heads, its key head, its value head.
  static absl::StatusOr<HeadPattern> Interleaved(HeadGeometry geometry);
  // "per_head_qkv": per head its query, key and value.
  static absl::StatusOr<HeadPattern> PerHeadQkv(std::int64_t heads, std::int64_t head_dim);
  // "four_block": four blocks, each a quarter of the query heads, then of the value heads, then of
  // the key heads; 4 divides `heads`. CodeGen, which was trained on four shards.
  static absl::StatusOr<HeadPattern> FourBlock(std::int64_t heads, std::int64_t head_dim);
  // "mla_query": per head `nope` rows without and `rope` rows with rotary position.
  static absl::StatusOr<HeadPattern> MlaQuery(std::int64_t heads, std::int64_t nope,
                                              std::int64_t rope, MlaHeads parts);
  // "mla_key_value": per head `nope` key rows and `value` value rows.
  static absl::StatusOr<HeadPattern> MlaKeyValue(std::int64_t heads, std::int64_t nope,
                                                 std::int64_t value, MlaHeads parts);
  // "gated_query": per head its query, then its gate, of head_dim rows each.
  static absl::StatusOr<HeadPattern> GatedQuery(std::int64_t heads, std::int64_t head_dim,
                                                std::int64_t heads_per_kv_group);
  // "linear_groups": per key head its q, its k, its value heads, their z.
  static absl::StatusOr<HeadPattern> LinearGroups(LinearHeadGeometry geometry);
  // "linear_sections": all q, all k, all v.
  static absl::StatusOr<HeadPattern> LinearSections(LinearHeadGeometry geometry);

  const char* name() const { return name_; }
  const std::vector<HeadRun>& runs() const { return runs_; }
  std::int64_t repeats() const { return repeats_; }
  // Rows (or columns) of the whole.
  std::int64_t axis_size() const { return axis_size_; }
  std::int64_t num_blocks() const { return num_blocks_; }

  // One block per head, in stored order.
  HeadBlocks Blocks(BlockAxis axis = BlockAxis::kRows) const;

  // "8 x (16 query, 1 key, 1 value) of 64"; sizes stand at each run where they differ:
  // "16 x (1 query of 128, 1 key of 128, 2 value of 64)".
  std::string ToString() const;

 private:
  HeadPattern(const char* name, std::vector<HeadRun> runs, std::int64_t repeats,
              std::int64_t axis_size, std::int64_t num_blocks);

  const char* name_;
  std::vector<HeadRun> runs_;
  std::int64_t repeats_;
  std::int64_t axis_size_;
  std::int64_t num_blocks_;
};

}  // namespace headwise

#endif  // HEADWISE_CORE_HEADS_HEAD_PATTERN_H_
