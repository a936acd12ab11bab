#include "tools/head_blocks/report.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/base/printable.h"
#include "core/base/status_macros.h"
#include "nlohmann/json.hpp"

namespace headwise {
namespace {

// "64 query, 8 key, 8 value", in stored order.
std::string RoleCounts(const HeadBlocks& blocks) {
  std::vector<std::pair<HeadRole, std::int64_t>> counts;
  for (const HeadBlock& block : blocks.blocks()) {
    const auto it = std::find_if(counts.begin(), counts.end(),
                                 [&](const auto& count) { return count.first == block.role; });
    if (it == counts.end()) {
      counts.emplace_back(block.role, 1);
    } else {
      ++it->second;
    }
  }
  return absl::StrJoin(counts, ", ", [](std::string* out, const auto& count) {
    absl::StrAppend(out, count.second, " ", Name(count.first));
  });
}

// Numbers between dots become '*'.
std::string WithoutLayers(const std::string& name) {
  std::string result;
  for (std::size_t i = 0; i < name.size();) {
    const std::size_t end = std::min(name.find('.', i), name.size());
    const std::string part = name.substr(i, end - i);
    std::int64_t number;
    absl::StrAppend(&result, i == 0 ? "" : ".",
                    absl::SimpleAtoi(part, &number) && number >= 0 ? "*" : part);
    i = end + 1;
  }
  return result;
}

struct Row {
  std::string name;
  std::int64_t weights = 0;
  const WeightLayout* first = nullptr;
  std::int64_t blocks = 0;  // of each; 0: no matrix
};

absl::StatusOr<HeadBlocks> Coarsened(const WeightLayout& weight, const BlockSize& size) {
  absl::StatusOr<HeadBlocks> blocks = weight.blocks->Coarsen(size.granularity, size.heads);
  if (!blocks.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(Printable(weight.name), ": ", blocks.status().message()));
  }
  return blocks;
}

absl::StatusOr<std::vector<Row>> Rows(const CheckpointLayout& layout, const BlockSize& size,
                                      bool every_layer) {
  std::vector<Row> rows;
  std::map<std::string, std::size_t> row_of;
  for (const WeightLayout& weight : layout.weights) {
    Row row{Printable(weight.name), 1, &weight, weight.shape.size() == 2 ? 1 : 0};
    if (weight.blocks.has_value()) {
      HW_ASSIGN_OR_RETURN(const HeadBlocks blocks, Coarsened(weight, size));
      row.blocks = blocks.size();
    }
    if (!every_layer) {
      row.name = Printable(WithoutLayers(weight.name));
      const std::string key =
          absl::StrCat(row.name, ToString(weight.shape), weight.layout, row.blocks,
                       weight.declined.has_value() ? Name(*weight.declined) : "");
      const auto [it, inserted] = row_of.try_emplace(key, rows.size());
      if (!inserted) {
        ++rows[it->second].weights;
        continue;
      }
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string SummaryLines(const CheckpointLayout& layout, std::int64_t blocks_at_size,
                         const BlockSize& size) {
  const LayoutSummary summary = Summarize(layout);
  std::string text = absl::StrCat("head blocks   ", summary.blocked, " of ", summary.weights,
                                  " weights, ", summary.blocks, " heads, ", blocks_at_size,
                                  " blocks at granularity ", ToString(size), "\n");
  std::vector<std::string> reasons;
  for (const auto& [reason, count] : summary.declined) {
    reasons.push_back(absl::StrCat(count, " ", Name(reason)));
  }
  absl::StrAppend(&text, "whole         ", reasons.empty() ? "none" : absl::StrJoin(reasons, ", "),
                  "\n");
  return text;
}

std::size_t Widest(const std::vector<Row>& rows, const std::string& title,
                   std::string (*text)(const Row&)) {
  std::size_t widest = title.size();
  for (const Row& row : rows) widest = std::max(widest, text(row).size());
  return widest;
}

std::string LayoutText(const Row& row) {
  if (!row.first->blocks.has_value()) return "whole";
  return row.first->blocks->axis() == BlockAxis::kColumns
             ? absl::StrCat(row.first->layout, " (columns)")
             : row.first->layout;
}

std::string HeadsText(const Row& row) {
  const WeightLayout& weight = *row.first;
  return weight.blocks.has_value() ? RoleCounts(*weight.blocks)
                                   : absl::StrCat(Name(*weight.declined), ": ", weight.explanation);
}

}  // namespace

absl::StatusOr<BlockSize> ParseBlockSize(const std::string& text) {
  for (const Granularity granularity : {Granularity::kWholeMatrix, Granularity::kProjection,
                                        Granularity::kKvGroup, Granularity::kHead}) {
    if (text == Name(granularity)) return BlockSize{granularity, 1};
  }
  const std::string prefix = "head_group:";
  BlockSize size{Granularity::kHeadGroup, 0};
  if (text.rfind(prefix, 0) == 0 && absl::SimpleAtoi(text.substr(prefix.size()), &size.heads) &&
      size.heads > 0) {
    return size;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--granularity: expected whole_matrix, projection, kv_group, head or head_group:N, found '",
      text, "'"));
}

std::string ToString(const BlockSize& size) {
  return size.granularity == Granularity::kHeadGroup
             ? absl::StrCat(Name(size.granularity), ":", size.heads)
             : Name(size.granularity);
}

absl::StatusOr<std::string> LayoutTable(const CheckpointLayout& layout, const BlockSize& size,
                                        bool every_layer) {
  HW_ASSIGN_OR_RETURN(const std::vector<Row> rows, Rows(layout, size, every_layer));
  const int name_width =
      static_cast<int>(Widest(rows, "weight", [](const Row& row) { return row.name; }));
  const int shape_width = static_cast<int>(
      Widest(rows, "shape", [](const Row& row) { return ToString(row.first->shape); }));
  const int layout_width = static_cast<int>(Widest(rows, "layout", LayoutText));
  std::string text =
      absl::StrFormat("%-*s %6s  %-*s  %-*s %7s  %s\n", name_width, "weight", "times", shape_width,
                      "shape", layout_width, "layout", "blocks", "heads, or why whole");
  std::int64_t blocks_at_size = 0;
  for (const Row& row : rows) {
    if (row.first->blocks.has_value()) blocks_at_size += row.blocks * row.weights;
    absl::StrAppendFormat(&text, "%-*s %6d  %-*s  %-*s %7s  %s\n", name_width, row.name,
                          row.weights, shape_width, ToString(row.first->shape), layout_width,
                          LayoutText(row), row.blocks > 0 ? absl::StrCat(row.blocks) : "-",
                          HeadsText(row));
  }
  return absl::StrCat(text, "\n", SummaryLines(layout, blocks_at_size, size));
}

absl::StatusOr<std::string> LayoutJson(const CheckpointLayout& layout, const BlockSize& size,
                                       const std::string& explain) {
  if (!explain.empty()) HW_RETURN_IF_ERROR(FindWeight(layout, explain).status());
  nlohmann::ordered_json json;
  json["model_type"] = layout.model_type;
  json["granularity"] = ToString(size);
  const LayoutSummary summary = Summarize(layout);
  json["summary"] = {{"weights", summary.weights},
                     {"blocked", summary.blocked},
                     {"heads", summary.blocks},
                     {"declined", nlohmann::ordered_json::object()}};
  for (const auto& [reason, count] : summary.declined) {
    json["summary"]["declined"][Name(reason)] = count;
  }
  json["weights"] = nlohmann::ordered_json::array();
  for (const WeightLayout& weight : layout.weights) {
    nlohmann::ordered_json entry = {{"name", weight.name}, {"shape", weight.shape}};
    if (weight.role.has_value()) entry["role"] = Name(*weight.role);
    if (weight.blocks.has_value()) {
      HW_ASSIGN_OR_RETURN(const HeadBlocks blocks, Coarsened(weight, size));
      entry["layout"] = weight.layout;
      entry["axis"] = blocks.axis() == BlockAxis::kRows ? "rows" : "columns";
      entry["transposed_storage"] = weight.transposed_storage;
      entry["blocks"] = blocks.size();
      std::map<HeadRole, std::int64_t> heads;
      for (const HeadBlock& block : weight.blocks->blocks()) ++heads[block.role];
      for (const auto& [role, count] : heads) entry["heads"][Name(role)] = count;
      if (weight.name == explain) {
        entry["ranges"] = nlohmann::ordered_json::array();
        for (const HeadBlock& block : blocks.blocks()) {
          nlohmann::ordered_json ranges = nlohmann::ordered_json::array();
          for (const IndexRange& range : block.ranges) {
            ranges.push_back({range.begin, range.begin + range.size});
          }
          entry["ranges"].push_back({{"role", Name(block.role)},
                                     {"head", block.head},
                                     {"kv_group", block.kv_group},
                                     {"ranges", std::move(ranges)}});
        }
      }
    } else {
      entry["declined"] = Name(*weight.declined);
    }
    entry["explanation"] = weight.explanation;
    json["weights"].push_back(std::move(entry));
  }
  return json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace headwise
