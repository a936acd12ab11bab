#include "core/heads/head_pattern.h"

#include <limits>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/check.h"

namespace headwise {
namespace {

std::string Describe(const char* name, const HeadRun& run, std::int64_t repeats) {
  return absl::StrCat(name, ": ", run.heads, " ", Name(run.role), " heads of ", run.head_dim,
                      ", heads_per_kv_group=", run.heads_per_kv_group, ", ", repeats, " times");
}

// Positive, and small enough that products of two of them with another bound stay in 64 bits.
absl::Status CheckRun(const char* name, const HeadRun& run, std::int64_t repeats) {
  if (run.heads <= 0 || run.head_dim <= 0 || run.heads_per_kv_group <= 0 || repeats <= 0) {
    return absl::InvalidArgumentError(absl::StrCat("head counts and sizes must be positive, found ",
                                                   Describe(name, run, repeats)));
  }
  if (run.heads > kMaxHeadBlocks || repeats > kMaxHeadBlocks / run.heads) {
    return absl::InvalidArgumentError(
        absl::StrCat("more than ", kMaxHeadBlocks, " heads: ", Describe(name, run, repeats)));
  }
  return absl::OkStatus();
}

bool OneHeadDim(const std::vector<HeadRun>& runs) {
  for (const HeadRun& run : runs) {
    if (run.head_dim != runs.front().head_dim) return false;
  }
  return true;
}

}  // namespace

HeadPattern::HeadPattern(const char* name, std::vector<HeadRun> runs, std::int64_t repeats,
                         std::int64_t axis_size, std::int64_t num_blocks)
    : name_(name),
      runs_(std::move(runs)),
      repeats_(repeats),
      axis_size_(axis_size),
      num_blocks_(num_blocks) {}

absl::StatusOr<HeadPattern> HeadPattern::Create(const char* name, std::vector<HeadRun> runs,
                                                std::int64_t repeats) {
  if (runs.empty()) return absl::InvalidArgumentError(absl::StrCat(name, ": no heads"));
  std::int64_t axis_size = 0;
  std::int64_t num_blocks = 0;
  std::map<HeadRole, std::int64_t> heads_of_role;
  for (const HeadRun& run : runs) {
    if (absl::Status status = CheckRun(name, run, repeats); !status.ok()) return status;
    const std::int64_t heads = run.heads * repeats;
    num_blocks += heads;
    heads_of_role[run.role] += heads;
    if (num_blocks > kMaxHeadBlocks) {
      return absl::InvalidArgumentError(
          absl::StrCat("more than ", kMaxHeadBlocks, " heads: ", Describe(name, run, repeats)));
    }
    constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
    if (run.head_dim > (kMax - axis_size) / heads) {
      return absl::InvalidArgumentError(
          absl::StrCat("the number of rows overflows 64 bits: ", Describe(name, run, repeats)));
    }
    axis_size += heads * run.head_dim;
  }
  for (const HeadRun& run : runs) {
    if (heads_of_role[run.role] % run.heads_per_kv_group != 0) {
      return absl::InvalidArgumentError(absl::StrCat("heads_per_kv_group must divide the ",
                                                     heads_of_role[run.role], " ", Name(run.role),
                                                     " heads: ", Describe(name, run, repeats)));
    }
  }
  return HeadPattern(name, std::move(runs), repeats, axis_size, num_blocks);
}

absl::StatusOr<HeadPattern> HeadPattern::Separate(HeadRole role, std::int64_t heads,
                                                  std::int64_t head_dim,
                                                  std::int64_t heads_per_kv_group) {
  return Create("separate", {{role, heads, head_dim, heads_per_kv_group}});
}

absl::StatusOr<HeadPattern> HeadPattern::Sectioned(HeadGeometry geometry) {
  const absl::StatusOr<PackedQkv> checked = PackedQkv::Sectioned(geometry);
  if (!checked.ok()) return checked.status();
  const auto [heads, kv_heads, head_dim] = geometry;
  return Create("sectioned", {{HeadRole::kQuery, heads, head_dim, heads / kv_heads},
                              {HeadRole::kKey, kv_heads, head_dim},
                              {HeadRole::kValue, kv_heads, head_dim}});
}

absl::StatusOr<HeadPattern> HeadPattern::Interleaved(HeadGeometry geometry) {
  const absl::StatusOr<PackedQkv> checked = PackedQkv::Interleaved(geometry);
  if (!checked.ok()) return checked.status();
  const auto [heads, kv_heads, head_dim] = geometry;
  const std::int64_t group = heads / kv_heads;
  return Create("interleaved",
                {{HeadRole::kQuery, group, head_dim, group},
                 {HeadRole::kKey, 1, head_dim},
                 {HeadRole::kValue, 1, head_dim}},
                kv_heads);
}

absl::StatusOr<HeadPattern> HeadPattern::PerHeadQkv(std::int64_t heads, std::int64_t head_dim) {
  return Create("per_head_qkv",
                {{HeadRole::kQuery, 1, head_dim},
                 {HeadRole::kKey, 1, head_dim},
                 {HeadRole::kValue, 1, head_dim}},
                heads);
}

absl::StatusOr<HeadPattern> HeadPattern::FourBlock(std::int64_t heads, std::int64_t head_dim) {
  if (heads % 4 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("four_block: 4 must divide the number of heads, found ", heads));
  }
  return Create("four_block",
                {{HeadRole::kQuery, heads / 4, head_dim},
                 {HeadRole::kValue, heads / 4, head_dim},
                 {HeadRole::kKey, heads / 4, head_dim}},
                4);
}

