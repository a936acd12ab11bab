#include "optim/architectures/module_config.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace headwise {
namespace {

// Dimensions of any model; a bound that keeps products of two in 64 bits.
constexpr std::int64_t kMaxCount = std::int64_t{1} << 31;

// A value as a message shows it: a number in a string is not a number.
std::string Found(const ConfigValue& value) {
  const std::string text = absl::CEscape(value.text.substr(0, 40));
  return value.kind == ConfigValue::Kind::kString ? absl::StrCat("\"", text, "\"") : text;
}

}  // namespace

std::string ModuleConfig::Field(absl::string_view name) const {
  return section_.name().empty() ? std::string(name) : absl::StrCat(section_.name(), ".", name);
}

void ModuleConfig::Remember(const std::string& text) {
  absl::StrAppend(&fields_, fields_.empty() ? "" : ", ", text);
}

void ModuleConfig::Decline(DeclineReason reason, std::string explanation) {
  if (!declined_.has_value()) declined_ = {reason, std::move(explanation)};
}

std::int64_t ModuleConfig::ToCount(const std::string& field, const ConfigValue& value) {
  if (value.kind == ConfigValue::Kind::kInteger && value.integer > 0 &&
      value.integer <= kMaxCount) {
    return value.integer;
  }
  Decline(DeclineReason::kNoGeometry,
          absl::StrCat("the configuration's ", field, " must be a positive integer",
                       value.integer > kMaxCount ? absl::StrCat(" of at most ", kMaxCount) : "",
                       ", found ", Found(value)));
  return 1;
}

std::optional<std::int64_t> ModuleConfig::MaybeCount(FieldNames names) {
  std::optional<std::int64_t> result;
  const char* first = "";
  for (const char* name : names) {
    const ConfigValue value = section_.Get(name);
    if (value.kind == ConfigValue::Kind::kAbsent || value.kind == ConfigValue::Kind::kNull) {
      continue;
    }
    const std::int64_t count = ToCount(Field(name), value);
    if (!result.has_value()) {
      Remember(absl::StrCat(Field(name), "=", count));
      result = count;
      first = name;
    } else if (*result != count) {
      Decline(DeclineReason::kAmbiguous,
              absl::StrCat("the configuration's ", Field(first), " is ", *result, ", but ",
                           Field(name), ", its other name, is ", count));
    }
  }
  return result;
}

bool ModuleConfig::Absent(FieldNames names) const {
  for (const char* name : names) {
    if (section_.Get(name).kind != ConfigValue::Kind::kAbsent) return false;
  }
  return true;
}

std::int64_t ModuleConfig::Count(FieldNames names, std::int64_t otherwise) {
  if (const std::optional<std::int64_t> count = MaybeCount(names)) return *count;
  const std::string field = Field(names[0]);
  if (!Absent(names)) {
    Decline(DeclineReason::kNoGeometry, absl::StrCat("the configuration's ", field, " is null"));
    return 1;
  }
  if (otherwise == 0) {
    Decline(DeclineReason::kNoGeometry, absl::StrCat("the configuration has no ", field));
    return 1;
  }
  Remember(absl::StrCat(field, "=", otherwise, " by default"));
  return otherwise;
}

bool ModuleConfig::Flag(const char* name, bool otherwise) {
  const ConfigValue value = section_.Get(name);
  if (value.kind == ConfigValue::Kind::kAbsent || value.kind == ConfigValue::Kind::kNull) {
    Remember(absl::StrCat(Field(name), "=", otherwise ? "true" : "false", " by default"));
    return otherwise;
  }
  if (value.kind != ConfigValue::Kind::kBool) {
    Decline(DeclineReason::kNoGeometry,
            absl::StrCat("the configuration's ", Field(name), " must be true or false, found ",
                         Found(value)));
    return otherwise;
  }
  Remember(absl::StrCat(Field(name), "=", value.flag ? "true" : "false"));
  return value.flag;
}

std::string ModuleConfig::LayerWord(const char* list) {
  const ConfigValue value = section_.Element(list, layer_);
  if (value.kind == ConfigValue::Kind::kString) {
    Remember(absl::StrCat(Field(list), "[", layer_, "]=", absl::CEscape(value.text.substr(0, 40))));
    return value.text;
  }
  Decline(DeclineReason::kNoGeometry,
          absl::StrCat("the configuration's ", Field(list), " says nothing about layer ", layer_));
  return "";
}

std::optional<std::int64_t> ModuleConfig::LayerCount(const char* list) {
  const ConfigValue whole = section_.Get(list);
  if (whole.kind == ConfigValue::Kind::kAbsent || whole.kind == ConfigValue::Kind::kNull) {
    return std::nullopt;
  }
  const ConfigValue value = section_.Element(list, layer_);
  if (value.kind == ConfigValue::Kind::kAbsent) {
    Decline(DeclineReason::kNoGeometry, absl::StrCat("the configuration's ", Field(list),
                                                     " says nothing about layer ", layer_));
    return 1;
  }
  const std::string field = absl::StrCat(Field(list), "[", layer_, "]");
  const std::int64_t count = ToCount(field, value);
  Remember(absl::StrCat(field, "=", count));
  return count;
}

std::int64_t ModuleConfig::Quotient(const char* dividend_name, std::int64_t dividend,
                                    const char* divisor_name, std::int64_t divisor) {
  if (dividend % divisor != 0) {
    Decline(DeclineReason::kNoGeometry,
            absl::StrCat("the configuration's ", Field(divisor_name), "=", divisor,
                         " does not divide ", Field(dividend_name), "=", dividend));
    return 1;
  }
  return dividend / divisor;
}

}  // namespace headwise
