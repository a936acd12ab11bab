#include "core/heads/head_blocks.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"

namespace headwise {
namespace {

// A range and the index of the block that claims it.
struct Claim {
  IndexRange range;
  std::size_t block;
};

const char* Noun(BlockAxis axis) { return axis == BlockAxis::kRows ? "row" : "column"; }

std::string Describe(const IndexRange& range) {
  return absl::StrCat("[", range.begin, ", ", range.begin + range.size, ")");
}

// "block 3 (query head 3)"
std::string Describe(const std::vector<HeadBlock>& blocks, std::size_t i) {
  return absl::StrCat("block ", i, " (", Name(blocks[i].role), " head ", blocks[i].head, ")");
}

// Each range alone: not empty, in bounds. Returns the claims of all blocks.
absl::StatusOr<std::vector<Claim>> CollectClaims(std::int64_t axis_size,
                                                 const std::vector<HeadBlock>& blocks,
                                                 BlockAxis axis) {
  std::vector<Claim> claims;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i].ranges.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(Describe(blocks, i), " has no ", Noun(axis), " ranges"));
    }
    for (const IndexRange& range : blocks[i].ranges) {
      if (range.size <= 0) {
        return absl::InvalidArgumentError(absl::StrCat(Describe(blocks, i),
                                                       " has an empty range: ", range.size, " ",
                                                       Noun(axis), "s from ", range.begin));
      }
      // Written so that begin + size cannot overflow.
      if (range.begin < 0 || range.size > axis_size || range.begin > axis_size - range.size) {
        return absl::InvalidArgumentError(absl::StrCat(
            Describe(blocks, i), " is out of bounds: ", range.size, " ", Noun(axis), "s from ",
            range.begin, ", but the axis has ", axis_size, " ", Noun(axis), "s"));
      }
      claims.push_back({range, i});
    }
  }
  return claims;
}

// All ranges together: every row once.
absl::Status CheckTiling(std::int64_t axis_size, const std::vector<HeadBlock>& blocks,
                         std::vector<Claim> claims, BlockAxis axis) {
  std::stable_sort(claims.begin(), claims.end(),
                   [](const Claim& a, const Claim& b) { return a.range.begin < b.range.begin; });
  std::int64_t next = 0;  // rows [0, next) are taken once each
  for (std::size_t i = 0; i < claims.size(); ++i) {
    const Claim& claim = claims[i];
    if (claim.range.begin < next) {
      const Claim& before = claims[i - 1];
      return absl::InvalidArgumentError(
          absl::StrCat(Noun(axis), " ", claim.range.begin, " is in two head blocks: ",
                       Describe(blocks, before.block), " takes ", Describe(before.range), ", ",
                       Describe(blocks, claim.block), " takes ", Describe(claim.range)));
    }
    if (claim.range.begin > next) {
      return absl::InvalidArgumentError(absl::StrCat(
          Noun(axis), " ", next, " is in no head block: ", Describe(blocks, claim.block),
          " begins at ", claim.range.begin,
          i == 0 ? std::string(" and nothing lies before it")
                 : absl::StrCat(" and ", Describe(blocks, claims[i - 1].block), " ends at ", next),
          " (gap of ", claim.range.begin - next, ")"));
    }
    next += claim.range.size;
  }
  if (next < axis_size) {
    return absl::InvalidArgumentError(absl::StrCat(
        Noun(axis), " ", next, " is in no head block: ",
        claims.empty()
            ? std::string("there are no blocks")
            : absl::StrCat(Describe(blocks, claims.back().block), ", the last, ends at ", next),
        ", the axis has ", axis_size, " ", Noun(axis), "s"));
  }
  return absl::OkStatus();
}

// The order in which heads enter Newton-Schulz. HeadRole is declared in role order.
std::pair<HeadRole, std::int64_t> RoleThenHead(const HeadBlock& block) {
  return {block.role, block.head};
}

void AppendRange(std::vector<IndexRange>& ranges, const IndexRange& range) {
  if (!ranges.empty() && ranges.back().begin + ranges.back().size == range.begin) {
    ranges.back().size += range.size;
  } else {
    ranges.push_back(range);
  }
}