absl::StatusOr<HeadPattern> HeadPattern::MlaQuery(std::int64_t heads, std::int64_t nope,
                                                  std::int64_t rope, MlaHeads parts) {
  absl::StatusOr<HeadPattern> split = Create(
      "mla_query", {{HeadRole::kQueryNope, 1, nope}, {HeadRole::kQueryRope, 1, rope}}, heads);
  if (!split.ok() || parts == MlaHeads::kSplit) return split;
  return Create("mla_query", {{HeadRole::kQuery, heads, nope + rope}});
}

absl::StatusOr<HeadPattern> HeadPattern::MlaKeyValue(std::int64_t heads, std::int64_t nope,
                                                     std::int64_t value, MlaHeads parts) {
  absl::StatusOr<HeadPattern> split =
      Create("mla_key_value", {{HeadRole::kKeyNope, 1, nope}, {HeadRole::kValue, 1, value}}, heads);
  if (!split.ok() || parts == MlaHeads::kSplit) return split;
  return Create("mla_key_value", {{HeadRole::kKeyValue, heads, nope + value}});
}

absl::StatusOr<HeadPattern> HeadPattern::GatedQuery(std::int64_t heads, std::int64_t head_dim,
                                                    std::int64_t heads_per_kv_group) {
  return Create("gated_query",
                {{HeadRole::kQuery, 1, head_dim, heads_per_kv_group},
                 {HeadRole::kGate, 1, head_dim, heads_per_kv_group}},
                heads);
}

absl::StatusOr<HeadPattern> HeadPattern::LinearGroups(LinearHeadGeometry g) {
  if (g.key_heads <= 0 || g.value_heads % g.key_heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "linear_groups: key_heads must divide value_heads, found key_heads=", g.key_heads,
        ", value_heads=", g.value_heads));
  }
  const std::int64_t ratio = g.value_heads / g.key_heads;
  return Create("linear_groups",
                {{HeadRole::kQuery, 1, g.key_dim},
                 {HeadRole::kKey, 1, g.key_dim},
                 {HeadRole::kValue, ratio, g.value_dim, ratio},
                 {HeadRole::kZ, ratio, g.value_dim, ratio}},
                g.key_heads);
}

absl::StatusOr<HeadPattern> HeadPattern::LinearSections(LinearHeadGeometry g) {
  if (g.key_heads <= 0 || g.value_heads % g.key_heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "linear_sections: key_heads must divide value_heads, found key_heads=", g.key_heads,
        ", value_heads=", g.value_heads));
  }
  return Create("linear_sections",
                {{HeadRole::kQuery, g.key_heads, g.key_dim},
                 {HeadRole::kKey, g.key_heads, g.key_dim},
                 {HeadRole::kValue, g.value_heads, g.value_dim, g.value_heads / g.key_heads}});
}

HeadBlocks HeadPattern::Blocks(BlockAxis axis) const {
  std::vector<HeadBlock> blocks;
  blocks.reserve(static_cast<std::size_t>(num_blocks_));
  std::map<HeadRole, std::int64_t> next_head;
  std::int64_t begin = 0;
  for (std::int64_t repeat = 0; repeat < repeats_; ++repeat) {
    for (const HeadRun& run : runs_) {
      for (std::int64_t i = 0; i < run.heads; ++i) {
        HeadBlock& block = blocks.emplace_back();
        block.ranges = {{begin, run.head_dim}};
        block.role = run.role;
        block.head = next_head[run.role]++;
        block.kv_group = block.head / run.heads_per_kv_group;
        begin += run.head_dim;
      }
    }
  }
  absl::StatusOr<HeadBlocks> result = HeadBlocks::Create(axis_size_, std::move(blocks), axis);
  HW_CHECK(result.ok()) << result.status();  // consecutive ranges tile
  return *std::move(result);
}

std::string HeadPattern::ToString() const {
  const bool one_size = OneHeadDim(runs_);
  std::string text;
  for (const HeadRun& run : runs_) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", run.heads, " ", Name(run.role));
    if (!one_size) absl::StrAppend(&text, " of ", run.head_dim);
  }
  if (repeats_ > 1) text = absl::StrCat(repeats_, " x (", text, ")");
  if (one_size) absl::StrAppend(&text, " of ", runs_.front().head_dim);
  return text;
}

}  // namespace headwise
