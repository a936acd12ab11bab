// The drawing of one weight's heads.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/nearest_name.h"
#include "core/base/printable.h"
#include "core/base/status_macros.h"
#include "tools/head_blocks/report.h"

namespace headwise {
namespace {

constexpr std::size_t kHeadsPerLine = 64;

char Letter(HeadRole role) {
  switch (role) {
    case HeadRole::kQuery:
    case HeadRole::kQueryNope:
      return 'Q';
    case HeadRole::kQueryRope:
      return 'R';
    case HeadRole::kKey:
    case HeadRole::kKeyNope:
      return 'K';
    case HeadRole::kValue:
      return 'V';
    case HeadRole::kGate:
      return 'G';
    case HeadRole::kZ:
      return 'Z';
    case HeadRole::kKeyValue:
      return 'B';  // both
    case HeadRole::kWhole:
      return 'W';
  }
  return '?';
}

// Consecutive heads of one role and size.
struct Run {
  HeadRole role;
  std::int64_t size;  // of each head
  std::int64_t begin;
  std::int64_t first_head;
  std::int64_t heads;
};

// A line of the drawing: heads that lie one behind the other.
struct Line {
  std::string letters;
  std::vector<Run> runs;
};

// A new line begins where the packing starts over, and after kHeadsPerLine heads.
std::vector<Line> DrawLines(const HeadBlocks& blocks) {
  std::vector<HeadRole> order;  // roles by first appearance
  const auto rank = [&](HeadRole role) {
    const auto it = std::find(order.begin(), order.end(), role);
    if (it != order.end()) return it - order.begin();
    order.push_back(role);
    return static_cast<std::ptrdiff_t>(order.size()) - 1;
  };
  std::vector<Line> lines;
  std::ptrdiff_t last_rank = 0;
  for (const HeadBlock& block : blocks.blocks()) {
    const std::ptrdiff_t this_rank = rank(block.role);
    if (lines.empty() || this_rank < last_rank || lines.back().letters.size() == kHeadsPerLine) {
      lines.emplace_back();
    }
    last_rank = this_rank;
    Line& line = lines.back();
    line.letters.push_back(Letter(block.role));
    if (line.runs.empty() || line.runs.back().role != block.role) {
      line.runs.push_back({block.role, block.size(), block.ranges[0].begin, block.head, 0});
    }
    ++line.runs.back().heads;
  }
  return lines;
}

std::string RunText(const Run& run) {
  return run.heads == 1 ? absl::StrCat(Name(run.role), " ", run.first_head)
                        : absl::StrCat(Name(run.role), " ", run.first_head, "-",
                                       run.first_head + run.heads - 1);
}

std::string LineText(const Line& line, int width) {
  std::string text = absl::StrFormat("%9d  %-*s  ", line.runs[0].begin, width, line.letters);
  for (std::size_t i = 0; i < line.runs.size(); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", RunText(line.runs[i]));
  }
  return text;
}

// Whether two lines draw the same, other heads of it.
bool SameForm(const Line& a, const Line& b) { return a.letters == b.letters; }

std::string Drawing(const HeadBlocks& blocks) {
  const std::vector<Line> lines = DrawLines(blocks);
  std::size_t width = 0;
  for (const Line& line : lines) width = std::max(width, line.letters.size());
  std::string text;
  for (std::size_t i = 0; i < lines.size();) {
    std::size_t same = i + 1;
    while (same < lines.size() && SameForm(lines[same], lines[i])) ++same;
    const std::size_t count = same - i;
    // The first two and the last of many.
    const std::size_t shown = count > 8 ? 2 : count;
    for (std::size_t j = i; j < i + shown; ++j) {
      absl::StrAppend(&text, LineText(lines[j], static_cast<int>(width)), "\n");
    }
    if (shown < count) {
      absl::StrAppendFormat(&text, "%9s  %d more like these\n", "...", count - shown - 1);
      absl::StrAppend(&text, LineText(lines[same - 1], static_cast<int>(width)), "\n");
    }
    i = same;
  }
  return text;
}

std::string Legend(const HeadBlocks& blocks) {
  std::vector<std::pair<HeadRole, std::int64_t>> roles;
  for (const HeadBlock& block : blocks.blocks()) {
    const std::pair<HeadRole, std::int64_t> role = {block.role, block.size()};
    if (std::find(roles.begin(), roles.end(), role) == roles.end()) roles.push_back(role);
  }
  std::string text = "one letter a head: ";
  for (std::size_t i = 0; i < roles.size(); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", std::string(1, Letter(roles[i].first)), " ",
                    Name(roles[i].first), " (", roles[i].second, ")");
  }
  return text;
}

// The blocks that Newton-Schulz sees at a coarser granularity.
std::string CoarseBlocks(const HeadBlocks& blocks, const char* noun) {
  std::string text;
  const std::size_t count = blocks.blocks().size();
  for (std::size_t i = 0; i < count; ++i) {
    if (count > 24 && i == 12) {
      absl::StrAppend(&text, "  ... ", count - 24, " more\n");
      i = count - 12;
    }
    const HeadBlock& block = blocks.blocks()[i];
    absl::StrAppend(&text, "  block ", i, ": ", block.size(), " ", noun, "s:");
    for (std::size_t r = 0; r < block.ranges.size() && r < 6; ++r) {
      absl::StrAppend(&text, r == 0 ? " " : ", ", block.ranges[r].begin, "-",
                      block.ranges[r].begin + block.ranges[r].size - 1);
    }
    if (block.ranges.size() > 6) absl::StrAppend(&text, ", ... ", block.ranges.size(), " ranges");
    absl::StrAppend(&text, "\n");
  }
  return text;
}

}  // namespace

