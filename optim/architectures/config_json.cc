#include "optim/architectures/config_json.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/status_macros.h"
#include "core/io/json_text.h"
#include "nlohmann/json.hpp"

namespace headwise {
namespace {

using nlohmann::json;

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
  HW_ASSIGN_OR_RETURN(json document, ParseJsonObject(text));
  return ConfigJson(std::make_shared<json>(std::move(document)));
}

ConfigSection ConfigJson::root() const { return ConfigSection(json_.get(), ""); }

}  // namespace headwise
