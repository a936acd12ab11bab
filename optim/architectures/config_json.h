// ConfigJson: a config.json as Hugging Face libraries write it, and the sections within.
//
// Parsed by core/io/json_text.h, with Python's habits.
#ifndef HEADWISE_OPTIM_ARCHITECTURES_CONFIG_JSON_H_
#define HEADWISE_OPTIM_ARCHITECTURES_CONFIG_JSON_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json_fwd.hpp"

namespace headwise {

struct ConfigValue {
  enum class Kind { kAbsent, kNull, kInteger, kBool, kString, kOther };
  Kind kind = Kind::kAbsent;
  std::int64_t integer = 0;  // kInteger
  bool flag = false;         // kBool
  std::string text = {};     // kString; of other kinds as JSON, shortened
};

// One object of the configuration. A view: valid as long as its ConfigJson.
class ConfigSection {
 public:
  // "" for the configuration itself, "text_config" for a section.
  const std::string& name() const { return name_; }
  // A value of this section; a dotted path looks into objects ("attn_config.kv_n_heads").
  ConfigValue Get(absl::string_view path) const;
  // Element i of a list; kAbsent if there is no such list or element.
  ConfigValue Element(absl::string_view path, std::int64_t i) const;
  // Whether the list holds the integer; false if there is no list.
  bool ListHolds(absl::string_view path, std::int64_t integer) const;
  bool IsList(absl::string_view path) const;
  // The object of that name.
  std::optional<ConfigSection> Section(absl::string_view path) const;

 private:
  friend class ConfigJson;
  ConfigSection(const nlohmann::json* object, std::string name);
  const nlohmann::json* Find(absl::string_view path) const;

  const nlohmann::json* object_;
  std::string name_;
};

class ConfigJson {
 public:
  // kInvalidArgument says where the text stops being a JSON object.
  static absl::StatusOr<ConfigJson> Parse(absl::string_view text);

  ConfigSection root() const;

 private:
  explicit ConfigJson(std::shared_ptr<const nlohmann::json> json);

  std::shared_ptr<const nlohmann::json> json_;
};

}  // namespace headwise

#endif  // HEADWISE_OPTIM_ARCHITECTURES_CONFIG_JSON_H_