absl::StatusOr<const WeightLayout*> FindWeight(const CheckpointLayout& layout,
                                               const std::string& name) {
  const auto it = std::find_if(layout.weights.begin(), layout.weights.end(),
                               [&](const WeightLayout& weight) { return weight.name == name; });
  if (it != layout.weights.end()) return &*it;
  std::vector<std::string> names;
  for (const WeightLayout& weight : layout.weights) names.push_back(weight.name);
  return absl::NotFoundError(Printable(absl::StrCat("--explain: no weight '", name, "' among ",
                                                    names.size(), DidYouMean(name, names))));
}

absl::StatusOr<std::string> RowMap(const CheckpointLayout& layout, const BlockSize& size,
                                   const std::string& name) {
  HW_ASSIGN_OR_RETURN(const WeightLayout* const it, FindWeight(layout, name));
  std::string text = absl::StrCat(Printable(it->name), "  ", ToString(it->shape), "\n");
  if (!it->blocks.has_value()) {
    return absl::StrCat(text, "whole         one block: ", Name(*it->declined), "\n",
                        "why           ", it->explanation, "\n");
  }
  const absl::StatusOr<HeadBlocks> blocks = it->blocks->Coarsen(size.granularity, size.heads);
  if (!blocks.ok()) return blocks.status();
  const char* noun = it->blocks->axis() == BlockAxis::kRows ? "row" : "column";
  absl::StrAppend(&text, "layout        ", it->layout, ", heads on the ", noun, "s",
                  it->transposed_storage ? ", stored transposed [in, out]" : "", "\n");
  absl::StrAppend(&text, "from          ", it->explanation, "\n");
  absl::StrAppend(&text, "blocks        ", blocks->size(), " at granularity ", ToString(size),
                  "\n\n");
  absl::StrAppendFormat(&text, "%9s  %s\n", noun, Legend(*it->blocks));
  absl::StrAppend(&text, Drawing(*it->blocks));
  absl::StrAppendFormat(&text, "%9d  end\n", it->blocks->axis_size());
  if (size.granularity != Granularity::kHead) {
    absl::StrAppend(&text, "\n", CoarseBlocks(*blocks, noun));
  }
  return text;
}

}  // namespace headwise
