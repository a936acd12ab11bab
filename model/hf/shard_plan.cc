#include "model/hf/shard_plan.h"

#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"

namespace headwise {
namespace {

std::int64_t BytesOf(const SafetensorsEntry& entry) {
  return NumElements(entry.shape) * SizeOf(entry.dtype);
}

}  // namespace

std::vector<Shard> PlanShards(const std::vector<SafetensorsEntry>& entries,
                              std::int64_t max_bytes) {
  std::vector<Shard> shards(1);
  std::int64_t bytes = 0;
  for (const SafetensorsEntry& entry : entries) {
    if (!shards.back().entries.empty() && bytes + BytesOf(entry) > max_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    bytes += BytesOf(entry);
    shards.back().entries.push_back(entry);
  }
  for (std::size_t i = 0; i < shards.size(); ++i) {
    shards[i].file = shards.size() == 1
                         ? "model.safetensors"
                         : absl::StrFormat("model-%05d-of-%05d.safetensors", i + 1, shards.size());
  }
  return shards;
}

std::string ShardIndex(const std::vector<Shard>& shards) {
  nlohmann::json weight_map = nlohmann::json::object();
  std::int64_t elements = 0, bytes = 0;
  for (const Shard& shard : shards) {
    for (const SafetensorsEntry& entry : shard.entries) {
      weight_map[entry.name] = shard.file;
      elements += NumElements(entry.shape);
      bytes += BytesOf(entry);
    }
  }
  const nlohmann::json index = {
      {"metadata", {{"total_parameters", elements}, {"total_size", bytes}}},
      {"weight_map", weight_map}};
  return index.dump(2) + "\n";
}

absl::StatusOr<std::int64_t> ParseShardSize(const std::string& text) {
  const std::size_t digits = text.find_first_not_of("0123456789");
  const std::string unit = digits == std::string::npos ? "" : text.substr(digits);
  std::int64_t size = 0, scale = 0;
  for (const auto& [name, bytes] : std::initializer_list<std::pair<const char*, std::int64_t>>{
           {"", 1},
           {"KB", 1'000},
           {"MB", 1'000'000},
           {"GB", 1'000'000'000},
           {"KiB", std::int64_t{1} << 10},
           {"MiB", std::int64_t{1} << 20},
           {"GiB", std::int64_t{1} << 30}}) {
    if (unit == name) scale = bytes;
  }
  if (scale == 0 || !absl::SimpleAtoi(text.substr(0, digits), &size) || size <= 0 ||
      size > std::numeric_limits<std::int64_t>::max() / scale) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected a size such as 5GB, 500MB or 2GiB, found '", text, "'"));
  }
  return size * scale;
}

}  // namespace headwise
