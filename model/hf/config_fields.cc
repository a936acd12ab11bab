#include "model/hf/config_fields.h"

#include <cmath>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/nearest_name.h"
#include "nlohmann/json.hpp"

namespace headwise {
namespace {

using nlohmann::json;

// A bound that keeps products of two dimensions in 64 bits.
constexpr std::int64_t kMaxCount = std::int64_t{1} << 31;
constexpr std::size_t kMaxShown = 60;

std::string ShowValue(const json* value) {
  if (value == nullptr) return "nothing";
  if (value->is_array()) return absl::StrCat("a list of ", value->size());
  if (value->is_object()) return "an object";
  const std::string text = value->dump(-1, ' ', true, json::error_handler_t::replace);
  return absl::CEscape(text.substr(0, kMaxShown));
}

bool IsCount(const json& value) {
  return value.is_number_integer() && value >= 1 && value <= kMaxCount;
}

bool IsFinite(const json& value) {
  return value.is_number() && std::isfinite(static_cast<float>(value.get<double>()));
}

}  // namespace

ConfigFields::ConfigFields(const json& object)
    : ConfigFields(object, "", std::make_shared<absl::Status>()) {}

ConfigFields::ConfigFields(const json& object, std::string prefix,
                           std::shared_ptr<absl::Status> status)
    : object_(&object), prefix_(std::move(prefix)), status_(std::move(status)) {
  HW_CHECK(object.is_object());
}

const json* ConfigFields::Peek(const std::string& name) const {
  const auto it = object_->find(name);
  return it == object_->end() ? nullptr : &*it;
}

const json* ConfigFields::Find(const std::string& name) {
  read_.insert(name);
  return Peek(name);
}

void ConfigFields::Fail(const std::string& name, const std::string& problem) {
  if (!status_->ok()) return;
  *status_ = absl::DataLossError(
      absl::StrCat(prefix_, absl::CEscape(name.substr(0, kMaxShown)), ": ", problem));
}

std::string ConfigFields::Show(const std::string& name) const { return ShowValue(Peek(name)); }

bool ConfigFields::Has(const std::string& name) { return Find(name) != nullptr; }

bool ConfigFields::HasValue(const std::string& name) {
  const json* value = Find(name);
  return value != nullptr && !value->is_null();
}

bool ConfigFields::IsObject(const std::string& name) {
  const json* value = Find(name);
  return value != nullptr && value->is_object();
}

std::optional<std::int64_t> ConfigFields::MaybeCount(const std::string& name) {
  if (!HasValue(name)) return std::nullopt;
  const json& value = *Peek(name);
  if (IsCount(value)) return value.get<std::int64_t>();
  Fail(name, absl::StrCat("expected an integer from 1 to ", kMaxCount, ", found ", Show(name)));
  return 1;
}

std::int64_t ConfigFields::Count(const std::string& name, std::int64_t absent) {
  if (!Has(name)) return absent;
  const std::optional<std::int64_t> count = MaybeCount(name);
  if (!count.has_value()) Fail(name, "expected a positive integer, found null");
  return count.value_or(1);
}

std::optional<double> ConfigFields::MaybeNumber(const std::string& name) {
  if (!HasValue(name)) return std::nullopt;
  const json& value = *Peek(name);
  if (IsFinite(value)) return value.get<double>();
  Fail(name, absl::StrCat("expected a finite number, found ", Show(name)));
  return 1;
}

double ConfigFields::Number(const std::string& name, double absent) {
  if (!Has(name)) return absent;
  const std::optional<double> number = MaybeNumber(name);
  if (!number.has_value()) Fail(name, "expected a finite number, found null");
  return number.value_or(1);
}

double ConfigFields::Positive(const std::string& name, double absent) {
  const double value = Number(name, absent);
  if (!(value > 0)) Fail(name, absl::StrCat("expected a number > 0, found ", Show(name)));
  return value > 0 ? value : 1;
}

bool ConfigFields::Flag(const std::string& name, bool absent) {
  const json* value = Find(name);
  if (value == nullptr) return absent;
  if (value->is_boolean()) return value->get<bool>();
  Fail(name, absl::StrCat("expected true or false, found ", Show(name)));
  return absent;
}

std::string ConfigFields::Word(const std::string& name, const std::string& absent) {
  const json* value = Find(name);
  if (value == nullptr) return absent;
  if (value->is_string()) return value->get<std::string>();
  Fail(name, absl::StrCat("expected a string, found ", Show(name)));
  return absent;
}

std::optional<std::vector<std::string>> ConfigFields::Words(const std::string& name) {
  if (!HasValue(name)) return std::nullopt;
  std::vector<std::string> words;
  const json& list = *Peek(name);
  if (!list.is_array()) Fail(name, absl::StrCat("expected a list, found ", Show(name)));
  for (const json& word : list) {
    if (word.is_string()) {
      words.push_back(word.get<std::string>());
    } else {
      Fail(absl::StrCat(name, "[", words.size(), "]"),
           absl::StrCat("expected a string, found ", ShowValue(&word)));
      return words;
    }
  }
  return words;
}

std::optional<std::vector<double>> ConfigFields::Numbers(const std::string& name) {
  if (!HasValue(name)) return std::nullopt;
  std::vector<double> numbers;
  const json& list = *Peek(name);
  if (!list.is_array()) Fail(name, absl::StrCat("expected a list, found ", Show(name)));
  for (const json& number : list) {
    if (IsFinite(number)) {
      numbers.push_back(number.get<double>());
    } else {
      Fail(absl::StrCat(name, "[", numbers.size(), "]"),
           absl::StrCat("expected a finite number, found ", ShowValue(&number)));
      return numbers;
    }
  }
  return numbers;
}

std::optional<ConfigFields> ConfigFields::Section(const std::string& name) {
  if (!HasValue(name)) return std::nullopt;
  const json& value = *Peek(name);
  if (value.is_object()) return ConfigFields(value, absl::StrCat(prefix_, name, "."), status_);
  Fail(name, absl::StrCat("expected an object, found ", Show(name)));
  return std::nullopt;
}

void ConfigFields::Expect(const std::string& name, double value, const std::string& why) {
  if (!HasValue(name)) return;
  const json& found = *Peek(name);
  const bool equal = found.is_boolean() ? static_cast<double>(found.get<bool>()) == value
                                        : found.is_number() && found.get<double>() == value;
  if (!equal) {
    Fail(name, absl::StrCat(Show(name), " is not supported; expected ", value, ": ", why));
  }
}

void ConfigFields::Refuse(const std::string& name, const std::string& why) {
  if (HasValue(name)) Fail(name, absl::StrCat("found ", Show(name), ", which ", why));
}

void ConfigFields::Ignore(absl::Span<const char* const> names) {
  ignored_.insert(names.begin(), names.end());
}

void ConfigFields::RefuseOthers() {
  for (const auto& [name, value] : object_->items()) {
    if (read_.count(name) != 0 || ignored_.count(name) != 0) continue;
    std::vector<std::string> known(read_.begin(), read_.end());
    known.insert(known.end(), ignored_.begin(), ignored_.end());
    Fail(name, absl::StrCat("unknown field, found ", ShowValue(&value),
                            "; it could change what the model computes",
                            DidYouMean(name.substr(0, kMaxShown), known)));
    return;
  }
}

}  // namespace headwise
