#include "core/io/safetensors_index.h"

#include <set>
#include <unordered_set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/io/json_text.h"
#include "nlohmann/json.hpp"

namespace headwise {
namespace {

using nlohmann::json;

std::string Quote(absl::string_view text) {
  return absl::StrCat("'", absl::CEscape(text.substr(0, 80)), text.size() > 80 ? "...'" : "'");
}

bool IsPlainFileName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.size() < 256 &&
         name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
}

// The document; `twice` gets the first key that a weight_map repeats.
absl::StatusOr<json> ParseNoticingRepeats(absl::string_view text, std::string* twice) {
  std::unordered_set<std::string> tensors;
  bool in_weight_map = false;
  const auto notice = [&](int depth, json::parse_event_t event, json& parsed) {
    if (event != json::parse_event_t::key) return true;
    if (depth == 1) in_weight_map = parsed == "weight_map";
    if (depth == 2 && in_weight_map) {
      const std::string& name = parsed.get_ref<const std::string&>();
      if (!tensors.insert(name).second && twice->empty()) *twice = name;
    }
    return true;
  };
  try {
    return json::parse(text.begin(), text.end(), notice);
  } catch (const json::exception& e) {
    return absl::InvalidArgumentError(absl::StrCat("not valid JSON: ", JsonProblem(e)));
  }
}

}  // namespace

absl::StatusOr<SafetensorsIndex> ParseSafetensorsIndex(absl::string_view text) {
  std::string twice;
  const absl::StatusOr<json> document = ParseNoticingRepeats(text, &twice);
  if (!document.ok()) return document.status();
  if (!twice.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("weight_map lists tensor ", Quote(twice), " twice"));
  }
  if (!document->is_object() || !document->contains("weight_map") ||
      !(*document)["weight_map"].is_object()) {
    return absl::InvalidArgumentError(
        "expected an object with an object weight_map; is this an index of safetensors files?");
  }
  SafetensorsIndex index;
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : (*document)["weight_map"].items()) {
    if (!shard.is_string()) {
      return absl::InvalidArgumentError(absl::StrCat("the shard of tensor ", Quote(tensor),
                                                     " must be a file name, found ",
                                                     shard.type_name()));
    }
    const std::string& file = shard.get_ref<const std::string&>();
    if (!IsPlainFileName(file)) {
      return absl::InvalidArgumentError(absl::StrCat("the shard of tensor ", Quote(tensor),
                                                     " must be a file name without ",
                                                     "directories, found ", Quote(file)));
    }
    index.shard_of[tensor] = file;
    shards.insert(file);
  }
  if (index.shard_of.empty()) return absl::InvalidArgumentError("weight_map is empty");
  index.shards.assign(shards.begin(), shards.end());
  return index;
}

}  // namespace headwise