// Blocks of equal key become one, whose ranges keep the order of `blocks`; the results are in key
// order.
template <typename KeyFn>
std::vector<HeadBlock> MergeByKey(const std::vector<HeadBlock>& blocks, KeyFn key_of) {
  std::map<std::int64_t, HeadBlock> merged;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const HeadBlock& from = blocks[i];
    auto [it, inserted] = merged.try_emplace(key_of(i));
    HeadBlock& to = it->second;
    if (inserted) {
      to.role = from.role;
      to.head = from.head;
      to.kv_group = from.kv_group;
    }
    to.kv_group = std::min(to.kv_group, from.kv_group);
    for (const IndexRange& range : from.ranges) AppendRange(to.ranges, range);
  }
  std::vector<HeadBlock> result;
  result.reserve(merged.size());
  for (auto& [key, block] : merged) result.push_back(std::move(block));
  return result;
}

}  // namespace

const char* Name(HeadRole role) {
  switch (role) {
    case HeadRole::kQuery:
      return "query";
    case HeadRole::kKey:
      return "key";
    case HeadRole::kValue:
      return "value";
    case HeadRole::kGate:
      return "gate";
    case HeadRole::kZ:
      return "z";
    case HeadRole::kQueryNope:
      return "query_nope";
    case HeadRole::kQueryRope:
      return "query_rope";
    case HeadRole::kKeyNope:
      return "key_nope";
    case HeadRole::kKeyValue:
      return "key_value";
    case HeadRole::kWhole:
      return "whole";
  }
  return "?";
}

const char* Name(Granularity granularity) {
  switch (granularity) {
    case Granularity::kWholeMatrix:
      return "whole_matrix";
    case Granularity::kProjection:
      return "projection";
    case Granularity::kKvGroup:
      return "kv_group";
    case Granularity::kHead:
      return "head";
    case Granularity::kHeadGroup:
      return "head_group";
  }
  return "?";
}

std::int64_t HeadBlock::size() const {
  std::int64_t size = 0;
  for (const IndexRange& range : ranges) size += range.size;
  return size;
}

HeadBlocks::HeadBlocks(std::int64_t axis_size, BlockAxis axis, Granularity granularity,
                       std::vector<HeadBlock> blocks)
    : axis_size_(axis_size), axis_(axis), granularity_(granularity), blocks_(std::move(blocks)) {}

absl::StatusOr<HeadBlocks> HeadBlocks::Create(std::int64_t axis_size, std::vector<HeadBlock> blocks,
                                              BlockAxis axis) {
  if (axis_size <= 0) {
    return absl::InvalidArgumentError(absl::StrCat("the blocked axis must have at least one ",
                                                   Noun(axis), ", found ", axis_size));
  }
  HW_ASSIGN_OR_RETURN(std::vector<Claim> claims, CollectClaims(axis_size, blocks, axis));
  HW_RETURN_IF_ERROR(CheckTiling(axis_size, blocks, std::move(claims), axis));
  return HeadBlocks(axis_size, axis, Granularity::kHead, std::move(blocks));
}

HeadBlocks HeadBlocks::Whole(std::int64_t axis_size) {
  HW_CHECK_GT(axis_size, 0);
  std::vector<HeadBlock> blocks(1);
  blocks[0].ranges = {{0, axis_size}};
  return HeadBlocks(axis_size, BlockAxis::kRows, Granularity::kWholeMatrix, std::move(blocks));
}

HeadBlocks HeadBlocks::FromPacked(const PackedQkv& layout) {
  std::vector<HeadBlock> blocks(static_cast<std::size_t>(layout.slots()));
  for (std::int64_t slot = 0; slot < layout.slots(); ++slot) {
    const QkvSlot content = layout.SlotAt(slot);
    HeadBlock& block = blocks[static_cast<std::size_t>(slot)];
    block.ranges = {{slot * layout.head_dim(), layout.head_dim()}};
    block.head = content.head;
    block.kv_group =
        content.role == QkvRole::kQuery ? content.head / layout.group_size() : content.head;
    switch (content.role) {
      case QkvRole::kQuery:
        block.role = HeadRole::kQuery;
        break;
      case QkvRole::kKey:
        block.role = HeadRole::kKey;
        break;
      case QkvRole::kValue:
        block.role = HeadRole::kValue;
        break;
    }
  }
  return HeadBlocks(layout.row_width(), BlockAxis::kRows, Granularity::kHead, std::move(blocks));
}

