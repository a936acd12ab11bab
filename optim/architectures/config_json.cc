#include "optim/architectures/config_json.h"

#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/printable.h"
#include "nlohmann/json.hpp"

namespace headwise {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxBytes = std::size_t{64} << 20;

// Python writes NaN, Infinity and -Infinity for such floats, outside of what JSON allows.
std::string WithoutPythonFloats(absl::string_view text) {
  std::string result;
  result.reserve(text.size());
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      result.push_back(c);
      if (c == '\\' && i + 1 < text.size()) result.push_back(text[++i]);
      if (c == '"') in_string = false;
      continue;
    }
    bool replaced = false;
    for (const absl::string_view word : {"-Infinity", "Infinity", "NaN"}) {
      if (text.substr(i, word.size()) == word) {
        result += "null";
        i += word.size() - 1;
        replaced = true;
        break;
      }
    }
    if (replaced) continue;
    if (c == '"') in_string = true;
    result.push_back(c);
  }
  return result;
}

ConfigValue ToValue(const json* found) {
  ConfigValue value;
  if (found == nullptr) return value;
  if (found->is_null()) {
    value.kind = ConfigValue::Kind::kNull;
  } else if (found->is_boolean()) {
    value.kind = ConfigValue::Kind::kBool;
    value.flag = found->get<bool>();
  } else if (found->is_string()) {
    value.kind = ConfigValue::Kind::kString;
    value.text = found->get_ref<const std::string&>();
    return value;
  } else if (found->is_number_unsigned() &&
             found->get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max()) {
    value.kind = ConfigValue::Kind::kOther;
  } else if (found->is_number_integer()) {
    value.kind = ConfigValue::Kind::kInteger;
    value.integer = found->get<std::int64_t>();
  } else {
    value.kind = ConfigValue::Kind::kOther;
    if (found->is_structured()) {
      value.text = found->is_array() ? "a list" : "an object";
      return value;
    }
  }
  value.text = found->dump(-1, ' ', true, json::error_handler_t::replace).substr(0, 40);
  return value;
}

}  // namespace

ConfigSection::ConfigSection(const json* object, std::string name)
    : object_(object), name_(std::move(name)) {}

const json* ConfigSection::Find(absl::string_view path) const {
  const json* at = object_;
  for (const absl::string_view key : absl::StrSplit(path, '.')) {
    if (!at->is_object()) return nullptr;
    const auto it = at->find(std::string(key));
    if (it == at->end()) return nullptr;
    at = &*it;
  }
  return at;
}

ConfigValue ConfigSection::Get(absl::string_view path) const { return ToValue(Find(path)); }

ConfigValue ConfigSection::Element(absl::string_view path, std::int64_t i) const {
  const json* list = Find(path);
  if (list == nullptr || !list->is_array() || i < 0 ||
      i >= static_cast<std::int64_t>(list->size())) {
    return {};
  }
  return ToValue(&(*list)[static_cast<std::size_t>(i)]);
}

bool ConfigSection::ListHolds(absl::string_view path, std::int64_t integer) const {
  const json* list = Find(path);
  if (list == nullptr || !list->is_array()) return false;
  for (const json& element : *list) {
    const ConfigValue value = ToValue(&element);
    if (value.kind == ConfigValue::Kind::kInteger && value.integer == integer) return true;
  }
  return false;
}

bool ConfigSection::IsList(absl::string_view path) const {
  const json* list = Find(path);
  return list != nullptr && list->is_array();
}

std::optional<ConfigSection> ConfigSection::Section(absl::string_view path) const {
  const json* object = Find(path);
  if (object == nullptr || !object->is_object()) return std::nullopt;
  return ConfigSection(object, name_.empty() ? std::string(path) : absl::StrCat(name_, ".", path));
}

ConfigJson::ConfigJson(std::shared_ptr<const json> json) : json_(std::move(json)) {}

absl::StatusOr<ConfigJson> ConfigJson::Parse(absl::string_view text) {
  if (text.size() > kMaxBytes) {
    return absl::InvalidArgumentError(absl::StrCat("a configuration of ", text.size(),
                                                   " bytes; at most ", kMaxBytes,
                                                   " are read; is this a config.json?"));
  }
  const std::string strict = WithoutPythonFloats(text);
  auto document = std::make_shared<json>();
  try {
    *document = json::parse(strict);
  } catch (const json::exception& e) {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error ..."
    const std::string what = e.what();
    const std::size_t bracket = what.find("] ");
    return absl::InvalidArgumentError(absl::StrCat(
        "not valid JSON: ",
        Printable(what.substr(bracket == std::string::npos ? 0 : bracket + 2).substr(0, 160))));
  }
  if (!document->is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected a JSON object, found ", document->type_name()));
  }
  return ConfigJson(std::move(document));
}

ConfigSection ConfigJson::root() const { return ConfigSection(json_.get(), ""); }

}  // namespace headwise