absl::StatusOr<HeadBlocks> HeadBlocks::Separate(HeadRole role, std::int64_t heads,
                                                std::int64_t head_dim,
                                                std::int64_t heads_per_kv_group) {
  const auto error = [&](const char* what) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": role ", Name(role), ", heads=", heads,
                                                   ", head_dim=", head_dim,
                                                   ", heads_per_kv_group=", heads_per_kv_group));
  };
  if (heads <= 0 || head_dim <= 0 || heads_per_kv_group <= 0) {
    return error("head counts of a separate projection must be positive");
  }
  if (heads % heads_per_kv_group != 0) return error("heads_per_kv_group must divide heads");
  if (head_dim > std::numeric_limits<std::int64_t>::max() / heads) {
    return error("the number of rows overflows 64 bits");
  }
  std::vector<HeadBlock> blocks(static_cast<std::size_t>(heads));
  for (std::int64_t head = 0; head < heads; ++head) {
    HeadBlock& block = blocks[static_cast<std::size_t>(head)];
    block.ranges = {{head * head_dim, head_dim}};
    block.role = role;
    block.head = head;
    block.kv_group = head / heads_per_kv_group;
  }
  return HeadBlocks(heads * head_dim, BlockAxis::kRows, Granularity::kHead, std::move(blocks));
}

absl::StatusOr<HeadBlocks> HeadBlocks::Coarsen(Granularity granularity,
                                               std::int64_t head_group_size) const {
  if (granularity == Granularity::kWholeMatrix) {
    HeadBlocks whole = Whole(axis_size_);
    whole.axis_ = axis_;
    return whole;
  }
  if (granularity_ == Granularity::kWholeMatrix) return *this;
  // Group sizes of two calls cannot be told apart, so head groups are only made from heads.
  if (granularity_ == granularity && granularity != Granularity::kHeadGroup) return *this;
  if (granularity_ != Granularity::kHead) {
    return absl::InvalidArgumentError(absl::StrCat("blocks of granularity ", Name(granularity_),
                                                   " cannot be regrouped as ", Name(granularity),
                                                   "; coarsen the per-head blocks instead"));
  }

  std::vector<HeadBlock> heads = blocks_;
  std::stable_sort(heads.begin(), heads.end(), [](const HeadBlock& a, const HeadBlock& b) {
    return RoleThenHead(a) < RoleThenHead(b);
  });
  std::map<HeadRole, std::int64_t> heads_of_role;
  for (std::size_t i = 0; i < heads.size(); ++i) {
    if (i > 0 && RoleThenHead(heads[i - 1]) == RoleThenHead(heads[i])) {
      return absl::InvalidArgumentError(
          absl::StrCat("two blocks are ", Name(heads[i].role), " head ", heads[i].head, ": ",
                       Noun(axis_), "s ", Describe(heads[i - 1].ranges.front()), " and ",
                       Describe(heads[i].ranges.front()), "; their order would be arbitrary"));
    }
    ++heads_of_role[heads[i].role];
  }

  const auto key_of = [&](std::size_t i) -> std::int64_t {
    switch (granularity) {
      case Granularity::kProjection:
        return static_cast<std::int64_t>(heads[i].role);
      case Granularity::kKvGroup:
        return heads[i].kv_group;
      default:
        // The group size divides every role's count (checked below), so no group holds two roles.
        return static_cast<std::int64_t>(i) / head_group_size;
    }
  };
  if (granularity == Granularity::kHeadGroup) {
    for (const auto& [role, count] : heads_of_role) {
      if (head_group_size <= 0 || count % head_group_size != 0) {
        return absl::InvalidArgumentError(absl::StrCat("head_group_size ", head_group_size,
                                                       " does not divide the ", count, " ",
                                                       Name(role), " heads"));
      }
    }
  }
  return HeadBlocks(axis_size_, axis_, granularity, MergeByKey(heads, key_of));
}

}  // namespace headwise
